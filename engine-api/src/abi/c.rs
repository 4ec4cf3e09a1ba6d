//! The C door: engines behind `include/ctxhost_engine.h`, as the same object that every other
//! engine is.
//!
//! ```text
//!  symbol ─► admit: table checked ─► engine: AbiEngine ─► call: a thread ─► instance ─► C
//!                                                                              ▲ requests
//!            services, json ◄──── tables::API ◄──── what C calls ──────────────┤ reading
//!                                                                              └ answer
//! ```
//!
//! Every promise that C code makes to us stands as a rule at the head of that header. What a C
//! engine gets wrong within those rules is a typed error; what it gets wrong against them is
//! undefined, as anywhere in C.

mod layout;
mod words;

mod memory;

mod answer;
mod fault;
mod json;
mod reading;
mod services;
mod tables;

pub(super) mod admit;
mod call;
pub(super) mod engine;
mod instance;
mod requests;
mod threads;

#[cfg(feature = "testing")]
pub mod mirror;

pub use admit::C_ROOT_SYMBOL;
pub use threads::{OnThread, on_new_threads};

/// The header itself, for whoever hands it out.
pub const C_HEADER: &str = include_str!("../../include/ctxhost_engine.h");

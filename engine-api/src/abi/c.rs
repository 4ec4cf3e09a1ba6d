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
mod structs;

mod memory;

mod answer;
mod fault;
mod json;
mod services;
mod tables;
mod view;

mod call;
pub(super) mod engine;
mod instance;
mod requests;
mod threads;
pub(super) mod validate;

#[cfg(feature = "testing")]
pub mod layout_check;

pub use threads::{ThreadInit, set_thread_init};
pub use validate::C_ROOT_SYMBOL;

/// The header itself, for whoever hands it out.
pub const C_HEADER: &str = include_str!("../../include/ctxhost_engine.h");

//! Loads engines written against `include/ctxhost_engine.h` as the same object as Rust engines.
//!
//! ```text
//!  symbol ─► validate: checked table ─► engine: AbiEngine ─► call: a thread ─► instance ─► C
//!                                                                                 ▲ requests
//!               services, json ◄──── tables::API ◄──── functions that C calls ────┤ view
//!                                                                                 └ answer
//! ```
//!
//! The head of that header lists the rules for C code. A mistake within the rules is a typed error; a
//! violation of the rules is undefined behaviour.

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

/// The text of the header, for the scaffold.
pub const C_HEADER: &str = include_str!("../../include/ctxhost_engine.h");

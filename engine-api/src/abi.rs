//! The ABI between host and engine libraries: all uses of abi_stable and all `unsafe` of this crate.
//!
//! [`view`], [`engine`] and [`host`] define the types with a stable layout; each has a plain Rust
//! counterpart outside this module. [`import`] and [`services`] are the host's half, [`export`] is the
//! engine's half, and [`c`] loads engines written in C.

#![allow(unsafe_code)]
// The trait-object macro of abi_stable 0.11 expands to impls that newer compilers warn about.
#![allow(non_local_definitions)]
// The types are public because `export_engine!` expands in other crates; users do not name them.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]

pub(crate) mod json;
pub(crate) mod plan;
pub(crate) mod view;

pub(crate) mod engine;
pub(crate) mod guard;
pub(crate) mod host;
pub(crate) mod wait;

pub mod c;
pub mod export;
pub mod import;
#[cfg(feature = "tracing")]
mod logging;
pub mod metadata;
pub mod services;
pub mod validate;

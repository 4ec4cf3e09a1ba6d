//! The border: everything that knows abi_stable, and every `unsafe` of this crate.
//!
//! What crosses is described by the types in [`view`], [`engine`] and [`host`]; each has a plain
//! counterpart that everybody else uses. The host half is in [`import`] and [`services`], the
//! engine half in [`export`]; [`c`] is the door for engines that are not written in Rust. Authors
//! and the rooms of the host see none of it.

#![allow(unsafe_code)]
// The trait-object macro of abi_stable 0.11 expands to impls that newer compilers warn about.
#![allow(non_local_definitions)]
// What crosses is public to the macro of `export_engine!`, not to readers.
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

//! The only place where time passes.

pub mod replay;

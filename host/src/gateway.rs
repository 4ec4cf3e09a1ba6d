//! The gateway: agents of others send their requests here, and an engine keeps them inside the window.

pub mod chain;
pub mod speech;

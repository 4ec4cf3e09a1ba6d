//! The gateway: agents of others send their requests here, and an engine keeps them inside the window.
//!
//! ```text
//!  client ─► server ─► exchange ─► speech ─► thread ─► runtime (the slot, the law) ─► render ─┐
//!    ▲         │                                                                              ▼
//!    └─────────┴──────────────── stream, untouched ◄───────────────────────────────── upstream
//! ```

pub mod exchange;
pub mod speech;
pub mod thread;

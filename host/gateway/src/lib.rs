//! The gateway: agents of others send their requests here, and an engine keeps them inside the window.
//!
//! ```text
//!  client ─► server ─► exchange ─► dialect ─► thread ─► runtime (the slot, the law) ─► render ─┐
//!    ▲         │                                                                               ▼
//!    └─────────┴──────────────── stream, untouched ◄────────────────────────────────── upstream
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod access;
mod beginning;
mod bodies;
mod complaint;
mod cors;
pub mod dashboard;
mod door;
mod encoding;
mod error;
pub mod exchange;
mod guesses;
mod headers;
mod house;
mod limits;
pub mod metrics;
mod models;
mod neutral;
mod opening;
mod options;
mod originals;
mod proxy;
mod route;
mod secret;
mod server;
mod side_calls;
mod tap;
pub mod thread;
mod tls;
mod traffic;
mod upstream;
pub mod watch;

pub use error::GatewayError;
pub use options::GatewayOptions;
pub use server::Gateway;

//! The HTTP gateway: an engine keeps the requests of other agents inside the model's window.
//!
//! ```text
//!  client ─► server ─► handler ─► proxy ─► conversations ─► agent (engine, invariants) ─► render ─┐
//!    ▲                   │                                                                        ▼
//!    └───────────────────┴────────── response_stream (unchanged) ◄──────────────────────────── upstream
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod auth;
mod body_budget;
mod compress_api;
mod compression;
mod cors;
mod dashboard;
mod error;
mod first_byte_timeout;
mod handler;
mod headers;
mod limits;
pub mod live_stats;
pub mod metrics;
mod model_list;
mod options;
mod originals;
mod outbound_proxy;
mod peek;
pub mod proxy;
mod response_stream;
mod responses;
mod routes;
mod server;
mod stalled_client;
mod state;
mod tls;
mod token_throttle;
mod upstream;

pub use dashboard::{DashboardLogin, dashboard_folder, new_dashboard_link, running_gateways};
pub use error::GatewayError;
pub use options::GatewayOptions;
pub use server::Gateway;

//! The request path: a client request becomes an upstream request, shaped by the active engine.
//!
//! ```text
//!  ClientRequest ─► handle ─┬─ Forward ─► upstream ─┬─ response ─► record_answer
//!                           │                       └─ error ────► handle_refusal ─► Forward or Respond
//!                           └─ Respond (answered locally)
//! ```

mod background;
mod blocking_pool;
mod client_compaction;
mod client_errors;
mod compact_endpoint;
mod compress_endpoint;
mod core;
mod count_tokens;
mod endpoint;
mod eviction;
mod handle;
mod ingest;
mod long_window;
mod messages;
mod new_items;
mod output_limit;
mod references;
mod removed_thinking;
mod request;
mod retry;
mod shaping;
mod signed_summary;
mod stored_history;
mod thinking;
mod warning_pause;
mod working_memory;

pub use compress_endpoint::{CompressError, CompressedMessages, CompressionLimits};
pub use core::Proxy;
pub use ctxhost_conversations::ConversationLabel;
pub(crate) use endpoint::ARN_PREFIX;
pub use endpoint::{Endpoint, EndpointAction, PathModel};
pub use messages::{ClientRequest, LocalResponse, ShapingReport};
pub use request::{InFlightRequest, ProxyAction, UpstreamRequest};

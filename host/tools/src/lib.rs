//! Tools that a model may call: built in, of MCP servers, of engines; one box for all of them.
//!
//! ```text
//!  Toolbox::call ─► checked arguments ─► Tool::call ─► ToolOutput
//!                    │ unknown, wrong      │ panic, too late
//!                    └─────────────────────┴─► ToolOutput with is_error, in words the model can act on
//! ```
//!
//! The room knows neither messages nor sessions: the runtime makes a call of what the model wrote and
//! a message of what came out. Dropping the future of a call ends the call and all that it started.

// What only the tools of MCP servers need is not worth a `cfg` at each place.
#![cfg_attr(not(feature = "mcp"), allow(dead_code, unused_imports))]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod builtin;
pub mod mcp;

mod arguments;
mod blocking_task;
mod error;
mod names;
mod output;
mod output_limit;
mod paths;
mod process;
mod registry;
mod replace;
mod settings;

use std::path::PathBuf;
use std::time::Duration;

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde_json::Value;

pub use error::ToolError;
#[cfg(feature = "mcp")]
pub use mcp::McpServer;
pub use mcp::McpSettings;
pub use names::{BadPattern, NamePattern};
pub use output::{ToolBlock, ToolOutput};
pub use registry::ToolRegistry;
pub use settings::ToolSettings;

/// Something a model may call.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// What the model is told of it. Asked once, when it comes into the box.
    fn spec(&self) -> ToolSpec;

    /// Does it. The arguments are an object that holds what the schema requires.
    ///
    /// Dropping the future cancels the call; a tool that has started something ends it then.
    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput>;
}

/// Where and for whom a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// The folder that relative paths are taken from, and in which commands run.
    pub cwd: PathBuf,
    /// The session.
    pub session_id: String,
    /// This call, as the model named it.
    pub call_id: String,
    /// How long it may take, whatever the tool itself allows.
    pub timeout: Duration,
}

#[cfg(test)]
mod tests;

//! Tools that a model may call: built-in ones, those of MCP servers and of engines, in one registry.
//!
//! ```text
//!  ToolRegistry::call ─► validate arguments ─► Tool::call ─► ToolOutput
//!                           │ unknown, invalid    │ panic, timeout
//!                           └─────────────────────┴─► ToolOutput with is_error
//! ```

// A `cfg` at each item that only MCP uses would add more noise than this.
#![cfg_attr(not(feature = "mcp"), allow(dead_code, unused_imports))]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod mcp;

mod arguments;
mod blocking_task;
mod builtin;
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
pub use output::ToolOutput;
pub use registry::ToolRegistry;
pub use settings::ToolSettings;

/// A tool.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// Its name, description and schema. Read once, when it is added to the registry.
    fn spec(&self) -> ToolSpec;

    /// Runs the tool. The arguments are an object with all required fields. Dropping the future cancels the
    /// call, and ends everything that it has started.
    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput>;
}

/// The context of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// The working folder of relative paths and commands.
    pub cwd: PathBuf,
    /// The session id.
    pub session_id: String,
    /// The id of the call.
    pub call_id: String,
    /// The timeout, which a tool cannot exceed.
    pub timeout: Duration,
}

#[cfg(test)]
mod tests;

//! MCP servers as sources of tools, through the official SDK.

#[cfg(feature = "mcp")]
mod child_process;
#[cfg(feature = "mcp")]
mod connection;
#[cfg(feature = "mcp")]
mod content;
#[cfg(feature = "mcp")]
mod line_limit;
#[cfg(feature = "mcp")]
mod server;
mod settings;

#[cfg(feature = "mcp")]
pub use connection::ListedTool;
#[cfg(feature = "mcp")]
pub use server::McpServer;
pub use settings::{McpSettings, McpSettingsError, McpTransport, SecretValues};

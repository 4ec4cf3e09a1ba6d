//! MCP servers as sources of tools, through the official SDK.

#[cfg(feature = "mcp")]
mod child_process;
#[cfg(feature = "mcp")]
mod connection;
#[cfg(feature = "mcp")]
mod content;
#[cfg(feature = "mcp")]
mod message;
#[cfg(feature = "mcp")]
mod pipes;
#[cfg(feature = "mcp")]
mod server;
mod settings;
#[cfg(feature = "mcp")]
mod tool_list;

#[cfg(feature = "mcp")]
pub use server::McpServer;
pub use settings::{McpSettings, McpSettingsError, McpTransport, SecretValues};
#[cfg(feature = "mcp")]
pub use tool_list::ListedTool;

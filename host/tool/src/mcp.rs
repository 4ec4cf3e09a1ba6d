//! Servers of the Model Context Protocol as sources of tools, through the official SDK.

#[cfg(feature = "mcp")]
mod connection;
#[cfg(feature = "mcp")]
mod content;
#[cfg(feature = "mcp")]
mod server;
mod settings;
#[cfg(feature = "mcp")]
mod stdio;

#[cfg(feature = "mcp")]
pub use server::{ListedTool, McpServer};
pub use settings::{BadMcpSettings, McpSettings, McpWire, Values};

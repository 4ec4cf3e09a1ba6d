//! One server: its tools, and the connection to it.
//!
//! A server is connected once and shared by all sessions. When it went away, the next call connects
//! it again; a call in which it went away is not repeated, since it may have been carried out.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::connection::{McpCallError, McpConnection};
use super::{McpSettings, content};
use crate::blocking_task::run_blocking;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::{CallContext, Tool};

/// A server, and the tools it listed when it was connected first.
#[derive(Debug)]
pub struct McpServer {
    name: String,
    settings: McpSettings,
    listed: Vec<ListedTool>,
    connection: Mutex<Option<Arc<McpConnection>>>,
}

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTool {
    /// The server's own name for it.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: Value,
}

impl McpServer {
    /// Starts or reaches a server and asks for its tools. Dropping the last one that knows the server
    /// ends it.
    pub async fn connect(name: &str, settings: &McpSettings) -> Result<Arc<McpServer>, ToolError> {
        let connection = McpConnection::open(name, settings).await?;
        let mut listed = connection.list_tools().await?;
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Arc::new(McpServer {
            name: name.to_owned(),
            settings: settings.clone(),
            listed,
            connection: Mutex::new(Some(Arc::new(connection))),
        }))
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tools, in the order of their names.
    pub fn listed_tools(&self) -> &[ListedTool] {
        &self.listed
    }

    /// One of its tools, under the name by which the model shall call it.
    pub fn tool(self: &Arc<Self>, name: String, listed: &ListedTool) -> Arc<dyn Tool> {
        Arc::new(McpTool { server: Arc::clone(self), name, listed: listed.clone() })
    }

    /// Calls a tool by the server's own name for it.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
    ) -> Result<ToolOutput, ToolError> {
        let connection = self.connection().await?;
        let result = match connection.call(tool, arguments.clone(), timeout).await {
            // It never reached the server, so that nothing is done twice.
            Err(McpCallError::NotSent(cause)) => {
                tracing::warn!(server = %self.name, %cause, "MCP server is connected again");
                let connection = self.reconnect(&connection).await?;
                connection.call(tool, arguments, timeout).await
            }
            result => result,
        };
        let result = result.map_err(|error| error.into_tool_error(&self.name, tool))?;
        // Long texts are saved to a file.
        run_blocking(move |_| Ok(content::output(result))).await
    }

    /// Takes leave of the server and waits for a moment until it has ended. A later call starts it
    /// again.
    pub async fn close(&self) {
        let connection = self.connection.lock().await.take();
        if let Some(connection) = connection {
            connection.shut_down().await;
        }
    }

    /// The connection, opened again where the server went away.
    async fn connection(&self) -> Result<Arc<McpConnection>, ToolError> {
        let mut slot = self.connection.lock().await;
        match &*slot {
            Some(connection) if connection.is_open() => Ok(Arc::clone(connection)),
            _ => self.open_into(&mut slot).await,
        }
    }

    /// Another connection than this one, which somebody else may have opened meanwhile.
    async fn reconnect(
        &self,
        broken: &Arc<McpConnection>,
    ) -> Result<Arc<McpConnection>, ToolError> {
        let mut slot = self.connection.lock().await;
        match &*slot {
            Some(connection) if !Arc::ptr_eq(connection, broken) => Ok(Arc::clone(connection)),
            _ => self.open_into(&mut slot).await,
        }
    }

    async fn open_into(
        &self,
        slot: &mut Option<Arc<McpConnection>>,
    ) -> Result<Arc<McpConnection>, ToolError> {
        // The old process ends before a new one begins.
        *slot = None;
        let connection = Arc::new(McpConnection::open(&self.name, &self.settings).await?);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

/// One tool of a server.
#[derive(Debug)]
struct McpTool {
    server: Arc<McpServer>,
    name: String,
    listed: ListedTool,
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.listed.description.clone(),
            input_schema: self.listed.input_schema.clone(),
        }
    }

    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            self.server.call(&self.listed.name, arguments, context.timeout).await.into()
        })
    }
}

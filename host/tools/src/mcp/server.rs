//! An MCP server: its tools and its connection.
//!
//! A connection is shared by all sessions and reopened by the next call if it is lost. The call in which it was
//! lost is not repeated, because it may have had effects.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::connection::{McpCallError, McpConnection};
use super::content;
use super::settings::McpSettings;
use super::tool_list::ListedTool;
use crate::blocking_task::run_blocking;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::{CallContext, Tool};

/// A server and its tools.
#[derive(Debug)]
pub struct McpServer {
    name: String,
    settings: McpSettings,
    listed: Vec<ListedTool>,
    list_faults: Vec<String>,
    connection: Mutex<Option<Arc<McpConnection>>>,
}

impl McpServer {
    /// Connects to a server and lists its tools. Dropping the last reference ends the server.
    pub async fn connect(name: &str, settings: &McpSettings) -> Result<Arc<McpServer>, ToolError> {
        let connection = McpConnection::open(name, settings).await?;
        let (mut listed, list_faults) = connection.list_tools().await?;
        for fault in &list_faults {
            tracing::error!(server = %name, "leaving out a tool that is not valid MCP: {fault}");
        }
        // A stable order: the tool list is part of the prefix that the provider caches.
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Arc::new(McpServer {
            name: name.to_owned(),
            settings: settings.clone(),
            listed,
            list_faults,
            connection: Mutex::new(Some(Arc::new(connection))),
        }))
    }

    /// Its name in the config.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tools, sorted by name.
    pub fn listed_tools(&self) -> &[ListedTool] {
        &self.listed
    }

    /// What is wrong with the tools that it lists and that are left out, each with its name and field.
    pub fn list_faults(&self) -> &[String] {
        &self.list_faults
    }

    /// One of its tools, under the name that the model uses.
    pub fn tool(self: &Arc<Self>, name: String, listed: &ListedTool) -> Arc<dyn Tool> {
        Arc::new(McpTool { server: Arc::clone(self), name, listed: listed.clone() })
    }

    /// Calls a tool by the server's name for it.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        timeout: Duration,
    ) -> Result<ToolOutput, ToolError> {
        let connection = self.connection().await?;
        let result = match connection.call(tool, arguments.clone(), timeout).await {
            // The call was not sent, so repeating it is safe.
            Err(McpCallError::NotSent(cause)) => {
                tracing::warn!(server = %self.name, %cause, "reconnecting to the MCP server");
                let connection = self.reconnect(&connection).await?;
                connection.call(tool, arguments, timeout).await
            }
            result => result,
        };
        let result = result.map_err(|error| error.into_tool_error(&self.name, tool))?;
        // Long texts are saved to a file.
        run_blocking(move |_| Ok(content::output(result))).await
    }

    /// Shuts the server down. A later call starts it again.
    pub async fn close(&self) {
        let connection = self.connection.lock().await.take();
        if let Some(connection) = connection {
            connection.shut_down().await;
        }
    }

    /// The connection; reopened if it was lost.
    async fn connection(&self) -> Result<Arc<McpConnection>, ToolError> {
        let mut slot = self.connection.lock().await;
        match &*slot {
            Some(connection) if connection.is_open() => Ok(Arc::clone(connection)),
            _ => self.open_into(&mut slot).await,
        }
    }

    /// A connection other than `broken`; another call may have reopened it already.
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
        // The old process must end first.
        *slot = None;
        let connection = Arc::new(McpConnection::open(&self.name, &self.settings).await?);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

/// A tool of a server.
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

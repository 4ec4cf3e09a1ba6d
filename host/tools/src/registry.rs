//! The registry of tools. Every call gets a result, whatever fails.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_dialects::ChatBlock;
use ctxhost_dialects::tool_name::is_legal_tool_name;
use ctxhost_engine_api::ToolSpec;
use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::Value;

use super::builtin;
use super::error::ToolError;
#[cfg(feature = "mcp")]
use super::mcp::McpServer;
use super::mcp::McpSettings;
use super::names;
use super::output::ToolOutput;
use super::output_limit;
use super::settings::ToolSettings;
use super::{CallContext, Tool, arguments};

/// Extra time for tools that enforce the timeout themselves, to return a partial result.
const GRACE: Duration = Duration::from_secs(1);

/// The similarity above which a name is suggested.
const LIKENESS: f64 = 0.8;

/// All tools by name. Clones share tools and servers.
#[derive(Clone, Debug, Default)]
pub struct ToolRegistry {
    settings: ToolSettings,
    tools: BTreeMap<String, RegisteredTool>,
    #[cfg(feature = "mcp")]
    servers: Vec<Arc<McpServer>>,
}

#[derive(Clone, Debug)]
struct RegisteredTool {
    spec: ToolSpec,
    tool: Arc<dyn Tool>,
}

impl ToolRegistry {
    /// An empty registry.
    pub fn empty(settings: ToolSettings) -> ToolRegistry {
        ToolRegistry { settings, ..ToolRegistry::default() }
    }

    /// A registry with the built-in tools that the settings allow.
    pub fn with_builtins(settings: ToolSettings) -> ToolRegistry {
        output_limit::remove_old_files();
        let tools = builtin::all(&settings);
        let mut registry = ToolRegistry::empty(settings);
        for tool in tools {
            // Built-in names are valid and unique.
            let _ = registry.add(tool);
        }
        registry
    }

    /// Adds a tool. Returns whether the settings allow its name.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<bool, ToolError> {
        let spec = tool.spec();
        if !is_legal_tool_name(&spec.name) {
            return Err(ToolError::BadName { name: spec.name });
        }
        if !self.settings.allows(&spec.name) {
            return Ok(false);
        }
        if self.tools.contains_key(&spec.name) {
            return Err(ToolError::NameTaken { name: spec.name });
        }
        self.tools.insert(spec.name.clone(), RegisteredTool { spec, tool });
        Ok(true)
    }

    /// Connects to servers in parallel and adds their tools. Returns the errors; a server that fails is
    /// skipped.
    #[cfg(feature = "mcp")]
    pub async fn connect(&mut self, servers: &BTreeMap<String, McpSettings>) -> Vec<ToolError> {
        let connections = servers.iter().map(|(name, settings)| McpServer::connect(name, settings));
        let mut errors = Vec::new();
        for connected in join_all(connections).await {
            match connected {
                Ok(server) => errors.extend(self.add_server(server)),
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// Returns an error for every server: this build has no MCP.
    #[cfg(not(feature = "mcp"))]
    pub async fn connect(&mut self, servers: &BTreeMap<String, McpSettings>) -> Vec<ToolError> {
        let complaint = "this build has no MCP support; build with the cargo feature `mcp`";
        let refused = |server: &String| ToolError::BadServer {
            server: server.clone(),
            complaint: complaint.to_owned(),
        };
        servers.keys().map(refused).collect()
    }

    /// Adds the tools of a server. Returns the errors.
    #[cfg(feature = "mcp")]
    pub fn add_server(&mut self, server: Arc<McpServer>) -> Vec<ToolError> {
        let mut errors = Vec::new();
        for listed in server.listed_tools() {
            let is_taken = |name: &str| self.tools.contains_key(name);
            let name = names::mcp_tool_name(server.name(), &listed.name, is_taken);
            errors.extend(self.add(server.tool(name, listed)).err());
        }
        self.servers.push(server);
        errors
    }

    /// The specs in a stable order, which the provider's prompt cache depends on.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.values().map(|registered| registered.spec.clone()).collect()
    }

    /// The names, in the same order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Calls a tool. Every failure becomes an error result for the model.
    pub async fn call(&self, name: &str, arguments: &Value, context: &CallContext) -> ToolOutput {
        let mut output = ToolOutput::from(self.try_call(name, arguments, context).await);
        if output.blocks.is_empty() {
            // Some providers reject an empty result.
            output.blocks.push(ChatBlock::text("(no output)"));
        }
        output
    }

    /// Shuts the servers down. Without it, they are killed when the last registry is dropped.
    pub async fn close(&self) {
        #[cfg(feature = "mcp")]
        join_all(self.servers.iter().map(|server| server.close())).await;
    }

    async fn try_call(
        &self,
        name: &str,
        arguments: &Value,
        context: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let registered = self.tools.get(name).ok_or_else(|| self.unknown_tool(name))?;
        let arguments = arguments::validate(name, &registered.spec.input_schema, arguments)?;
        // Both creating and polling the future may panic.
        let calling = async { registered.tool.call(&arguments, context).await };
        // A panic must become a result, because the model waits for one.
        let guarded = AssertUnwindSafe(calling).catch_unwind();
        // A tool with a timeout of its own returns what it has; this one only ends tools without.
        let limit = context.timeout.saturating_add(GRACE);
        match tokio::time::timeout(limit, guarded).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(panic)) => {
                Err(ToolError::Panicked { tool: name.to_owned(), message: panic_message(&*panic) })
            }
            Err(_) => Err(ToolError::TimedOut {
                tool: name.to_owned(),
                timeout_ms: context.timeout.as_millis(),
            }),
        }
    }

    fn unknown_tool(&self, name: &str) -> ToolError {
        let likeness = |other: &str| strsim::jaro_winkler(name, other);
        let nearest = self.names().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let guess = nearest.filter(|other| likeness(other) >= LIKENESS);
        ToolError::UnknownTool {
            name: name.to_owned(),
            guess: guess.map(|other| format!(" (did you mean `{other}`?)")).unwrap_or_default(),
            known: self.names().collect::<Vec<_>>().join(", "),
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}

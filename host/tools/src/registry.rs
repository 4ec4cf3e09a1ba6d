//! The box: every tool by its name, and a call that always ends in an answer.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

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
use super::output::{ToolBlock, ToolOutput};
use super::settings::ToolSettings;
use super::{CallContext, Tool, arguments};

/// What a tool that keeps the time itself has beyond it, to say what it has come to.
const GRACE: Duration = Duration::from_secs(1);

/// Names closer than this are taken for a slip of the same name.
const LIKENESS: f64 = 0.8;

/// Every tool by its name. A clone is cheap and shares the tools and servers.
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
    /// A box without a tool.
    pub fn empty(settings: ToolSettings) -> ToolRegistry {
        ToolRegistry { settings, ..ToolRegistry::default() }
    }

    /// A box with the built-in tools that the settings admit.
    pub fn with_builtins(settings: ToolSettings) -> ToolRegistry {
        let tools = builtin::all(&settings);
        let mut toolbox = ToolRegistry::empty(settings);
        for tool in tools {
            // Their names are legal and their own.
            let _ = toolbox.add(tool);
        }
        toolbox
    }

    /// Puts a tool in, where the settings admit its name. Says whether they do.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<bool, ToolError> {
        let spec = tool.spec();
        if !names::is_valid(&spec.name) {
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

    /// Connects servers, all at once, and puts their tools in. A server that does not answer is left
    /// out and told of; the others serve.
    #[cfg(feature = "mcp")]
    pub async fn connect(&mut self, servers: &BTreeMap<String, McpSettings>) -> Vec<ToolError> {
        let connecting = servers.iter().map(|(name, settings)| McpServer::connect(name, settings));
        let mut errors = Vec::new();
        for connected in join_all(connecting).await {
            match connected {
                Ok(server) => errors.extend(self.add_server(server)),
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// Refuses every server: this program was built without MCP.
    #[cfg(not(feature = "mcp"))]
    pub async fn connect(&mut self, servers: &BTreeMap<String, McpSettings>) -> Vec<ToolError> {
        let complaint = "this ctxhost was built without MCP; build it with the cargo feature `mcp`";
        let refused = |server: &String| ToolError::BadServer {
            server: server.clone(),
            complaint: complaint.to_owned(),
        };
        servers.keys().map(refused).collect()
    }

    /// Puts the tools of a server in; answers with those that could not be.
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

    /// What the model is told: always in the same order, so that the provider's cache holds.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.values().map(|held| held.spec.clone()).collect()
    }

    /// The names, in the same order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Calls a tool. Whatever goes wrong is an answer too, in words the model can act on.
    pub async fn call(&self, name: &str, arguments: &Value, context: &CallContext) -> ToolOutput {
        let mut output = ToolOutput::from(self.try_call(name, arguments, context).await);
        if output.blocks.is_empty() {
            // Some providers refuse a result with nothing in it.
            output.blocks.push(ToolBlock::Text("(no output)".into()));
        }
        output
    }

    /// Takes leave of the servers, so that they can end in good order. Without it they are killed
    /// when the last box is dropped.
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
        let held = self.tools.get(name).ok_or_else(|| self.unknown_tool(name))?;
        let arguments = arguments::validate(name, &held.spec.input_schema, arguments)?;
        // The call itself may panic as well as its future.
        let calling = async { held.tool.call(&arguments, context).await };
        let guarded = AssertUnwindSafe(calling).catch_unwind();
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

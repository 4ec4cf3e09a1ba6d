//! A scripted provider and a recording engine for tests of the runtime.

pub(super) mod scripted_engine;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use ctxhost_engine_api::*;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Runtime, RuntimeBuilder, SessionId};
use ctxhost_config::Config;
use ctxhost_dialects::message::{StopReason, ToolCallBlock};
use ctxhost_dialects::{
    AssistantMessage, ChatBlock, ChatMessage, FailureReason, ModelRequest, ProviderError,
    StreamPart,
};
use ctxhost_engine::EngineSpec;
use ctxhost_provider::ProviderClient;

/// A provider whose answers are a function of the request.
pub(super) struct ScriptedProvider {
    answer: Box<dyn Fn(&ModelRequest) -> Answer + Send + Sync>,
    window: Option<u64>,
    pub(super) requests: Mutex<Vec<ModelRequest>>,
}

/// The answer to a request.
pub(super) enum Answer {
    Text(String),
    Calls(&'static str, Value),
    /// An authentication error.
    Refusal,
    /// A text that reached the output limit, and a call that is dropped for it.
    Cut(&'static str, Option<&'static str>),
    /// A text and the start of a call, without an end.
    Unfinished(&'static str, Option<&'static str>),
    /// A text after a delay.
    Delayed(Duration, String),
}

impl ScriptedProvider {
    pub(super) fn new(
        answer: impl Fn(&ModelRequest) -> Answer + Send + Sync + 'static,
    ) -> Arc<ScriptedProvider> {
        ScriptedProvider::stating(None, answer)
    }

    /// A provider that states a window; with 0 the query never returns.
    pub(super) fn stating(
        window: Option<u64>,
        answer: impl Fn(&ModelRequest) -> Answer + Send + Sync + 'static,
    ) -> Arc<ScriptedProvider> {
        Arc::new(ScriptedProvider { answer: Box::new(answer), window, requests: Mutex::default() })
    }

    /// The requests whose newest message contains this text.
    pub(super) fn requests_with(&self, text: &str) -> Vec<ModelRequest> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| newest(request).contains(text)).cloned().collect()
    }
}

/// The text of the newest message of a request.
pub(super) fn newest(request: &ModelRequest) -> String {
    let text = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } => text.clone(),
        _ => String::new(),
    };
    request.messages.last().map_or_else(String::new, |message| {
        message.content().iter().map(text).collect::<Vec<_>>().join("\n")
    })
}

/// Whether the newest message of a request is the result of a tool.
pub(super) fn is_result(request: &ModelRequest) -> bool {
    matches!(request.messages.last(), Some(ChatMessage::ToolResult(_)))
}

impl std::fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedProvider")
    }
}

impl ProviderClient for ScriptedProvider {
    fn name(&self) -> &str {
        "scripted"
    }

    fn api(&self) -> &'static str {
        "openai-completions"
    }

    fn generate<'a>(
        &'a self,
        request: &'a ModelRequest,
        parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
    ) -> BoxFuture<'a, std::result::Result<AssistantMessage, ProviderError>> {
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request.clone());
            requests.len()
        };
        let answer = (self.answer)(request);
        Box::pin(async move {
            let (content, stop_reason) = match answer {
                Answer::Text(text) => (ChatBlock::text(text), StopReason::Stop),
                Answer::Delayed(wait, text) => {
                    tokio::time::sleep(wait).await;
                    (ChatBlock::text(text), StopReason::Stop)
                }
                Answer::Calls(name, arguments) => {
                    let (id, name) = (format!("call{number}"), name.to_owned());
                    let call = ToolCallBlock { id, name, arguments, thought_signature: None };
                    (ChatBlock::ToolCall(call), StopReason::ToolUse)
                }
                Answer::Refusal => return Err(refusal()),
                Answer::Cut(text, tool) => {
                    stream(parts, text, tool);
                    (ChatBlock::text(text), StopReason::Length)
                }
                Answer::Unfinished(text, tool) => {
                    stream(parts, text, tool);
                    std::future::pending().await
                }
            };
            Ok(AssistantMessage { content: vec![content], stop_reason, ..Default::default() })
        })
    }

    fn query_window<'a>(
        &'a self,
        _model: &'a str,
    ) -> BoxFuture<'a, std::result::Result<Option<u64>, ProviderError>> {
        match self.window {
            Some(0) => Box::pin(std::future::pending()),
            stated => Box::pin(async move { Ok(stated) }),
        }
    }
}

fn stream(parts: &mut dyn FnMut(StreamPart<'_>), text: &str, tool: Option<&str>) {
    if !text.is_empty() {
        parts(StreamPart::Text(text));
    }
    if let Some(name) = tool {
        parts(StreamPart::ToolCall { name });
    }
}

fn refusal() -> ProviderError {
    let message = "no such key".to_owned();
    let error = ProviderError::new(FailureReason::Auth, "scripted", "model", message);
    ProviderError { status: Some(401), ..error }
}

/// The calls of recording engines, by the name in their config.
static CALLS: LazyLock<Mutex<HashMap<String, Vec<String>>>> = LazyLock::new(Mutex::default);

/// The calls of an engine.
pub(super) fn calls(name: &str) -> Vec<String> {
    CALLS.lock().unwrap().get(name).cloned().unwrap_or_default()
}

/// An engine that keeps everything, and compacts to the newest two entries and a summary.
pub(super) struct RecordingEngine {
    name: String,
    refuses: bool,
    compact_ms: u64,
    addition: Option<String>,
    host: Host,
}

impl RecordingEngine {
    /// An engine with a unique name; the settings are `refuses` (sub-agents), `compact_ms` and `addition` (to
    /// the system prompt).
    pub(super) fn spec(name: &str, settings: Value) -> EngineSpec {
        let mut config = json!({ "name": name });
        if let (Some(config), Some(settings)) = (config.as_object_mut(), settings.as_object()) {
            config.extend(settings.clone());
        }
        EngineSpec::linked::<RecordingEngine>(config)
    }

    fn record(&self, call: String) {
        CALLS.lock().unwrap().entry(self.name.clone()).or_default().push(call);
    }
}

impl ContextEngine for RecordingEngine {
    const INFO: Info = Info::new("recording", "RecordingEngine", "1.0.0");

    fn create(host: Host, config: Value) -> Result<Self> {
        Ok(RecordingEngine {
            name: config["name"].as_str().unwrap_or_default().to_owned(),
            refuses: config["refuses"].as_bool().unwrap_or_default(),
            compact_ms: config["compact_ms"].as_u64().unwrap_or_default(),
            addition: config["addition"].as_str().map(str::to_owned),
            host,
        })
    }

    async fn assemble(&self, transcript: Transcript, _: AssembleRequest) -> Result<Plan> {
        let mut plan = Plan::keep_all(transcript.len());
        plan.extras.system_prompt_addition.clone_from(&self.addition);
        Ok(plan)
    }

    async fn compact(&self, transcript: Transcript, _: CompactRequest) -> Result<Compaction> {
        let len = transcript.len() as u64;
        self.record(format!("compact {len}"));
        if self.compact_ms > 0 {
            self.host.sleep(self.compact_ms).await;
        }
        let cut = transcript.cut_at_or_before(len.saturating_sub(2));
        let mut plan = Plan::default();
        plan.insert(Role::User, "what happened so far", 0..cut).keep(cut..len);
        self.record("compacted".into());
        Ok(Compaction::Plan(plan))
    }

    async fn prepare_subagent_spawn(
        &self,
        transcript: Transcript,
        request: SubagentSpawnRequest,
    ) -> Result<SubagentSpawnReply> {
        let (mode, len) = (request.context_mode, transcript.len());
        self.record(format!("prepare {mode:?} {len}"));
        if self.refuses {
            return Err(EngineError::failed("no sub-agents today"));
        }
        Ok(SubagentSpawnReply { token: format!("token of {}", request.child.id) })
    }

    async fn rollback_subagent_spawn(&self, request: SubagentRollbackRequest) -> Result<()> {
        self.record(format!("rollback {}", request.token));
        Ok(())
    }

    async fn on_subagent_ended(&self, request: SubagentEndedRequest) -> Result<()> {
        self.record(format!("ended {:?} {}", request.reason, request.child.id));
        Ok(())
    }
}

/// Parses a config.
pub(super) fn config(text: &str) -> Config {
    Config::parse("ctxhost.toml", text).unwrap()
}

/// A builder with this provider and engine, without built-in tools.
pub(super) fn builder(
    config: &Config,
    client: &Arc<ScriptedProvider>,
    engine: EngineSpec,
) -> RuntimeBuilder {
    let builder = RuntimeBuilder::from_config(config).model("scripted/model").window_tokens(64_000);
    builder.client(client.clone()).engine_spec(engine).without_builtin_tools()
}

/// A session in a temporary folder.
pub(super) fn session(runtime: &Runtime, folder: &tempfile::TempDir) -> SessionId {
    runtime.create_session(&folder.path().join("session.jsonl"), folder.path()).unwrap()
}

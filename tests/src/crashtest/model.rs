//! The model and the tool of a child: they return generated texts and report what they received.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::kill::Points;
use super::promise::{Promise, Promises};
use super::speech::{number_of, text_of};
use ctxhost_dialects::message::{StopReason, ToolCallBlock};
use ctxhost_dialects::{
    AssistantMessage, ChatBlock, ChatMessage, ModelRequest, ProviderError, StreamPart,
};
use ctxhost_provider::ProviderClient;
use ctxhost_tools::{CallContext, Tool, ToolOutput};

/// The provider of the model, in its own words.
pub(super) const PROVIDER: &str = "crashtest";

/// The name of the tool.
const TOOL: &str = "look";

/// Share of answers that call a tool, of 10.
const CALLS_OF_10: u32 = 4;

/// A model that answers by chance.
pub(super) struct EchoModel {
    random: Mutex<fastrand::Rng>,
    promised: Mutex<HashSet<u64>>,
    promises: Arc<Promises>,
    points: Points,
}

impl EchoModel {
    pub(super) fn new(seed: u64, promises: Arc<Promises>, points: Points) -> EchoModel {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        EchoModel { random, promised: Mutex::default(), promises, points }
    }

    /// What a model is shown is in the session.
    fn promise(&self, request: &ModelRequest) {
        let texts = request.messages.iter().flat_map(ChatMessage::content);
        let received = texts.filter_map(|block| match block {
            ChatBlock::Text { text, .. } => number_of(text),
            _ => None,
        });
        for number in received {
            if lock(&self.promised).insert(number) {
                // A supervisor that listens no more kills no more either.
                let _ = self.promises.make(&Promise::ReceivedRequest(number));
            }
        }
    }

    fn reply(&self, request: &ModelRequest) -> AssistantMessage {
        let mut random = lock(&self.random);
        let is_result = matches!(request.messages.last(), Some(ChatMessage::ToolResult(_)));
        let mut content = vec![ChatBlock::text(text_of(random.u64(..)))];
        let mut stop_reason = StopReason::Stop;
        if !is_result && random.u32(0..10) < CALLS_OF_10 {
            let id = format!("call{:x}", random.u64(..));
            let arguments = json!({ "at": format!("{:x}", random.u64(..)) });
            let call = ToolCallBlock { id, name: TOOL.into(), arguments, thought_signature: None };
            content.push(ChatBlock::ToolCall(call));
            stop_reason = StopReason::ToolUse;
        }
        AssistantMessage { content, stop_reason, ..AssistantMessage::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for EchoModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EchoModel")
    }
}

impl ProviderClient for EchoModel {
    fn name(&self) -> &str {
        PROVIDER
    }

    fn api(&self) -> &'static str {
        "openai-completions"
    }

    fn generate<'a>(
        &'a self,
        request: &'a ModelRequest,
        _parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
    ) -> BoxFuture<'a, Result<AssistantMessage, ProviderError>> {
        Box::pin(async move {
            self.promise(request);
            self.points.pass();
            Ok(self.reply(request))
        })
    }
}

/// A tool that sees the text of the number it is called with.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) points: Points,
}

impl Tool for Look {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: TOOL.into(),
            description: "Looks at something.".into(),
            input_schema: json!({
                "type": "object",
                "properties": { "at": { "type": "string" } },
                "required": ["at"],
            }),
        }
    }

    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            self.points.pass();
            let at = arguments.get("at").and_then(Value::as_str).unwrap_or_default();
            match u64::from_str_radix(at, 16) {
                Ok(number) => ToolOutput::text(text_of(number)),
                Err(error) => ToolOutput::error(error.to_string()),
            }
        })
    }
}

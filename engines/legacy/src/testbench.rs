//! What tests of the layers stand on: small transcripts, and a host with a clock and a scripted model.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex};

use ctxhost_engine_api::border::{BoxFuture, EngineDoor, EngineHandle, HostServices};
use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{
    CallId, CompactRequest, Compaction, Completion, CompletionRequest, EngineError, ErrorKind,
    Flags, HistoryPage, HistoryRequest, HostInfo, Kind, LogLevel, Message, PromptCache, Result,
    Role, SessionRef, Transcript, capability,
};
use serde_json::{Value, json};

use crate::Legacy;

/// A transcript under construction. The first entry is pinned, as the host pins the first task.
#[derive(Debug, Default)]
pub(crate) struct Bench(TranscriptLog);

impl Bench {
    pub(crate) fn transcript(&self) -> Transcript {
        self.0.snapshot()
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn user(&mut self, text: &str) -> &mut Self {
        self.say(Role::User, "user", text)
    }

    pub(crate) fn assistant(&mut self, text: &str) -> &mut Self {
        self.say(Role::Assistant, "assistant", text)
    }

    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: &str) -> &mut Self {
        self.calls(&[(id, name, arguments)])
    }

    pub(crate) fn calls(&mut self, calls: &[(&str, &str, &str)]) -> &mut Self {
        let block = |(id, name, arguments): &(&str, &str, &str)| {
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments})
        };
        let content: Vec<Value> = calls.iter().map(block).collect();
        let ids = calls.iter().map(|(id, ..)| (*id).to_owned()).collect();
        let raw = json!({"role": "assistant", "content": content});
        self.push(Head::of(Role::Assistant), "", raw, ids, None)
    }

    pub(crate) fn result(&mut self, id: &str, name: &str, text: &str) -> &mut Self {
        self.result_with(id, name, text, Flags::default())
    }

    pub(crate) fn result_with(
        &mut self,
        id: &str,
        name: &str,
        text: &str,
        flags: Flags,
    ) -> &mut Self {
        let mut content = vec![json!({"type": "text", "text": text})];
        if flags.contains(Flags::IMAGES) {
            content.push(json!({"type": "image", "mimeType": "image/png", "data": "AAAA"}));
        }
        let raw = json!({
            "role": "toolResult", "toolCallId": id, "toolName": name,
            "isError": flags.contains(Flags::ERROR), "content": content,
        });
        self.push(Head { flags, ..Head::of(Role::Tool) }, text, raw, vec![], Some(id.to_owned()))
    }

    pub(crate) fn summary(&mut self, text: &str, details: Value) -> &mut Self {
        let raw = json!({"type": "compaction", "summary": text, "details": details});
        let head =
            Head { kind: Kind::CompactionSummary, flags: Flags::SYNTHETIC, ..Head::of(Role::User) };
        self.push(head, text, raw, vec![], None)
    }

    fn say(&mut self, role: Role, word: &str, text: &str) -> &mut Self {
        let raw = json!({"role": word, "content": [{"type": "text", "text": text}]});
        self.push(Head::of(role), text, raw, vec![], None)
    }

    fn push(
        &mut self,
        head: Head,
        text: &str,
        raw: Value,
        calls: Vec<String>,
        answers: Option<String>,
    ) -> &mut Self {
        let raw = raw.to_string();
        let flags = if self.0.is_empty() { head.flags.with(Flags::PINNED) } else { head.flags };
        self.0.append(NewEntry {
            id: format!("e{:03}", self.0.len()),
            parent_id: String::new(),
            timestamp_ms: 0,
            role: head.role,
            kind: head.kind,
            flags,
            tokens: tokens::message(&Message::parse(&raw, text)),
            text: text.to_owned(),
            raw,
            calls,
            answers,
        });
        self
    }
}

struct Head {
    role: Role,
    kind: Kind,
    flags: Flags,
}

impl Head {
    fn of(role: Role) -> Head {
        Head { role, kind: Kind::Message, flags: Flags::default() }
    }
}

/// A host with a clock and, perhaps, a model that answers from a script.
#[derive(Debug, Default)]
pub(crate) struct Scripted {
    pub(crate) answers: Mutex<Option<VecDeque<Result<String>>>>,
    pub(crate) asked: Mutex<Vec<CompletionRequest>>,
    pub(crate) log: Mutex<Vec<String>>,
    pub(crate) last_touch_ms: Mutex<Option<i64>>,
}

impl Scripted {
    /// A host whose model answers these texts in turn; the last one again and again.
    pub(crate) fn answering(texts: Vec<Result<String>>) -> Arc<Scripted> {
        let scripted = Scripted::default();
        *scripted.answers.lock().unwrap() = Some(texts.into());
        Arc::new(scripted)
    }

    pub(crate) fn engine(self: &Arc<Self>, config: Value) -> EngineHandle {
        EngineDoor::linked::<Legacy>().create(self.clone(), &config).unwrap()
    }

    fn answer(&self) -> Result<String> {
        let mut answers = self.answers.lock().unwrap();
        let left = answers.as_mut().unwrap();
        if left.len() > 1 { left.pop_front().unwrap() } else { left[0].clone() }
    }
}

/// Runs a compaction to its end.
pub(crate) fn compact(
    engine: &EngineHandle,
    transcript: &Transcript,
    request: CompactRequest,
) -> Result<Compaction> {
    futures_util::future::FutureExt::now_or_never(engine.compact(transcript.clone(), request))
        .expect("nothing in these tests waits")
}

impl HostServices for Scripted {
    fn info(&self) -> HostInfo {
        let has_model = self.answers.lock().unwrap().is_some();
        let capabilities = if has_model { vec![capability::COMPLETE.to_owned()] } else { vec![] };
        HostInfo { capabilities, ..HostInfo::default() }
    }
    fn log(&self, _: LogLevel, _: &str, message: &str, _: &Value) {
        self.log.lock().unwrap().push(message.to_owned());
    }
    fn now_ms(&self) -> i64 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        0
    }
    fn count_tokens(&self, _: &str, text: &str) -> u64 {
        tokens::estimate(text)
    }
    fn is_cancelled(&self, _: CallId) -> bool {
        false
    }
    fn remaining_ms(&self, _: CallId) -> Option<u64> {
        None
    }
    fn progress(&self, _: CallId, _: u32, _: &str) {}
    fn complete(&self, _: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        self.asked.lock().unwrap().push(request);
        let completion = |text| Completion { text, model: "scripted".into(), ..Default::default() };
        Box::pin(ready(self.answer().map(completion)))
    }
    fn kv_get(&self, _: String) -> BoxFuture<Result<Option<String>>> {
        Box::pin(ready(Ok(None)))
    }
    fn kv_put(&self, _: String, _: String) -> BoxFuture<Result<()>> {
        Box::pin(ready(Ok(())))
    }
    fn kv_delete(&self, _: String) -> BoxFuture<Result<()>> {
        Box::pin(ready(Ok(())))
    }
    fn kv_list(&self, _: String) -> BoxFuture<Result<Vec<String>>> {
        Box::pin(ready(Ok(vec![])))
    }
    fn blob_put(&self, _: Vec<u8>) -> BoxFuture<Result<String>> {
        Box::pin(ready(Ok(String::new())))
    }
    fn blob_get(&self, _: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        Box::pin(ready(Ok(None)))
    }
    fn sleep(&self, _: u64) -> BoxFuture<()> {
        Box::pin(ready(()))
    }
    fn history(&self, _: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        Box::pin(ready(Ok(HistoryPage::default())))
    }
    fn prompt_cache(&self, _: &SessionRef) -> PromptCache {
        PromptCache { last_touch_ms: *self.last_touch_ms.lock().unwrap(), ..Default::default() }
    }
    fn delegate_compact(&self, _: CallId, _: CompactRequest) -> BoxFuture<Result<Compaction>> {
        let error = EngineError::new(ErrorKind::Unsupported, "this engine is the delegate");
        Box::pin(ready(Err(error)))
    }
    fn spawn(&self, _: &SessionRef, _: BoxFuture<()>) {}
}

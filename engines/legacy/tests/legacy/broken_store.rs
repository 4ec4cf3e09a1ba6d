//! A host that offers a store and whose disk is full: requests go on, and the log says why.

use std::sync::Arc;

use ctxhost_engine_api::border::{BoxFuture, EngineDoor, HostServices};
use ctxhost_engine_api::testing::{Conversation, ScriptedHost, block_on};
use ctxhost_engine_api::{
    AssembleRequest, BootstrapRequest, CallId, CompactRequest, Compaction, Completion,
    CompletionRequest, EngineError, ErrorKind, HistoryPage, HistoryRequest, HostInfo, LogLevel,
    ModelRef, PromptCache, Result, SessionRef,
};
use ctxhost_engine_legacy::Legacy;
use serde_json::{Value, json};

use crate::stage::assemble;

/// Everything but the store is the scripted host's.
struct FullDisk(ScriptedHost);

fn full<T: Send + 'static>() -> BoxFuture<Result<T>> {
    Box::pin(std::future::ready(Err(EngineError::new(ErrorKind::Store, "the disk is full"))))
}

impl HostServices for FullDisk {
    fn info(&self) -> HostInfo {
        self.0.info()
    }
    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        self.0.log(level, target, message, fields);
    }
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }
    fn count_tokens(&self, model: &str, text: &str) -> u64 {
        self.0.count_tokens(model, text)
    }
    fn is_cancelled(&self, call: CallId) -> bool {
        self.0.is_cancelled(call)
    }
    fn remaining_ms(&self, call: CallId) -> Option<u64> {
        self.0.remaining_ms(call)
    }
    fn progress(&self, call: CallId, permille: u32, note: &str) {
        self.0.progress(call, permille, note);
    }
    fn complete(&self, call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        self.0.complete(call, request)
    }
    fn kv_get(&self, _: String) -> BoxFuture<Result<Option<String>>> {
        full()
    }
    fn kv_put(&self, _: String, _: String) -> BoxFuture<Result<()>> {
        full()
    }
    fn kv_delete(&self, _: String) -> BoxFuture<Result<()>> {
        full()
    }
    fn kv_list(&self, _: String) -> BoxFuture<Result<Vec<String>>> {
        full()
    }
    fn blob_put(&self, _: Vec<u8>) -> BoxFuture<Result<String>> {
        full()
    }
    fn blob_get(&self, _: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        full()
    }
    fn sleep(&self, milliseconds: u64) -> BoxFuture<()> {
        self.0.sleep(milliseconds)
    }
    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        self.0.history(request)
    }
    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        self.0.prompt_cache(session)
    }
    fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        self.0.delegate_compact(call, request)
    }
    fn spawn(&self, session: &SessionRef, task: BoxFuture<()>) {
        self.0.spawn(session, task);
    }
}

#[test]
fn a_full_disk_is_logged_and_fails_no_request() {
    let host = ScriptedHost::new();
    let door = EngineDoor::linked::<Legacy>();
    let engine = door.create(Arc::new(FullDisk(host.clone())), &json!({})).unwrap();
    let mut talk = Conversation::new();
    for round in 0..12 {
        let id = round.to_string();
        talk.user("go").calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"x".repeat(20_000));
        talk.assistant("done");
    }
    let transcript = talk.transcript();
    block_on(engine.bootstrap(transcript.clone(), BootstrapRequest::default())).unwrap();
    let request = || AssembleRequest {
        model: ModelRef { window_tokens: 64_000, ..ModelRef::default() },
        budget: 60_000,
        ..AssembleRequest::default()
    };
    let first = assemble(&engine, &transcript, request()).unwrap();
    assert!(first.ops.len() > 1, "something was decided");
    assert_eq!(assemble(&engine, &transcript, request()).unwrap(), first);
    let lines: Vec<String> = host.log_lines().into_iter().map(|line| line.message).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("the decisions kept could not be read: the disk is full"));
    assert!(lines[1].starts_with("new decisions could not be kept: the disk is full"));
}

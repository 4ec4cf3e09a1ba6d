//! The services of the scripted host.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use super::background::{run_until_stopped, sleep};
use super::{LogLine, ScriptedHost};
use crate::border::{BoxFuture, HostServices};
use crate::embedding::{EmbedRequest, Embeddings};
use crate::engine::capability;
use crate::error::Result;
use crate::host::{
    Completion, CompletionRequest, HistoryPage, HistoryRequest, HostInfo, LogLevel, PromptCache,
};
use crate::plan::Compaction;
use crate::request::{CallId, CompactRequest, SessionRef};
use crate::transcript::tokens;

impl HostServices for ScriptedHost {
    fn info(&self) -> HostInfo {
        HostInfo {
            api_version: env!("CARGO_PKG_VERSION").into(),
            host_version: "scripted".into(),
            capabilities: self.state().capabilities.clone(),
        }
    }

    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        let line = LogLine {
            level,
            target: target.into(),
            message: message.into(),
            fields: fields.clone(),
        };
        self.state().log.push(line);
    }

    fn now_ms(&self) -> i64 {
        self.state().now_ms
    }

    fn monotonic_ns(&self) -> u64 {
        self.state().elapsed_ms.saturating_mul(1_000_000)
    }

    fn count_tokens(&self, _model: &str, text: &str) -> u64 {
        tokens::estimate(text)
    }

    fn is_cancelled(&self, call: CallId) -> bool {
        self.state().cancelled.contains(&call)
    }

    fn remaining_ms(&self, call: CallId) -> Option<u64> {
        self.state().remaining_ms.get(&call).copied()
    }

    fn progress(&self, call: CallId, permille: u32, note: &str) {
        self.state().progress.push((call, permille, note.into()));
    }

    fn complete(&self, _call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        Box::pin(std::future::ready(self.state().complete(request)))
    }

    fn kv_get(&self, key: String) -> BoxFuture<Result<Option<String>>> {
        self.serve(capability::KV, |state| Ok(state.kv.get(&key).cloned()))
    }

    fn kv_put(&self, key: String, value: String) -> BoxFuture<Result<()>> {
        self.serve(capability::KV, |state| {
            state.kv.insert(key, value);
            Ok(())
        })
    }

    fn kv_delete(&self, key: String) -> BoxFuture<Result<()>> {
        self.serve(capability::KV, |state| {
            state.kv.remove(&key);
            Ok(())
        })
    }

    fn kv_list(&self, prefix: String) -> BoxFuture<Result<Vec<String>>> {
        self.serve(capability::KV, |state| {
            Ok(state.kv.keys().filter(|key| key.starts_with(&prefix)).cloned().collect())
        })
    }

    fn blob_put(&self, bytes: Vec<u8>) -> BoxFuture<Result<String>> {
        self.serve(capability::BLOB, |state| {
            let handle = blob_handle(&bytes);
            state.blobs.insert(handle.clone(), bytes);
            Ok(handle)
        })
    }

    fn blob_get(&self, handle: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        self.serve(capability::BLOB, |state| Ok(state.blobs.get(&handle).cloned()))
    }

    fn sleep(&self, milliseconds: u64) -> BoxFuture<()> {
        let mut state = self.state();
        state.elapsed_ms = state.elapsed_ms.saturating_add(milliseconds);
        // The clock advances at the call, not when the sleep ends, to be deterministic.
        let forward = i64::try_from(milliseconds).unwrap_or(i64::MAX);
        state.now_ms = state.now_ms.saturating_add(forward);
        Box::pin(sleep(milliseconds))
    }

    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        self.serve(capability::HISTORY, |state| Ok(state.page(&request)))
    }

    fn prompt_cache(&self, _session: &SessionRef) -> PromptCache {
        self.state().prompt_cache.clone()
    }

    fn delegate_compact(
        &self,
        _call: CallId,
        _request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        self.serve(capability::DELEGATE_COMPACT, |state| state.delegate.clone())
    }

    fn spawn(&self, _session: &SessionRef, task: BoxFuture<()>) {
        let mut state = self.state();
        // Kept by default, so that a test decides when background work happens.
        if !state.runs_tasks {
            state.tasks.push(task);
            return;
        }
        let stopped = state.stopped.clone();
        drop(state);
        std::thread::spawn(move || run_until_stopped(task, &stopped));
    }

    fn embed(&self, _call: CallId, request: EmbedRequest) -> BoxFuture<Result<Embeddings>> {
        self.serve(capability::EMBED, |state| state.embed(request))
    }
}

/// 64 hex digits that depend on the bytes only.
fn blob_handle(bytes: &[u8]) -> String {
    // Not a SHA-256, to keep the dependency out of the crate.
    let quarter = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, bytes).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(quarter).collect()
}

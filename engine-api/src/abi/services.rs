//! Wraps the host's services for the ABI: catches panics, and can revoke them at any time.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, RwLock};

use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{RArc, ROption, RStr, RString, RVec};
use async_ffi::{FfiFuture, FutureExt as _};
use serde_json::Value;

use super::guard::{catch_panic, guard_panics};
use super::host::{
    AbiEmbeddings, AbiFuture, AbiHost, AbiHost_TO, HostObj, embedder_missing, to_abi,
};
use super::json::{AbiCodec, from_json, to_json};
use super::plan::AbiPlan;
use crate::embedding::{EmbedRequest, Embeddings};
use crate::error::{EngineError, ErrorKind, Result};
use crate::host::{
    Completion, CompletionRequest, HistoryPage, HistoryRequest, HostInfo, LogLevel, PromptCache,
};
use crate::plan::Compaction;
use crate::request::{CallId, CompactRequest, SessionRef};

/// The future of a service.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The services a host offers to one engine. Calls may come from any thread; a panic becomes an error of
/// the call.
pub trait HostServices: Send + Sync + 'static {
    /// See [`Host::info`](crate::Host::info).
    fn info(&self) -> HostInfo;
    /// See [`Host::log`](crate::Host::log). `target` is the engine's module, if known.
    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value);
    /// See [`Host::now_ms`](crate::Host::now_ms).
    fn now_ms(&self) -> i64;
    /// See [`Host::monotonic_ns`](crate::Host::monotonic_ns).
    fn monotonic_ns(&self) -> u64;
    /// See [`Host::count_tokens`](crate::Host::count_tokens).
    fn count_tokens(&self, model: &str, text: &str) -> u64;
    /// See [`Host::is_cancelled`](crate::Host::is_cancelled).
    fn is_cancelled(&self, call: CallId) -> bool;
    /// See [`Host::remaining_ms`](crate::Host::remaining_ms).
    fn remaining_ms(&self, call: CallId) -> Option<u64>;
    /// See [`Host::progress`](crate::Host::progress).
    fn progress(&self, call: CallId, permille: u32, note: &str);
    /// See [`Host::complete`](crate::Host::complete).
    fn complete(&self, call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>>;
    /// See [`Host::kv_get`](crate::Host::kv_get).
    fn kv_get(&self, key: String) -> BoxFuture<Result<Option<String>>>;
    /// See [`Host::kv_put`](crate::Host::kv_put).
    fn kv_put(&self, key: String, value: String) -> BoxFuture<Result<()>>;
    /// See [`Host::kv_delete`](crate::Host::kv_delete).
    fn kv_delete(&self, key: String) -> BoxFuture<Result<()>>;
    /// See [`Host::kv_list`](crate::Host::kv_list).
    fn kv_list(&self, prefix: String) -> BoxFuture<Result<Vec<String>>>;
    /// See [`Host::blob_put`](crate::Host::blob_put).
    fn blob_put(&self, bytes: Vec<u8>) -> BoxFuture<Result<String>>;
    /// See [`Host::blob_get`](crate::Host::blob_get).
    fn blob_get(&self, handle: String) -> BoxFuture<Result<Option<Vec<u8>>>>;
    /// See [`Host::sleep`](crate::Host::sleep).
    fn sleep(&self, milliseconds: u64) -> BoxFuture<()>;
    /// See [`Host::history`](crate::Host::history).
    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>>;
    /// See [`Host::prompt_cache`](crate::Host::prompt_cache).
    fn prompt_cache(&self, session: &SessionRef) -> PromptCache;
    /// See [`Host::delegate_compact`](crate::Host::delegate_compact).
    fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>>;
    /// See [`Host::spawn`](crate::Host::spawn).
    fn spawn(&self, session: &SessionRef, task: BoxFuture<()>);
    /// See [`Host::embed`](crate::Host::embed). By default there is no embedder.
    fn embed(&self, _call: CallId, _request: EmbedRequest) -> BoxFuture<Result<Embeddings>> {
        Box::pin(std::future::ready(Err(embedder_missing())))
    }
}

/// Services that can be revoked: afterwards every call answers [`ErrorKind::Dead`], although the engine
/// may still hold the object.
#[derive(Clone)]
pub(crate) struct RevocableServices {
    inner: Arc<RwLock<Option<Arc<dyn HostServices>>>>,
}

impl RevocableServices {
    pub(crate) fn new(services: Arc<dyn HostServices>) -> Self {
        RevocableServices { inner: Arc::new(RwLock::new(Some(services))) }
    }

    /// Converts to the ABI object. Clones kept by the caller can still revoke it.
    pub(crate) fn into_object(self) -> HostObj {
        HostObj(AbiHost_TO::from_ptr(RArc::new(self), TD_Opaque))
    }

    pub(crate) fn revoke(&self) {
        // A poisoned lock must not prevent the revocation.
        *self.inner.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    pub(super) fn get(&self) -> Result<Arc<dyn HostServices>> {
        let behind = self.inner.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        behind.clone().ok_or_else(|| {
            EngineError::new(ErrorKind::Dead, "the host has disposed of this engine")
        })
    }

    fn call_or<T>(&self, or: T, work: impl FnOnce(&dyn HostServices) -> T) -> T {
        let result = self.get().and_then(|services| catch_panic(|| work(services.as_ref())));
        result.unwrap_or(or)
    }

    fn call_async<T: Send + 'static, A: Send + 'static>(
        &self,
        start: impl FnOnce(&dyn HostServices) -> Result<BoxFuture<Result<T>>> + Send + 'static,
        convert: impl FnOnce(T) -> A + Send + 'static,
    ) -> AbiFuture<A> {
        let services = self.clone();
        let call = guard_panics(async move {
            // Inside the future: services may be revoked between the call and its first poll.
            let future = start(services.get()?.as_ref())?;
            Ok(convert(future.await?))
        });
        async move { to_abi(call.await) }.into_ffi()
    }
}

fn session(id: &str) -> SessionRef {
    SessionRef { id: id.into(), key: String::new() }
}

pub(super) fn level(number: u8) -> LogLevel {
    match number {
        1 => LogLevel::Error,
        2 => LogLevel::Warn,
        3 => LogLevel::Info,
        4 => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

impl AbiHost for RevocableServices {
    fn host_info(&self) -> RString {
        to_json(&self.call_or(HostInfo::default(), |host| host.info()))
    }

    fn log(&self, number: u8, target: RStr<'_>, message: RStr<'_>, fields_json: RStr<'_>) {
        let fields = from_json(fields_json.as_str()).unwrap_or(Value::Null);
        self.call_or((), |host| {
            host.log(level(number), target.as_str(), message.as_str(), &fields)
        });
    }

    fn now_ms(&self) -> i64 {
        self.call_or(0, |host| host.now_ms())
    }

    fn monotonic_ns(&self) -> u64 {
        self.call_or(0, |host| host.monotonic_ns())
    }

    fn count_tokens(&self, model: RStr<'_>, text: RStr<'_>) -> u64 {
        self.call_or(0, |host| host.count_tokens(model.as_str(), text.as_str()))
    }

    fn is_cancelled(&self, id: u64) -> bool {
        // Revoked or panicking services count as cancelled, so that the engine stops.
        self.call_or(true, |host| host.is_cancelled(CallId(id)))
    }

    fn remaining_ms(&self, id: u64) -> i64 {
        // No time left instead of no deadline, for the same reason.
        let remaining = self.call_or(Some(0), |host| host.remaining_ms(CallId(id)));
        remaining.map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX))
    }

    fn progress(&self, id: u64, permille: u32, note: RStr<'_>) {
        self.call_or((), |host| host.progress(CallId(id), permille.min(1000), note.as_str()));
    }

    fn complete(&self, id: u64, request: RString) -> AbiFuture<RString> {
        self.call_async(
            move |host| Ok(host.complete(CallId(id), from_json(request.as_str())?)),
            |completion| to_json(&completion),
        )
    }

    fn kv_get(&self, key: RString) -> AbiFuture<ROption<RString>> {
        self.call_async(
            move |host| Ok(host.kv_get(key.into_string())),
            |value| value.map(RString::from).into(),
        )
    }

    fn kv_put(&self, key: RString, value: RString) -> AbiFuture<()> {
        self.call_async(
            move |host| Ok(host.kv_put(key.into_string(), value.into_string())),
            |()| (),
        )
    }

    fn kv_delete(&self, key: RString) -> AbiFuture<()> {
        self.call_async(move |host| Ok(host.kv_delete(key.into_string())), |()| ())
    }

    fn kv_list(&self, prefix: RString) -> AbiFuture<RVec<RString>> {
        self.call_async(
            move |host| Ok(host.kv_list(prefix.into_string())),
            |keys| keys.into_iter().map(RString::from).collect(),
        )
    }

    fn blob_put(&self, bytes: RVec<u8>) -> AbiFuture<RString> {
        self.call_async(move |host| Ok(host.blob_put(bytes.into_vec())), RString::from)
    }

    fn blob_get(&self, handle: RString) -> AbiFuture<ROption<RVec<u8>>> {
        self.call_async(
            move |host| Ok(host.blob_get(handle.into_string())),
            |bytes| bytes.map(RVec::from).into(),
        )
    }

    fn sleep(&self, milliseconds: u64) -> FfiFuture<()> {
        let services = self.clone();
        let sleep = guard_panics(async move {
            let sleep = services.get()?.sleep(milliseconds);
            sleep.await;
            Ok(())
        });
        async move {
            let _ = sleep.await;
        }
        .into_ffi()
    }

    fn history(&self, request: RString) -> AbiFuture<RString> {
        self.call_async(
            move |host| Ok(host.history(from_json(request.as_str())?)),
            |page| to_json(&page),
        )
    }

    fn prompt_cache(&self, session_id: RString) -> RString {
        let known = self.call_or(PromptCache::default(), |host| {
            host.prompt_cache(&session(session_id.as_str()))
        });
        to_json(&known)
    }

    fn delegate_compact(&self, id: u64, request: RString) -> AbiFuture<AbiPlan> {
        self.call_async(
            move |host| Ok(host.delegate_compact(CallId(id), from_json(request.as_str())?)),
            AbiCodec::encode,
        )
    }

    fn spawn(&self, session_id: RString, task: FfiFuture<()>) {
        // A revoked host drops the task, which cancels it.
        self.call_or((), |host| host.spawn(&session(session_id.as_str()), Box::pin(task)));
    }

    fn embed(&self, id: u64, request: RString) -> AbiFuture<AbiEmbeddings> {
        self.call_async(
            move |host| Ok(host.embed(CallId(id), from_json(request.as_str())?)),
            AbiCodec::encode,
        )
    }
}

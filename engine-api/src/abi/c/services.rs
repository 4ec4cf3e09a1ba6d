//! Implements the host functions of the C API. They block the calling thread, which may be any thread.

use std::ffi::c_void;
use std::sync::Arc;

use serde_json::Value;

use super::answer::CAnswer;
use super::call::wait_for_service;
use super::fault::{SuccessStatus, status, value};
use super::memory::{
    give, give_entry, give_vectors, protocol, read_sized, read_texts, write_sized,
};
use super::requests::{embed_purpose, purpose};
use super::structs::*;
use crate::abi::services::{self, HostServices, RevocableServices};
use crate::embedding::EmbedRequest;
use crate::error::Result;
use crate::host::{CompletionRequest, HistoryRequest};
use crate::request::{CallId, SessionRef};

/// An unknown time.
pub(super) const NO_TIME: i64 = i64::MIN;

/// The services of one engine, as C sees them.
pub(crate) struct CHost {
    services: RevocableServices,
}

impl CHost {
    pub(super) fn new(services: RevocableServices) -> &'static CHost {
        // Leaked: threads of the engine may use the handle after `dispose`. Revoked services then answer
        // `Dead`, and the pointer never dangles.
        Box::leak(Box::new(CHost { services }))
    }
}

fn live(host: Option<&CHost>) -> Result<Arc<dyn HostServices>> {
    host.ok_or_else(|| protocol("the host is NULL"))?.services.get()
}

fn done<T>(_: T) -> SuccessStatus {
    SuccessStatus::Ok
}

fn session(id: &Str) -> Result<SessionRef> {
    Ok(SessionRef { id: id.text()?.into(), key: String::new() })
}

pub(super) extern "C" fn host_info(
    host: Option<&CHost>,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        let info = serde_json::to_vec(&live(host)?.info()).unwrap_or_default();
        give(sink, into, &info);
        Ok(SuccessStatus::Ok)
    })
}

pub(super) extern "C" fn has_capability(host: Option<&CHost>, name: Str) -> u32 {
    value(0, || {
        let offered = live(host)?.info().capabilities;
        let name = name.text()?;
        Ok(u32::from(offered.iter().any(|offered| offered == name)))
    })
}

/// Invalid UTF-8 is replaced, because a damaged log line is better than none.
pub(super) extern "C" fn log(host: Option<&CHost>, level: u32, message: Str, fields_json: Str) {
    value((), || {
        // A level of a newer header is logged as TRACE instead of being lost.
        let level = services::level(u8::try_from(level).unwrap_or(u8::MAX));
        let fields = serde_json::from_str(&fields_json.lossy()).unwrap_or(Value::Null);
        live(host)?.log(level, "engine", &message.lossy(), &fields);
        Ok(())
    });
}

pub(super) extern "C" fn now_ms(host: Option<&CHost>) -> i64 {
    value(0, || Ok(live(host)?.now_ms()))
}

pub(super) extern "C" fn monotonic_ns(host: Option<&CHost>) -> u64 {
    value(0, || Ok(live(host)?.monotonic_ns()))
}

pub(super) extern "C" fn count_tokens(host: Option<&CHost>, model: Str, text: Str) -> u64 {
    value(0, || Ok(live(host)?.count_tokens(&model.lossy(), &text.lossy())))
}

pub(super) extern "C" fn is_cancelled(host: Option<&CHost>, call: u64) -> u32 {
    // Fails as cancelled: an engine whose services are revoked should stop.
    value(1, || Ok(u32::from(live(host)?.is_cancelled(CallId(call)))))
}

pub(super) extern "C" fn remaining_ms(host: Option<&CHost>, call: u64) -> i64 {
    value(0, || {
        let remaining = live(host)?.remaining_ms(CallId(call));
        // -1 stands for no deadline, since C has no optional integers.
        Ok(remaining.map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX)))
    })
}

pub(super) extern "C" fn progress(host: Option<&CHost>, call: u64, permille: u32, note: Str) {
    value((), || {
        live(host)?.progress(CallId(call), permille.min(1000), &note.lossy());
        Ok(())
    });
}

pub(super) extern "C" fn sleep_ms(host: Option<&CHost>, milliseconds: u64) -> CStatus {
    status(|| {
        let live = live(host)?;
        // Created inside the future: a timer belongs to the runtime of the thread that polls it.
        let nap = async move {
            live.sleep(milliseconds).await;
            Ok(())
        };
        wait_for_service(nap).map(done)
    })
}

/// The minimum size of a completion request, in bytes.
const COMPLETION_NEEDS_BYTES: usize = std::mem::offset_of!(CCompletion, session);

pub(super) extern "C" fn complete(
    host: Option<&CHost>,
    call: u64,
    request: *const CCompletion,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        let live = live(host)?;
        // SAFETY: the header requires a request that begins with its size; a zeroed one is empty.
        let request =
            unsafe { read_sized::<CCompletion>("the request", request, COMPLETION_NEEDS_BYTES)? };
        let request = CompletionRequest {
            purpose: purpose(request.purpose),
            model: request.model.text()?.into(),
            system: request.system.text()?.into(),
            prompt: request.prompt.text()?.into(),
            max_output_tokens: request.max_output_tokens,
            // A flag instead of a NaN or a negative number, so that a zeroed request is valid.
            temperature: (request.has_temperature != 0).then_some(request.temperature),
            session: request.session.text()?.into(),
            continuation: request.continuation.text()?.into(),
        };
        let completion =
            wait_for_service(async move { live.complete(CallId(call), request).await })?;
        give(sink, into, completion.text.as_bytes());
        Ok(SuccessStatus::Ok)
    })
}

/// Passes a value to the callback, or answers that it is absent.
fn hand<T: AsRef<[u8]>>(found: Option<T>, sink: TextSink, into: *mut c_void) -> SuccessStatus {
    match found {
        Some(found) => {
            give(sink, into, found.as_ref());
            SuccessStatus::Ok
        }
        None => SuccessStatus::Absent,
    }
}

pub(super) extern "C" fn kv_get(
    host: Option<&CHost>,
    key: Str,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        let (live, key) = (live(host)?, key.text()?.to_owned());
        let value = wait_for_service(async move { live.kv_get(key).await })?;
        Ok(hand(value, sink, into))
    })
}

pub(super) extern "C" fn kv_put(host: Option<&CHost>, key: Str, value: Str) -> CStatus {
    status(|| {
        let (live, key, value) = (live(host)?, key.text()?.to_owned(), value.text()?.to_owned());
        wait_for_service(async move { live.kv_put(key, value).await }).map(done)
    })
}

pub(super) extern "C" fn kv_delete(host: Option<&CHost>, key: Str) -> CStatus {
    status(|| {
        let (live, key) = (live(host)?, key.text()?.to_owned());
        wait_for_service(async move { live.kv_delete(key).await }).map(done)
    })
}

pub(super) extern "C" fn kv_list(
    host: Option<&CHost>,
    prefix: Str,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        let (live, prefix) = (live(host)?, prefix.text()?.to_owned());
        let keys = wait_for_service(async move { live.kv_list(prefix).await })?;
        keys.iter().for_each(|key| give(sink, into, key.as_bytes()));
        Ok(SuccessStatus::Ok)
    })
}

pub(super) extern "C" fn blob_put(
    host: Option<&CHost>,
    bytes: *const c_void,
    len: usize,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        let bytes = Str { ptr: bytes.cast(), len }.bytes()?.to_vec();
        let live = live(host)?;
        let handle = wait_for_service(async move { live.blob_put(bytes).await })?;
        give(sink, into, handle.as_bytes());
        Ok(SuccessStatus::Ok)
    })
}

pub(super) extern "C" fn blob_get(
    host: Option<&CHost>,
    handle: Str,
    sink: TextSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        let (live, handle) = (live(host)?, handle.text()?.to_owned());
        let bytes = wait_for_service(async move { live.blob_get(handle).await })?;
        Ok(hand(bytes, sink, into))
    })
}

pub(super) extern "C" fn history(
    host: Option<&CHost>,
    session: CSession,
    after_id: Str,
    limit: u64,
    sink: HistorySink,
    into: *mut c_void,
    more: Option<&mut u32>,
) -> CStatus {
    status(|| {
        let live = live(host)?;
        let (id, key) = (session.id.text()?.into(), session.key.text()?.into());
        let after_id = after_id.text()?.into();
        let request = HistoryRequest { session: SessionRef { id, key }, after_id, limit };
        let page = wait_for_service(async move { live.history(request).await })?;
        for entry in &page.entries {
            let entry = CHistoryEntry {
                struct_size: size_of::<CHistoryEntry>(),
                id: Str::of(&entry.id),
                role: Str::of(&entry.role),
                text: Str::of(&entry.text),
                timestamp_ms: entry.timestamp_ms,
                tokens: entry.tokens,
            };
            give_entry(sink, into, &entry);
        }
        if let Some(more) = more {
            *more = u32::from(page.more);
        }
        Ok(SuccessStatus::Ok)
    })
}

pub(super) extern "C" fn prompt_cache(
    host: Option<&CHost>,
    session_id: Str,
    out: *mut CPromptCache,
    size: usize,
) -> CStatus {
    status(|| {
        let known = live(host)?.prompt_cache(&session(&session_id)?);
        let known = CPromptCache {
            last_touch_ms: known.last_touch_ms.unwrap_or(NO_TIME),
            expires_ms: known.expires_ms.unwrap_or(NO_TIME),
            read_tokens: known.read_tokens,
            write_tokens: known.write_tokens,
            broke: u32::from(known.broke),
            reserved: 0,
        };
        write_sized(out, size, &known).map(done)
    })
}

pub(super) extern "C" fn delegate_compact(
    host: Option<&CHost>,
    answer: Option<&CAnswer>,
) -> CStatus {
    status(|| {
        let live = live(host)?;
        let answer = answer.ok_or_else(|| protocol("the answer is NULL"))?;
        let request = answer.compact_request()?;
        let call = request.call;
        let compaction =
            wait_for_service(async move { live.delegate_compact(call, request).await })?;
        answer.set_compaction(compaction).map(done)
    })
}

pub(super) extern "C" fn embed(
    host: Option<&CHost>,
    call: u64,
    request: *const CEmbedRequest,
    sink: EmbeddingsSink,
    into: *mut c_void,
) -> CStatus {
    status(|| {
        let live = live(host)?;
        let needed = size_of::<CEmbedRequest>();
        // SAFETY: the header requires a request that begins with its size; a zeroed one is empty.
        let request = unsafe { read_sized::<CEmbedRequest>("the request", request, needed)? };
        // SAFETY: the header requires `texts` to point to `texts_len` texts.
        let texts = unsafe { read_texts(request.texts, request.texts_len)? };
        let request = EmbedRequest { texts, purpose: embed_purpose(request.purpose) };
        let found = wait_for_service(async move { live.embed(CallId(call), request).await })?;
        let vectors = CEmbeddings {
            struct_size: size_of::<CEmbeddings>(),
            model: Str::of(&found.model),
            count: found.vectors().len(),
            dimensions: found.dimensions,
            values: found.values.as_ptr(),
        };
        give_vectors(sink, into, &vectors);
        Ok(SuccessStatus::Ok)
    })
}

#[cfg(test)]
mod tests;

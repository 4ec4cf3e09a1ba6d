//! Tests with a host whose services all panic: no panic unwinds into C.

use std::ptr::null_mut;

use super::*;
use crate::abi::c::fault::last_error;
use crate::abi::c::tables::API;
use crate::abi::services::BoxFuture;
use crate::embedding::Embeddings;
use crate::error::ErrorKind;
use crate::host::{Completion, HistoryPage, HostInfo, LogLevel, PromptCache};
use crate::plan::Compaction;
use crate::request::CompactRequest;

struct Broken;

impl HostServices for Broken {
    fn info(&self) -> HostInfo {
        panic!("info")
    }
    fn log(&self, _: LogLevel, _: &str, _: &str, _: &Value) {
        panic!("log")
    }
    fn now_ms(&self) -> i64 {
        panic!("now_ms")
    }
    fn monotonic_ns(&self) -> u64 {
        panic!("monotonic_ns")
    }
    fn count_tokens(&self, _: &str, _: &str) -> u64 {
        panic!("count_tokens")
    }
    fn is_cancelled(&self, _: CallId) -> bool {
        panic!("is_cancelled")
    }
    fn remaining_ms(&self, _: CallId) -> Option<u64> {
        panic!("remaining_ms")
    }
    fn progress(&self, _: CallId, _: u32, _: &str) {
        panic!("progress")
    }
    fn complete(&self, _: CallId, _: CompletionRequest) -> BoxFuture<Result<Completion>> {
        panic!("complete")
    }
    fn kv_get(&self, _: String) -> BoxFuture<Result<Option<String>>> {
        Box::pin(async { panic!("kv_get, while it is waited for") })
    }
    fn kv_put(&self, _: String, _: String) -> BoxFuture<Result<()>> {
        panic!("kv_put")
    }
    fn kv_delete(&self, _: String) -> BoxFuture<Result<()>> {
        panic!("kv_delete")
    }
    fn kv_list(&self, _: String) -> BoxFuture<Result<Vec<String>>> {
        panic!("kv_list")
    }
    fn blob_put(&self, _: Vec<u8>) -> BoxFuture<Result<String>> {
        panic!("blob_put")
    }
    fn blob_get(&self, _: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        panic!("blob_get")
    }
    fn sleep(&self, _: u64) -> BoxFuture<()> {
        panic!("sleep")
    }
    fn history(&self, _: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        panic!("history")
    }
    fn prompt_cache(&self, _: &SessionRef) -> PromptCache {
        panic!("prompt_cache")
    }
    fn delegate_compact(&self, _: CallId, _: CompactRequest) -> BoxFuture<Result<Compaction>> {
        panic!("delegate_compact")
    }
    fn spawn(&self, _: &SessionRef, _: BoxFuture<()>) {
        panic!("spawn")
    }
    fn embed(&self, _: CallId, _: EmbedRequest) -> BoxFuture<Result<Embeddings>> {
        panic!("embed")
    }
}

#[test]
fn no_panic_of_a_service_unwinds_into_c() {
    let host = Some(CHost::new(RevocableServices::new(Arc::new(Broken))));
    let text = Str::of("text");
    let session = CSession { id: text, key: text };
    let request = CCompletion {
        struct_size: size_of::<CCompletion>(),
        purpose: 0,
        has_temperature: 0,
        temperature: 0.0,
        max_output_tokens: 0,
        model: text,
        system: text,
        prompt: text,
        session: text,
        continuation: text,
    };
    let embed = CEmbedRequest {
        struct_size: size_of::<CEmbedRequest>(),
        purpose: 0,
        reserved: 0,
        texts: &raw const text,
        texts_len: 1,
    };
    let mut cache = CPromptCache {
        last_touch_ms: 0,
        expires_ms: 0,
        read_tokens: 0,
        write_tokens: 0,
        broke: 0,
        reserved: 0,
    };
    let answers = [
        (API.host_info)(host, None, null_mut()),
        (API.sleep_ms)(host, 1),
        (API.complete)(host, 1, &raw const request, None, null_mut()),
        (API.kv_get)(host, text, None, null_mut()),
        (API.kv_put)(host, text, text),
        (API.kv_delete)(host, text),
        (API.kv_list)(host, text, None, null_mut()),
        (API.blob_put)(host, text.ptr.cast(), text.len, None, null_mut()),
        (API.blob_get)(host, text, None, null_mut()),
        (API.history)(host, session, text, 1, None, null_mut(), None),
        (API.prompt_cache)(host, text, &raw mut cache, size_of::<CPromptCache>()),
        (API.embed)(host, 1, &raw const embed, None, null_mut()),
    ];
    assert!(answers.iter().all(|answer| *answer == ErrorKind::Panicked.code()), "{answers:?}");
    (API.log)(host, 1, text, text);
    (API.progress)(host, 1, 1, text);
    assert_eq!((API.has_capability)(host, text), 0);
    assert_eq!(((API.now_ms)(host), (API.monotonic_ns)(host)), (0, 0));
    assert_eq!((API.count_tokens)(host, text, text), 0);
    // On a failure the engine must assume that the call is cancelled.
    assert_eq!(((API.is_cancelled)(host, 1), (API.remaining_ms)(host, 1)), (1, 0));
}

extern "C-unwind" fn keep(into: *mut c_void, text: Str) {
    // SAFETY: the test below passes a `String`.
    unsafe { into.cast::<String>().as_mut() }.unwrap().push_str(text.text().unwrap());
}

#[test]
fn the_newest_failure_keeps_its_sentence() {
    let mut sentence = String::new();
    let mut read = || {
        sentence.clear();
        last_error(Some(keep), (&raw mut sentence).cast());
        sentence.clone()
    };
    assert_eq!(now_ms(None), 0);
    assert_eq!(read(), "the host is NULL");
    let host = Some(CHost::new(RevocableServices::new(Arc::new(Broken))));
    kv_put(host, Str::of("k"), Str::of("v"));
    assert_eq!(read(), "panicked: kv_put");
    kv_get(host, Str::of("k"), None, null_mut());
    assert_eq!(read(), "panicked: kv_get, while it is waited for");
}

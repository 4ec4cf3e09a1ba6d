//! The two tables of the header: the functions of an engine and the functions of the host.

use std::ffi::c_void;

use super::answer::CAnswer;
use super::layout::mirror;
use super::services::CHost;
use super::structs::*;
use super::view::CTranscript;
use super::{answer, json, services, view};

/// A call with a transcript.
pub(super) type TranscriptCall<R> =
    unsafe extern "C-unwind" fn(*mut c_void, *const CTranscript, *const R, *mut CAnswer) -> CStatus;

/// A call without a transcript.
pub(super) type PlainCall<R> =
    unsafe extern "C-unwind" fn(*mut c_void, *const R, *mut CAnswer) -> CStatus;

/// The flags of an engine.
pub(super) mod flag {
    pub(in crate::abi::c) const THREAD_SAFE: u32 = 1;
    pub(in crate::abi::c) const OWNS_COMPACTION: u32 = 2;
    pub(in crate::abi::c) const DELEGATES_COMPACTION: u32 = 4;
}

mirror! {
    "ctxhost_engine_v1" CEngine {
        struct_size: usize,
        flags: u32,
        reserved: u32,
        id: Str,
        name: Str,
        version: Str,
        needs: *const Str,
        needs_len: usize,
        create: Option<unsafe extern "C-unwind" fn(*const CApi, *mut CHost, Str, *mut *mut c_void, *mut CAnswer) -> CStatus>,
        assemble: Option<TranscriptCall<CAssemble>>,
        compact: Option<TranscriptCall<CCompact>>,
        dispose: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
        bootstrap: Option<TranscriptCall<CBootstrap>>,
        ingest: Option<TranscriptCall<CIngest>>,
        ingest_batch: Option<TranscriptCall<CIngest>>,
        after_turn: Option<TranscriptCall<CAfterTurn>>,
        commit_turn: Option<TranscriptCall<CCommitTurn>>,
        maintain: Option<TranscriptCall<CMaintain>>,
        prepare_subagent_spawn: Option<TranscriptCall<CSpawn>>,
        rollback_subagent_spawn: Option<PlainCall<CRollback>>,
        on_subagent_ended: Option<PlainCall<CSpawnEnd>>,
        tools: Option<PlainCall<CSession>>,
        call_tool: Option<TranscriptCall<CToolRequest>>,
        status: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut CAnswer) -> CStatus>,
    }

    "ctxhost_api_v1" CApi {
        struct_size: usize,

        t_len: extern "C" fn(Option<&CTranscript>) -> u64,
        t_epoch: extern "C" fn(Option<&CTranscript>) -> u64,
        t_entry: extern "C" fn(Option<&CTranscript>, u64, *mut CEntry, usize) -> CStatus,
        t_tokens: extern "C" fn(Option<&CTranscript>, u64, u64) -> u64,
        t_cut_at_or_before: extern "C" fn(Option<&CTranscript>, u64) -> u64,
        t_cut_at_or_after: extern "C" fn(Option<&CTranscript>, u64) -> u64,
        t_tail_within: extern "C" fn(Option<&CTranscript>, u64) -> u64,
        t_newest_user_message: extern "C" fn(Option<&CTranscript>) -> u64,
        t_tool_call: extern "C" fn(Option<&CTranscript>, u64, usize, *mut CToolCall, usize) -> CStatus,
        t_tool_result: extern "C" fn(Option<&CTranscript>, u64, *mut CToolResult, usize) -> CStatus,

        plan_keep: extern "C" fn(Option<&CAnswer>, u64, u64) -> CStatus,
        plan_replace_text: extern "C" fn(Option<&CAnswer>, u64, Str) -> CStatus,
        plan_replace_raw: extern "C" fn(Option<&CAnswer>, u64, Str) -> CStatus,
        plan_insert: extern "C" fn(Option<&CAnswer>, u32, Str, u64, u64) -> CStatus,
        plan_leave_out: extern "C" fn(Option<&CAnswer>, u64, u64) -> CStatus,
        plan_note: extern "C" fn(Option<&CAnswer>, Str, Str) -> CStatus,
        plan_estimate: extern "C" fn(Option<&CAnswer>, u64) -> CStatus,
        plan_extras: extern "C" fn(Option<&CAnswer>, Str) -> CStatus,
        compact_delegate: extern "C" fn(Option<&CAnswer>) -> CStatus,
        compact_nothing: extern "C" fn(Option<&CAnswer>, Str) -> CStatus,

        set_count: extern "C" fn(Option<&CAnswer>, u64) -> CStatus,
        set_text: extern "C" fn(Option<&CAnswer>, Str) -> CStatus,
        set_result_json: extern "C" fn(Option<&CAnswer>, Str) -> CStatus,
        set_error: extern "C" fn(Option<&CAnswer>, CStatus, Str, Str) -> CStatus,

        host_info: extern "C" fn(Option<&CHost>, TextSink, *mut c_void) -> CStatus,
        has_capability: extern "C" fn(Option<&CHost>, Str) -> u32,
        log: extern "C" fn(Option<&CHost>, u32, Str, Str),
        now_ms: extern "C" fn(Option<&CHost>) -> i64,
        monotonic_ns: extern "C" fn(Option<&CHost>) -> u64,
        count_tokens: extern "C" fn(Option<&CHost>, Str, Str) -> u64,
        is_cancelled: extern "C" fn(Option<&CHost>, u64) -> u32,
        remaining_ms: extern "C" fn(Option<&CHost>, u64) -> i64,
        progress: extern "C" fn(Option<&CHost>, u64, u32, Str),
        sleep_ms: extern "C" fn(Option<&CHost>, u64) -> CStatus,
        complete: extern "C" fn(Option<&CHost>, u64, *const CCompletion, TextSink, *mut c_void) -> CStatus,
        kv_get: extern "C" fn(Option<&CHost>, Str, TextSink, *mut c_void) -> CStatus,
        kv_put: extern "C" fn(Option<&CHost>, Str, Str) -> CStatus,
        kv_delete: extern "C" fn(Option<&CHost>, Str) -> CStatus,
        kv_list: extern "C" fn(Option<&CHost>, Str, TextSink, *mut c_void) -> CStatus,
        blob_put: extern "C" fn(Option<&CHost>, *const c_void, usize, TextSink, *mut c_void) -> CStatus,
        blob_get: extern "C" fn(Option<&CHost>, Str, TextSink, *mut c_void) -> CStatus,
        history: extern "C" fn(Option<&CHost>, CSession, Str, u64, HistorySink, *mut c_void, Option<&mut u32>) -> CStatus,
        prompt_cache: extern "C" fn(Option<&CHost>, Str, *mut CPromptCache, usize) -> CStatus,
        delegate_compact: extern "C" fn(Option<&CHost>, Option<&CAnswer>) -> CStatus,

        json_integer: extern "C" fn(Str, Str, Option<&mut i64>) -> CStatus,
        json_number: extern "C" fn(Str, Str, Option<&mut f64>) -> CStatus,
        json_text: extern "C" fn(Str, Str, TextSink, *mut c_void) -> CStatus,
        json_keys: extern "C" fn(Str, Str, TextSink, *mut c_void) -> CStatus,
        json_quote: extern "C" fn(Str, TextSink, *mut c_void) -> CStatus,

        last_error: extern "C" fn(TextSink, *mut c_void) -> CStatus,

        embed: extern "C" fn(Option<&CHost>, u64, *const CEmbedRequest, EmbeddingsSink, *mut c_void) -> CStatus,
    }
}

/// The host functions for every C engine of this process.
pub(super) static API: CApi = CApi {
    struct_size: size_of::<CApi>(),

    t_len: view::len,
    t_epoch: view::epoch,
    t_entry: view::entry,
    t_tokens: view::tokens,
    t_cut_at_or_before: view::cut_at_or_before,
    t_cut_at_or_after: view::cut_at_or_after,
    t_tail_within: view::tail_within,
    t_newest_user_message: view::newest_user_message,
    t_tool_call: view::tool_call,
    t_tool_result: view::tool_result,

    plan_keep: answer::plan_keep,
    plan_replace_text: answer::plan_replace_text,
    plan_replace_raw: answer::plan_replace_raw,
    plan_insert: answer::plan_insert,
    plan_leave_out: answer::plan_leave_out,
    plan_note: answer::plan_note,
    plan_estimate: answer::plan_estimate,
    plan_extras: answer::plan_extras,
    compact_delegate: answer::compact_delegate,
    compact_nothing: answer::compact_nothing,

    set_count: answer::set_count,
    set_text: answer::set_text,
    set_result_json: answer::set_result_json,
    set_error: answer::set_error,

    host_info: services::host_info,
    has_capability: services::has_capability,
    log: services::log,
    now_ms: services::now_ms,
    monotonic_ns: services::monotonic_ns,
    count_tokens: services::count_tokens,
    is_cancelled: services::is_cancelled,
    remaining_ms: services::remaining_ms,
    progress: services::progress,
    sleep_ms: services::sleep_ms,
    complete: services::complete,
    kv_get: services::kv_get,
    kv_put: services::kv_put,
    kv_delete: services::kv_delete,
    kv_list: services::kv_list,
    blob_put: services::blob_put,
    blob_get: services::blob_get,
    history: services::history,
    prompt_cache: services::prompt_cache,
    delegate_compact: services::delegate_compact,

    json_integer: json::integer,
    json_number: json::number,
    json_text: json::text,
    json_keys: json::keys,
    json_quote: json::quote,

    last_error: super::fault::last_error,

    embed: services::embed,
};

// Rule 5 of the header lets C use these from several threads at a time.
const fn is_shared<T: Sync>() {}
const _: () = is_shared::<CHost>();
const _: () = is_shared::<CTranscript>();
const _: () = is_shared::<CAnswer>();

//! The structs of `ctxhost_engine.h`: strings, entries and requests, field by field.

use std::ffi::{c_char, c_void};

use super::layout::mirror;

/// 0, or the code of an error kind.
pub(crate) type CStatus = u32;

/// The requested value does not exist. Not an error kind.
pub(crate) const ABSENT: CStatus = 900;

mirror! {
    /// A text, or the bytes of a blob.
    "ctxhost_str" Str { ptr: *const c_char, len: usize, }

    "ctxhost_entry" CEntry {
        seq: u64,
        timestamp_ms: i64,
        frame: u64,
        tokens_before: u64,
        tokens: u32,
        flags: u16,
        role: u8,
        kind: u8,
        id: Str,
        parent_id: Str,
        text: Str,
        raw: Str,
    }

    "ctxhost_tool_call" CToolCall { id: Str, name: Str, arguments_json: Str, }

    "ctxhost_tool_result" CToolResult { call_id: Str, tool: Str, is_error: u32, reserved: u32, }

    "ctxhost_session" CSession { id: Str, key: Str, }

    "ctxhost_model" CModel { provider: Str, id: Str, window_tokens: u64, }

    "ctxhost_bootstrap_request" CBootstrap { struct_size: usize, call: u64, session: CSession, }

    "ctxhost_ingest_request" CIngest {
        struct_size: usize,
        call: u64,
        session: CSession,
        from: u64,
        to: u64,
        is_heartbeat: u32,
        reserved: u32,
    }

    "ctxhost_assemble_request" CAssemble {
        struct_size: usize,
        call: u64,
        session: CSession,
        budget: u64,
        reserve_tokens: u64,
        prompt: Str,
        model: CModel,
        tools: *const Str,
        tools_len: usize,
        now_ms: i64,
    }

    "ctxhost_compact_request" CCompact {
        struct_size: usize,
        call: u64,
        session: CSession,
        budget: u64,
        reserve_tokens: u64,
        current_tokens: u64,
        trigger: u32,
        force: u32,
        custom_instructions: Str,
        model: CModel,
        attempt: u32,
        reserved: u32,
        now_ms: i64,
    }

    "ctxhost_after_turn_request" CAfterTurn {
        struct_size: usize,
        call: u64,
        session: CSession,
        from: u64,
        to: u64,
        budget: u64,
        provider_tokens: u64,
        is_heartbeat: u32,
        reserved: u32,
        now_ms: i64,
    }

    "ctxhost_commit_turn_request" CCommitTurn {
        struct_size: usize,
        call: u64,
        session: CSession,
        advancement_key: Str,
        from: u64,
        to: u64,
    }

    "ctxhost_maintain_request" CMaintain {
        struct_size: usize,
        call: u64,
        session: CSession,
        reason: Str,
    }

    "ctxhost_spawn_request" CSpawn {
        struct_size: usize,
        call: u64,
        parent: CSession,
        child: CSession,
        ttl_ms: u64,
        context_mode: u32,
        reserved: u32,
    }

    "ctxhost_rollback_request" CRollback { struct_size: usize, call: u64, token: Str, }

    "ctxhost_spawn_end" CSpawnEnd {
        struct_size: usize,
        call: u64,
        child: CSession,
        reason: u32,
        reserved: u32,
    }

    "ctxhost_tool_request" CToolRequest {
        struct_size: usize,
        call: u64,
        session: CSession,
        name: Str,
        arguments_json: Str,
    }

    "ctxhost_completion" CCompletion {
        struct_size: usize,
        purpose: u32,
        has_temperature: u32,
        temperature: f64,
        max_output_tokens: u64,
        model: Str,
        system: Str,
        prompt: Str,
        session: Str,
        continuation: Str,
    }

    "ctxhost_prompt_cache" CPromptCache {
        last_touch_ms: i64,
        expires_ms: i64,
        read_tokens: u64,
        write_tokens: u64,
        broke: u32,
        reserved: u32,
    }

    "ctxhost_history_entry" CHistoryEntry {
        struct_size: usize,
        id: Str,
        role: Str,
        text: Str,
        timestamp_ms: i64,
        tokens: u64,
    }

    "ctxhost_embed_request" CEmbedRequest {
        struct_size: usize,
        purpose: u32,
        reserved: u32,
        texts: *const Str,
        texts_len: usize,
    }

    "ctxhost_embeddings" CEmbeddings {
        struct_size: usize,
        model: Str,
        count: usize,
        dimensions: usize,
        values: *const f32,
    }
}

/// A callback that receives a text from the host.
pub(crate) type TextSink = Option<unsafe extern "C-unwind" fn(*mut c_void, Str)>;

/// A callback that receives an entry of the history.
pub(crate) type HistorySink =
    Option<unsafe extern "C-unwind" fn(*mut c_void, *const CHistoryEntry)>;

/// A callback that receives vectors.
pub(crate) type EmbeddingsSink =
    Option<unsafe extern "C-unwind" fn(*mut c_void, *const CEmbeddings)>;

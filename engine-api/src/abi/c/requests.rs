//! Converts requests to C structs that borrow their texts.

use super::structs::*;
use crate::embedding::EmbedPurpose;
use crate::host::Purpose;
use crate::request::*;

pub(super) fn session(session: &SessionRef) -> CSession {
    CSession { id: Str::of(&session.id), key: Str::of(&session.key) }
}

fn model(model: &ModelRef) -> CModel {
    CModel {
        provider: Str::of(&model.provider),
        id: Str::of(&model.id),
        window_tokens: model.window_tokens,
    }
}

pub(super) fn bootstrap(request: &BootstrapRequest) -> CBootstrap {
    CBootstrap {
        // Tells an engine of a later minor version which fields this host does not know.
        struct_size: size_of::<CBootstrap>(),
        call: request.call.0,
        session: session(&request.session),
    }
}

pub(super) fn ingest(request: &IngestRequest) -> CIngest {
    CIngest {
        struct_size: size_of::<CIngest>(),
        call: request.call.0,
        session: session(&request.session),
        from: request.entries.start,
        to: request.entries.end,
        is_heartbeat: u32::from(request.is_heartbeat),
        // Zero, so that a later version can give these bytes a meaning.
        reserved: 0,
    }
}

/// `tools` must borrow from the list in `request`.
pub(super) fn assemble(request: &AssembleRequest, tools: &[Str]) -> CAssemble {
    CAssemble {
        struct_size: size_of::<CAssemble>(),
        call: request.call.0,
        session: session(&request.session),
        budget: request.budget,
        reserve_tokens: request.reserve_tokens,
        prompt: Str::of(&request.prompt),
        model: model(&request.model),
        tools: tools.as_ptr(),
        tools_len: tools.len(),
        now_ms: request.now_ms,
    }
}

pub(super) fn compact(request: &CompactRequest) -> CCompact {
    CCompact {
        struct_size: size_of::<CCompact>(),
        call: request.call.0,
        session: session(&request.session),
        budget: request.budget,
        reserve_tokens: request.reserve_tokens,
        current_tokens: request.current_tokens,
        trigger: trigger(request.trigger),
        force: u32::from(request.force),
        // C has no optional text, and empty instructions ask for nothing.
        custom_instructions: Str::of(request.custom_instructions.as_deref().unwrap_or("")),
        model: model(&request.model),
        attempt: request.attempt,
        reserved: 0,
        now_ms: request.now_ms,
    }
}

pub(super) fn trigger(trigger: Trigger) -> u32 {
    match trigger {
        Trigger::Unknown => 0,
        Trigger::Threshold => 1,
        Trigger::Overflow => 2,
        Trigger::Manual => 3,
        Trigger::Timeout => 4,
        Trigger::Bytes => 5,
    }
}

pub(super) fn after_turn(request: &AfterTurnRequest) -> CAfterTurn {
    CAfterTurn {
        struct_size: size_of::<CAfterTurn>(),
        call: request.call.0,
        session: session(&request.session),
        from: request.entries.start,
        to: request.entries.end,
        budget: request.budget,
        provider_tokens: request.provider_tokens,
        is_heartbeat: u32::from(request.is_heartbeat),
        reserved: 0,
        now_ms: request.now_ms,
    }
}

pub(super) fn commit_turn(request: &CommitTurnRequest) -> CCommitTurn {
    CCommitTurn {
        struct_size: size_of::<CCommitTurn>(),
        call: request.call.0,
        session: session(&request.session),
        advancement_key: Str::of(&request.advancement_key),
        from: request.entries.start,
        to: request.entries.end,
    }
}

pub(super) fn maintain(request: &MaintainRequest) -> CMaintain {
    CMaintain {
        struct_size: size_of::<CMaintain>(),
        call: request.call.0,
        session: session(&request.session),
        reason: Str::of(&request.reason),
    }
}

pub(super) fn spawn(request: &SubagentSpawnRequest) -> CSpawn {
    CSpawn {
        struct_size: size_of::<CSpawn>(),
        call: request.call.0,
        parent: session(&request.parent),
        child: session(&request.child),
        ttl_ms: request.ttl_ms,
        context_mode: context_mode(request.context_mode),
        reserved: 0,
    }
}

pub(super) fn context_mode(mode: ContextMode) -> u32 {
    match mode {
        ContextMode::Isolated => 0,
        ContextMode::Fork => 1,
    }
}

pub(super) fn rollback(request: &SubagentRollbackRequest) -> CRollback {
    CRollback {
        struct_size: size_of::<CRollback>(),
        call: request.call.0,
        token: Str::of(&request.token),
    }
}

pub(super) fn spawn_end(request: &SubagentEndedRequest) -> CSpawnEnd {
    CSpawnEnd {
        struct_size: size_of::<CSpawnEnd>(),
        call: request.call.0,
        child: session(&request.child),
        reason: end(request.reason),
        reserved: 0,
    }
}

pub(super) fn end(end: SubagentEnd) -> u32 {
    match end {
        SubagentEnd::Unknown => 0,
        SubagentEnd::Completed => 1,
        SubagentEnd::Deleted => 2,
        SubagentEnd::Swept => 3,
        SubagentEnd::Released => 4,
    }
}

/// `arguments_json` must be the arguments of `request` as text.
pub(super) fn tool_request(request: &ToolCallRequest, arguments_json: &str) -> CToolRequest {
    CToolRequest {
        struct_size: size_of::<CToolRequest>(),
        call: request.call.0,
        session: session(&request.session),
        name: Str::of(&request.name),
        arguments_json: Str::of(arguments_json),
    }
}

/// Converts the number of an embedding's purpose from C.
pub(super) fn embed_purpose(number: u32) -> EmbedPurpose {
    match number {
        1 => EmbedPurpose::Query,
        2 => EmbedPurpose::Document,
        _ => EmbedPurpose::Other,
    }
}

/// Converts the number of a purpose from C.
pub(super) fn purpose(number: u32) -> Purpose {
    match number {
        1 => Purpose::Summary,
        2 => Purpose::MemoryFlush,
        3 => Purpose::Quality,
        _ => Purpose::Other,
    }
}

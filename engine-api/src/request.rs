//! Requests and replies of the calls.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The id of a running call, for progress, cancellation and deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u64);

/// The session of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRef {
    /// The id in the session file. Opaque; do not use it as a path.
    pub id: String,
    /// A name that outlives the file, such as `agent:main`; empty if unset.
    pub key: String,
}

/// The model of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelRef {
    /// Provider, such as `anthropic`; empty when unknown.
    pub provider: String,
    /// Model id as the provider writes it; empty when unknown.
    pub id: String,
    /// The whole context window, in provider tokens; 0 when unknown.
    pub window_tokens: u64,
}

/// New entries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IngestRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// Positions of the new entries in the transcript of the call.
    pub entries: Range<u64>,
    /// Whether they belong to a heartbeat instead of the user's conversation.
    pub is_heartbeat: bool,
}

/// The reply to [`IngestRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IngestReply {
    /// Number of entries ingested; 0 for a repeat or a no-op.
    pub entries: u64,
}

/// A request for the plan of the next model request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssembleRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// The size limit of the plan, in estimated tokens: window minus reserve, system prompt and tools, with the
    /// host's safety margin applied.
    pub budget: u64,
    /// The reserve for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// The prompt that is about to be answered, without what a client inserted; empty inside a tool loop.
    pub prompt: String,
    /// The model that will read it.
    pub model: ModelRef,
    /// Names of the tools the model may call.
    pub available_tools: Vec<String>,
    /// The host's clock, in milliseconds since 1970. Recorded time in a replay.
    pub now_ms: i64,
}

/// Why a compaction was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The next request would exceed its budget.
    #[default]
    Threshold,
    /// The provider rejected a request as too large.
    Overflow,
    /// The user asked for it.
    Manual,
    /// The provider timed out with a nearly full window.
    Timeout,
    /// The live transcript exceeded the host's limit in bytes (`compaction.max_live_bytes`).
    Bytes,
    /// A trigger of a newer host.
    #[serde(other)]
    Unknown,
}

impl Trigger {
    /// The name in reports and in the session file.
    pub const fn name(self) -> &'static str {
        match self {
            Trigger::Threshold => "threshold",
            Trigger::Overflow => "overflow",
            Trigger::Manual => "manual",
            Trigger::Timeout => "timeout",
            Trigger::Bytes => "bytes",
            Trigger::Unknown => "unknown",
        }
    }
}

/// A request to shrink the live transcript.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// The size limit of the result, in estimated tokens.
    pub budget: u64,
    /// The reserve for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// The current size of the live transcript, in estimated tokens.
    pub current_tokens: u64,
    /// The cause.
    pub trigger: Trigger,
    /// Compact even below every threshold.
    pub force: bool,
    /// The user's instructions for the summary. Untrusted text.
    pub custom_instructions: Option<String>,
    /// The model of the session.
    pub model: ModelRef,
    /// 1 for the first attempt; increases with each attempt that made too little progress.
    pub attempt: u32,
    /// The host's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A session starts, or is reopened, in this engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BootstrapRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
}

/// The reply to [`BootstrapRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootstrapReply {
    /// Number of entries imported from the transcript.
    pub imported: u64,
    /// The reason if nothing was imported.
    pub reason: Option<String>,
}

/// A turn succeeded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfterTurnRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// Positions of the turn's entries.
    pub entries: Range<u64>,
    /// The budget of the turn, in estimated tokens.
    pub budget: u64,
    /// Whether the turn was a heartbeat.
    pub is_heartbeat: bool,
    /// The provider's token count of the turn's last request; 0 if unknown.
    pub provider_tokens: u64,
    /// The host's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A turn is final. Sent at least once; the key identifies repeats.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitTurnRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// The idempotency key of the turn.
    pub advancement_key: String,
    /// Positions from the user's message to the final answer.
    pub entries: Range<u64>,
}

/// The reply to [`CommitTurnRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitTurnReply {
    /// The first commit of this key.
    #[default]
    Committed,
    /// A repeat.
    Duplicate,
}

/// A request for background maintenance.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MaintainRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// `bootstrap`, `turn` or `compaction`.
    pub reason: String,
}

/// The reply to [`MaintainRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MaintainReply {
    /// Whether anything changed.
    pub changed: bool,
    /// Bytes freed in the engine's storage.
    pub bytes_freed: u64,
    /// What changed, or why nothing did.
    pub reason: Option<String>,
}

/// How much of its parent's transcript a sub-agent reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextMode {
    /// Its task only.
    #[default]
    Isolated,
    /// A copy of the parent's transcript.
    Fork,
}

/// A sub-agent is about to start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubagentSpawnRequest {
    /// This call.
    pub call: CallId,
    /// The parent's session.
    pub parent: SessionRef,
    /// The child's session.
    pub child: SessionRef,
    /// How much of the parent's transcript the child reads.
    pub context_mode: ContextMode,
    /// How long to keep the preparation, in milliseconds; 0 for no limit.
    pub ttl_ms: u64,
}

/// The reply to [`SubagentSpawnRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubagentSpawnReply {
    /// Passed to `rollback_subagent_spawn` if the spawn fails; empty if there is nothing to roll back.
    pub token: String,
}

/// A prepared spawn failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubagentRollbackRequest {
    /// This call.
    pub call: CallId,
    /// The token of the preparation.
    pub token: String,
}

/// How a sub-agent ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubagentEnd {
    /// It finished its task.
    #[default]
    Completed,
    /// It was deleted.
    Deleted,
    /// It was removed after its time limit.
    Swept,
    /// The parent released it.
    Released,
    /// An end of a newer host.
    #[serde(other)]
    Unknown,
}

/// A sub-agent ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubagentEndedRequest {
    /// This call.
    pub call: CallId,
    /// The child's session.
    pub child: SessionRef,
    /// The cause.
    pub reason: SubagentEnd,
}

/// A tool that an engine offers to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolSpec {
    /// Name, `^[a-zA-Z0-9_-]{1,64}$`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of its arguments; the root is an object.
    pub input_schema: Value,
}

/// The model called one of the engine's tools.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolCallRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// The tool's name.
    pub name: String,
    /// Its arguments.
    pub arguments: Value,
}

/// The result of an engine's tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolAnswer {
    /// The text for the model.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
}

/// Counters of an engine, for users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStatus {
    /// One line of text; may be empty.
    pub summary: String,
    /// Number of compactions the engine made.
    pub compactions: u64,
    /// Further values as JSON.
    pub details: Value,
}

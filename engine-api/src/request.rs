//! What goes into each call and what comes out, with a unit on every number.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Names one running call, for progress, cancellation and deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u64);

/// The session a call is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRef {
    /// The id in the session file. Opaque: never a path.
    pub id: String,
    /// A name that outlives the file, such as `agent:main`; empty where the embedder gives none.
    pub key: String,
}

/// The model that will read the request.
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

/// New entries to take note of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IngestRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// Positions of the new entries in the transcript that comes with the call.
    pub entries: Range<u64>,
    /// Whether they belong to a heartbeat, not to the person's conversation.
    pub is_heartbeat: bool,
}

/// What became of the new entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IngestReply {
    /// How many were taken in; a repeat or a no-op counts 0.
    pub entries: u64,
}

/// Choose what the model sees in the next request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssembleRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// What the plan must fit into, in tokens as entries count them: window less reserve, system
    /// prompt and tools, with the host's safety margin already taken off.
    pub budget: u64,
    /// What is held free for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// The prompt that is about to be answered; empty inside a tool loop.
    pub prompt: String,
    /// The model that will read it.
    pub model: ModelRef,
    /// Names of the tools the model may call.
    pub available_tools: Vec<String>,
    /// The host's clock, in milliseconds since 1970. Recorded time in a replay.
    pub now_ms: i64,
}

/// Why a compaction is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The next request would not fit its budget.
    #[default]
    Threshold,
    /// The provider refused a request as too large.
    Overflow,
    /// A person asked for it.
    Manual,
    /// The provider took too long over a nearly full window.
    Timeout,
    /// The session file grew past its limit.
    Bytes,
    /// A trigger of a newer host.
    #[serde(other)]
    Unknown,
}

impl Trigger {
    /// The word used in reports and in the session file.
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

/// Make the live transcript smaller.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// What the result must fall below, in tokens as entries count them.
    pub budget: u64,
    /// What is held free for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// What the live transcript costs now, in tokens as entries count them.
    pub current_tokens: u64,
    /// Why.
    pub trigger: Trigger,
    /// Compact even below every threshold.
    pub force: bool,
    /// What a person asked the summary to look after. Untrusted text.
    pub custom_instructions: Option<String>,
    /// The model of the session.
    pub model: ModelRef,
    /// 1 for the first try at this pressure, rising with each that made too little progress.
    pub attempt: u32,
    /// The host's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A session begins, or is opened again, in this engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BootstrapRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
}

/// What bootstrap took over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootstrapReply {
    /// Entries taken over from the transcript.
    pub imported: u64,
    /// Why not, where nothing was.
    pub reason: Option<String>,
}

/// A turn has ended well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfterTurnRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// Positions of the turn's entries.
    pub entries: Range<u64>,
    /// The budget of the turn, in tokens as entries count them.
    pub budget: u64,
    /// Whether the turn was a heartbeat.
    pub is_heartbeat: bool,
    /// What the provider counted for the turn's last request; 0 when it did not say.
    pub provider_tokens: u64,
    /// The host's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A turn is final. Comes at least once; the key makes a repeat recognisable.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitTurnRequest {
    /// This call.
    pub call: CallId,
    /// Its session.
    pub session: SessionRef,
    /// The same for every repeat of the same turn, different for every other turn.
    pub advancement_key: String,
    /// Positions from the user's message to the final answer.
    pub entries: Range<u64>,
}

/// Whether a commit was the first of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitTurnReply {
    /// Taken in now.
    #[default]
    Committed,
    /// Already taken in.
    Duplicate,
}

/// There is time for housekeeping.
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

/// What housekeeping did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MaintainReply {
    /// Whether anything changed.
    pub changed: bool,
    /// Bytes of the engine's own storage that were freed.
    pub bytes_freed: u64,
    /// Why nothing changed, or what did.
    pub reason: Option<String>,
}

/// How much of its parent a sub-agent sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextMode {
    /// Nothing but its task.
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
    /// What the child sees.
    pub context_mode: ContextMode,
    /// How long the preparation is worth keeping, in milliseconds; 0 for ever.
    pub ttl_ms: u64,
}

/// What a spawn prepared. Empty where nothing needs to be rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubagentSpawnReply {
    /// Handed back to `rollback_subagent_spawn` when the spawn fails.
    pub token: String,
}

/// A prepared spawn failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubagentRollbackRequest {
    /// This call.
    pub call: CallId,
    /// What the preparation answered.
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
    /// It was swept up after its time.
    Swept,
    /// The parent let go of it.
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
    /// How.
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

/// What an engine's tool answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolAnswer {
    /// The text of the result.
    pub text: String,
    /// Whether it is a failure.
    pub is_error: bool,
}

/// What an engine says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStatus {
    /// One line for a person; empty where there is nothing to say.
    pub summary: String,
    /// Compactions the engine made by itself.
    pub compactions: u64,
    /// Whatever else is worth a look.
    pub details: Value,
}

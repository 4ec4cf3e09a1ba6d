//! The engine as it crosses: the object, its hot requests, the plan, and the module that makes it.

use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::package_version_strings;
use abi_stable::sabi_trait;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RArc, RResult, RString, RVec};
use async_ffi::FfiFuture;
use serde::{Deserialize, Serialize};

use super::host::{AbiError, AbiFuture, AbiHost_TO, from_json};
use super::view::AbiTranscript_TO;
use crate::error::{EngineError, ErrorKind, Result};
use crate::plan::{Action, Compaction, Note, Op, Plan, PlanExtras};
use crate::request::{AssembleRequest, CallId, IngestRequest, Ingested, ModelRef, SessionRef};
use crate::transcript::Role;

/// The raw transcript handle, as a parameter.
pub(crate) type AbiView = AbiTranscript_TO<RArc<()>>;
/// The raw host handle, as a parameter.
pub(crate) type AbiServices = AbiHost_TO<RArc<()>>;
/// The raw engine handle.
pub(crate) type AbiEngineObj = AbiEngine_TO<RArc<()>>;

/// The engine as it crosses. Hot calls are typed, cold ones carry JSON of `request.rs`.
#[sabi_trait]
pub trait AbiEngine: Send + Sync + 'static {
    fn bootstrap(&self, view: AbiView, request_json: RString) -> AbiFuture<RString>;
    fn ingest(&self, view: AbiView, request: AbiIngest) -> AbiFuture<u64>;
    fn ingest_batch(&self, view: AbiView, request: AbiIngest) -> AbiFuture<u64>;
    fn assemble(&self, view: AbiView, request: AbiAssemble) -> AbiFuture<AbiPlan>;
    fn compact(&self, view: AbiView, request_json: RString) -> AbiFuture<AbiPlan>;
    fn after_turn(&self, view: AbiView, request_json: RString) -> AbiFuture<()>;
    fn commit_turn(&self, view: AbiView, request_json: RString) -> AbiFuture<RString>;
    fn maintain(&self, view: AbiView, request_json: RString) -> AbiFuture<RString>;
    fn prepare_subagent_spawn(&self, view: AbiView, request_json: RString) -> AbiFuture<RString>;
    fn rollback_subagent_spawn(&self, request_json: RString) -> AbiFuture<()>;
    fn on_subagent_ended(&self, request_json: RString) -> AbiFuture<()>;
    fn tools(&self, session_json: RString) -> RResult<RString, AbiError>;
    fn call_tool(&self, view: AbiView, request_json: RString) -> AbiFuture<RString>;
    fn status(&self) -> RResult<RString, AbiError>;
    #[sabi(last_prefix_field)]
    fn dispose(&self) -> FfiFuture<()>;
    // ABI growth: a call of a later minor stands here, with a default body that degrades safely.
}

/// What a library exports.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EngineModuleRef, prefix_fields = EngineModulePrefix)))]
#[sabi(missing_field(panic))]
pub struct EngineModule {
    /// `EngineInfo` as JSON.
    pub info: extern "C" fn() -> RString,
    /// Builds the one engine of the library from the host's services and its config as JSON.
    #[sabi(last_prefix_field)]
    pub create: extern "C" fn(AbiServices, RString) -> RResult<AbiEngineObj, AbiError>,
}

impl RootModule for EngineModuleRef {
    abi_stable::declare_root_module_statics! {EngineModuleRef}
    const BASE_NAME: &'static str = "ctxhost_engine";
    const NAME: &'static str = "ctxhost_engine";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

/// New entries, as they cross. Frozen within the major.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiIngest {
    call: u64,
    from: u64,
    to: u64,
    /// Bit 0: heartbeat.
    flags: u64,
    session_id: RString,
    session_key: RString,
    ext_json: RString,
}

/// An assemble request, as it crosses. Frozen within the major.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiAssemble {
    call: u64,
    budget: u64,
    reserve_tokens: u64,
    window_tokens: u64,
    now_ms: i64,
    session_id: RString,
    session_key: RString,
    prompt: RString,
    provider: RString,
    model: RString,
    tools: RVec<RString>,
    ext_json: RString,
}

/// One operation of a plan, as it crosses. Frozen within the major; kinds are numbers.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiOp {
    kind: u32,
    role: u8,
    a: u64,
    b: u64,
    text: RString,
    /// The operation's note as JSON; empty for none.
    ext_json: RString,
}

/// A plan, as it crosses. Frozen within the major.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiPlan {
    ops: RVec<AbiOp>,
    estimated_tokens: u64,
    /// The extras as JSON; empty for none.
    ext_json: RString,
}

const KEEP: u32 = 1;
const REPLACE_TEXT: u32 = 2;
const REPLACE_RAW: u32 = 3;
const INSERT: u32 = 4;
const DROP: u32 = 5;

const HEARTBEAT: u64 = 1;

impl From<IngestRequest> for AbiIngest {
    fn from(request: IngestRequest) -> Self {
        AbiIngest {
            call: request.call.0,
            from: request.entries.start,
            to: request.entries.end,
            flags: if request.is_heartbeat { HEARTBEAT } else { 0 },
            session_id: request.session.id.into(),
            session_key: request.session.key.into(),
            ext_json: RString::new(),
        }
    }
}

impl From<AbiIngest> for IngestRequest {
    fn from(raw: AbiIngest) -> Self {
        IngestRequest {
            call: CallId(raw.call),
            session: session(raw.session_id, raw.session_key),
            entries: raw.from..raw.to,
            is_heartbeat: raw.flags & HEARTBEAT != 0,
        }
    }
}

impl From<u64> for Ingested {
    fn from(entries: u64) -> Self {
        Ingested { entries }
    }
}

impl From<AssembleRequest> for AbiAssemble {
    fn from(request: AssembleRequest) -> Self {
        AbiAssemble {
            call: request.call.0,
            budget: request.budget,
            reserve_tokens: request.reserve_tokens,
            window_tokens: request.model.window_tokens,
            now_ms: request.now_ms,
            session_id: request.session.id.into(),
            session_key: request.session.key.into(),
            prompt: request.prompt.into(),
            provider: request.model.provider.into(),
            model: request.model.id.into(),
            tools: request.available_tools.into_iter().map(RString::from).collect(),
            ext_json: RString::new(),
        }
    }
}

impl From<AbiAssemble> for AssembleRequest {
    fn from(raw: AbiAssemble) -> Self {
        AssembleRequest {
            call: CallId(raw.call),
            session: session(raw.session_id, raw.session_key),
            budget: raw.budget,
            reserve_tokens: raw.reserve_tokens,
            prompt: raw.prompt.into_string(),
            model: ModelRef {
                provider: raw.provider.into_string(),
                id: raw.model.into_string(),
                window_tokens: raw.window_tokens,
            },
            available_tools: raw.tools.into_iter().map(RString::into_string).collect(),
            now_ms: raw.now_ms,
        }
    }
}

fn session(id: RString, key: RString) -> SessionRef {
    SessionRef { id: id.into_string(), key: key.into_string() }
}

/// The extras of a plan with what `compact` says beside it.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct WireExtras {
    #[serde(flatten)]
    extras: PlanExtras,
    /// Empty for a plan, else `delegate` or `nothing`.
    #[serde(skip_serializing_if = "String::is_empty")]
    outcome: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl From<Plan> for AbiPlan {
    fn from(plan: Plan) -> Self {
        let wire = WireExtras { extras: plan.extras, ..WireExtras::default() };
        AbiPlan {
            ops: plan.ops.into_iter().map(AbiOp::from).collect(),
            estimated_tokens: plan.estimated_tokens,
            ext_json: encode_extras(&wire),
        }
    }
}

impl From<Compaction> for AbiPlan {
    fn from(compaction: Compaction) -> Self {
        let (outcome, reason) = match compaction {
            Compaction::Plan(plan) => return plan.into(),
            Compaction::Delegate => ("delegate", String::new()),
            Compaction::Nothing { reason } => ("nothing", reason),
        };
        let wire = WireExtras { outcome: outcome.into(), reason, ..WireExtras::default() };
        AbiPlan { ops: RVec::new(), estimated_tokens: 0, ext_json: encode_extras(&wire) }
    }
}

impl AbiPlan {
    pub(crate) fn into_plan(self) -> Result<Plan> {
        Ok(self.decode()?.0)
    }

    pub(crate) fn into_compaction(self) -> Result<Compaction> {
        let (plan, outcome, reason) = self.decode()?;
        match outcome.as_str() {
            "" => Ok(Compaction::Plan(plan)),
            "delegate" => Ok(Compaction::Delegate),
            "nothing" => Ok(Compaction::Nothing { reason }),
            other => Err(EngineError::new(
                ErrorKind::Protocol,
                format!("compact answered the unknown outcome {other:?}"),
            )),
        }
    }

    fn decode(self) -> Result<(Plan, String, String)> {
        let wire = match self.ext_json.as_str() {
            "" => WireExtras::default(),
            json => from_json(json)?,
        };
        let ops = self.ops.into_iter().map(Op::from).collect();
        let plan = Plan { ops, estimated_tokens: self.estimated_tokens, extras: wire.extras };
        Ok((plan, wire.outcome, wire.reason))
    }
}

fn encode_extras(wire: &WireExtras) -> RString {
    if *wire == WireExtras::default() { RString::new() } else { super::host::to_json(wire) }
}

impl From<Op> for AbiOp {
    fn from(op: Op) -> Self {
        let range = op.action.range();
        let (kind, role, text) = match op.action {
            Action::Keep(_) => (KEEP, Role::Unknown, String::new()),
            Action::ReplaceText { text, .. } => (REPLACE_TEXT, Role::Unknown, text),
            Action::ReplaceRaw { raw, .. } => (REPLACE_RAW, Role::Unknown, raw),
            Action::Insert { role, text, .. } => (INSERT, role, text),
            Action::Drop(_) => (DROP, Role::Unknown, String::new()),
            Action::Unknown(kind) => (kind, Role::Unknown, String::new()),
        };
        AbiOp {
            kind,
            role: role.code(),
            a: range.start,
            b: range.end,
            text: text.into(),
            ext_json: op.note.as_ref().map_or_else(RString::new, super::host::to_json),
        }
    }
}

impl From<AbiOp> for Op {
    fn from(raw: AbiOp) -> Self {
        let text = raw.text.into_string();
        let range = raw.a..raw.b;
        let action = match raw.kind {
            KEEP => Action::Keep(range),
            REPLACE_TEXT => Action::ReplaceText { seq: raw.a, text },
            REPLACE_RAW => Action::ReplaceRaw { seq: raw.a, raw: text },
            INSERT => Action::Insert { role: Role::from_code(raw.role), text, covers: range },
            DROP => Action::Drop(range),
            other => Action::Unknown(other),
        };
        // A note is for people only: one that does not parse is no reason to refuse the plan.
        let note = from_json::<Note>(raw.ext_json.as_str()).ok();
        Op { action, note }
    }
}

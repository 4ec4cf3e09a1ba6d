//! The contract of a context engine: the trait, its lifecycle and its limits.

use std::future::Future;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{EngineError, ErrorKind, Result};
use crate::host::Host;
use crate::plan::{Compaction, Plan};
use crate::request::*;
use crate::transcript::Transcript;

/// The longest id, in bytes.
const ID_BYTES: usize = 64;

/// The static description of an engine.
///
/// It is a constant so that the host can read it from the library file without loading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The id: slot value, file name, metric label. `^[a-z0-9][a-z0-9-]{0,63}$`.
    pub id: &'static str,
    /// The display name.
    pub name: &'static str,
    /// Semantic version of the engine.
    pub version: &'static str,
    /// The engine keeps every assembled plan within its budget by itself. The host does not call `compact`
    /// because a plan is too large, only for the other reasons: manual, overflow, timeout, size, and
    /// `compaction_wanted` of a plan.
    pub owns_compaction: bool,
    /// Host capabilities without which the engine cannot work; see [`capability`].
    pub requires: &'static [&'static str],
}

/// Whether a text is a valid [`Info::id`]. Ids become parts of paths, so the host checks the id of a
/// library before it uses it.
pub fn is_engine_id(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let begins = text.bytes().next().is_some_and(word);
    begins && text.len() <= ID_BYTES && text.bytes().all(|byte| word(byte) || byte == b'-')
}

impl Info {
    /// An engine without requirements that lets the host decide when to compact.
    pub const fn new(id: &'static str, name: &'static str, version: &'static str) -> Self {
        Info { id, name, version, owns_compaction: false, requires: &[] }
    }

    /// Sets [`owns_compaction`](Self::owns_compaction).
    #[must_use]
    pub const fn owning_compaction(mut self) -> Self {
        self.owns_compaction = true;
        self
    }

    /// Sets [`requires`](Self::requires).
    #[must_use]
    pub const fn requiring(mut self, capabilities: &'static [&'static str]) -> Self {
        self.requires = capabilities;
        self
    }
}

/// [`Info`] of a loaded library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineInfo {
    /// See [`Info::id`].
    pub id: String,
    /// See [`Info::name`].
    pub name: String,
    /// See [`Info::version`].
    pub version: String,
    /// See [`Info::owns_compaction`].
    pub owns_compaction: bool,
    /// See [`Info::requires`].
    pub requires: Vec<String>,
}

impl From<Info> for EngineInfo {
    fn from(info: Info) -> Self {
        EngineInfo {
            id: info.id.into(),
            name: info.name.into(),
            version: info.version.into(),
            owns_compaction: info.owns_compaction,
            requires: info.requires.iter().map(|&name| name.into()).collect(),
        }
    }
}

/// Names of host capabilities, for [`Info::requires`] and [`HostInfo`](crate::HostInfo).
pub mod capability {
    /// [`Host::complete`](crate::Host::complete) reaches a model.
    pub const COMPLETE: &str = "model.complete";
    /// The key-value store.
    pub const KV: &str = "kv";
    /// The blob store.
    pub const BLOB: &str = "blob";
    /// [`Host::history`](crate::Host::history) reads entries that compactions removed.
    pub const HISTORY: &str = "history";
    /// [`Host::prompt_cache`](crate::Host::prompt_cache) has telemetry.
    pub const PROMPT_CACHE: &str = "prompt_cache";
    /// [`Host::delegate_compact`](crate::Host::delegate_compact) and
    /// [`Compaction::Delegate`](crate::Compaction::Delegate).
    pub const DELEGATE_COMPACT: &str = "compact.delegate";
    /// [`Host::spawn`](crate::Host::spawn).
    pub const SPAWN: &str = "spawn";
    /// [`Host::embed`](crate::Host::embed) reaches a model.
    pub const EMBED: &str = "model.embed";
}

/// A strategy that selects what a model reads.
///
/// # Lifecycle
///
/// 1. The host reads [`INFO`](Self::INFO) from the library file without running it.
/// 2. It loads the library and calls [`create`](Self::create) once, with the engine's config.
/// 3. When a session starts or is reopened: [`bootstrap`](Self::bootstrap).
/// 4. For each new entry or batch of entries: [`ingest`](Self::ingest) or
///    [`ingest_batch`](Self::ingest_batch).
/// 5. Before every request to the model: [`assemble`](Self::assemble). The host enforces its invariants on
///    the plan and sends the result.
/// 6. When the plan does not fit, a provider reports an overflow or the user asks:
///    [`compact`](Self::compact).
/// 7. After a successful turn: [`after_turn`](Self::after_turn), then [`commit_turn`](Self::commit_turn),
///    then, in the background, [`maintain`](Self::maintain).
/// 8. At the end: [`dispose`](Self::dispose), when no other call runs. Services answer
///    [`ErrorKind::Dead`] afterwards.
///
/// # Threads
///
/// One engine serves all sessions. Calls for different sessions may run at the same time on any
/// thread; calls for one session never overlap. A future may be polled from any thread. A library has no
/// tokio context: use [`Host::sleep`] and [`Host::spawn`].
///
/// # Errors and panics
///
/// A panic is an error of kind [`ErrorKind::Panicked`], a timeout one of kind [`ErrorKind::Deadline`]. The
/// effect of an error depends on the call:
///
/// | call | effect of an error |
/// |---|---|
/// | `create` | the engine is not used: the bundled one serves, or opening fails, as configured with `on_engine_error` |
/// | `bootstrap`, `ingest`, `assemble`, `after_turn`, `commit_turn`, `maintain`, `tools`, `on_subagent_ended` | quarantine: the bundled engine answers this call and all later ones, or the turn fails, as configured |
/// | `compact` | the compaction is rejected and counted by the circuit breaker, without a fallback; an error of kind `Failed`, `Panicked`, `Deadline`, `Protocol` or `Dead` also quarantines the engine from the next call on. To decline a compaction, return [`Compaction::Nothing`] |
/// | `prepare_subagent_spawn` | the spawn is cancelled; quarantine as for `compact` |
/// | `call_tool` | the model reads the message as the tool's failure |
/// | `status`, `rollback_subagent_spawn`, `dispose` | the error is logged |
///
/// In the second row three kinds are not failures: [`ErrorKind::WindowTooSmall`] requests the next model,
/// [`ErrorKind::CannotFit`] and [`ErrorKind::Cancelled`] end the request without quarantine. A plan that
/// violates an invariant counts as an error of `assemble`. An engine cannot change or lose entries of the
/// session.
///
/// # Time limits
///
/// | call | default limit |
/// |---|---|
/// | `create`, `assemble` | 5 s |
/// | `bootstrap` | 10 s |
/// | `ingest`, `ingest_batch`, `tools`, `status`, sub-agent calls, `dispose` | 2 s |
/// | `after_turn`, `commit_turn`, `maintain`, `call_tool` | 60 s |
/// | `compact` | 300 s without [`Host::progress`], 900 s in total |
///
/// At the limit the host drops the future, which ends an engine that awaits. A long computation must poll
/// [`Host::is_cancelled`]; otherwise it keeps its thread, which the host counts as lost. `ingest` and
/// `assemble` delay every request: move slow work to `maintain`, `compact` or [`Host::spawn`].
pub trait ContextEngine: Send + Sync + Sized + 'static {
    /// The description of the engine.
    const INFO: Info;

    /// Creates the engine. `config` is the table `[plugins.entries.<id>.config]`, `{}` by default.
    ///
    /// # Errors
    ///
    /// [`EngineError::config`] for a wrong setting: the host reports its line and does not use the engine.
    fn create(host: Host, config: Value) -> Result<Self>;

    /// A session starts, is reopened, or is taken over from another engine. May be called several times.
    /// [`ingest_batch`](Self::ingest_batch) follows with the entries that exist already.
    fn bootstrap(
        &self,
        _transcript: Transcript,
        _request: BootstrapRequest,
    ) -> impl Future<Output = Result<BootstrapReply>> + Send {
        async { Ok(BootstrapReply::default()) }
    }

    /// Receives new entries. The same range may be repeated after a restart or a lost reply and must then
    /// change nothing. An engine that computes every plan from the transcript does not need it.
    fn ingest(
        &self,
        _transcript: Transcript,
        _request: IngestRequest,
    ) -> impl Future<Output = Result<IngestReply>> + Send {
        async { Ok(IngestReply::default()) }
    }

    /// Receives many entries at once, such as the history of a reopened session. By default the same as
    /// [`ingest`](Self::ingest).
    fn ingest_batch(
        &self,
        transcript: Transcript,
        request: IngestRequest,
    ) -> impl Future<Output = Result<IngestReply>> + Send {
        self.ingest(transcript, request)
    }

    /// Selects what the model reads in the next request.
    ///
    /// Called before every request: once per turn and again after each tool round. Entries that the plan
    /// leaves out are hidden from this request only.
    ///
    /// # What the host does with the plan
    ///
    /// It rejects positions out of order or range, widens a cut between a call and its result, reinserts
    /// pinned entries, the newest user message and the live tool round, and counts tokens. Over
    /// `request.budget`, it calls [`compact`](Self::compact) and `assemble` again, at most three times. An
    /// engine with [`owns_compaction`](Info::owns_compaction) is called again with a budget reduced by the
    /// cost of the reinserted entries instead. If the plan still does not fit, the host's emergency trim
    /// shapes the request. [`Plan`] lists rejections and repairs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WindowTooSmall`] makes the host try the next model of its list.
    fn assemble(
        &self,
        transcript: Transcript,
        request: AssembleRequest,
    ) -> impl Future<Output = Result<Plan>> + Send;

    /// Shrinks the live transcript permanently.
    ///
    /// The plan starts a new epoch and is recorded in the session, which keeps every entry. The host rejects
    /// it unless the measured size is below `request.budget` by a margin (5 % by default); three rejections in
    /// a row stop all compactions for ten minutes. Insert a summary as [`Role::User`](crate::Role::User) with
    /// [`Plan::insert`] and the range that it covers.
    /// This method has no default: return [`Compaction::Delegate`] to use the bundled engine.
    ///
    /// # Errors
    ///
    /// Any error leaves the session unchanged and is returned to the caller of the compaction.
    fn compact(
        &self,
        transcript: Transcript,
        request: CompactRequest,
    ) -> impl Future<Output = Result<Compaction>> + Send;

    /// A turn succeeded. Not called after an error or an abort.
    fn after_turn(
        &self,
        _transcript: Transcript,
        _request: AfterTurnRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// A turn is final. Called at least once for each turn: a repeat has the same
    /// [`advancement_key`](CommitTurnRequest::advancement_key) and must change nothing.
    fn commit_turn(
        &self,
        _transcript: Transcript,
        _request: CommitTurnRequest,
    ) -> impl Future<Output = Result<CommitTurnReply>> + Send {
        async { Ok(CommitTurnReply::Committed) }
    }

    /// Background maintenance after the answer was sent. One call at a time for each session; the next turn
    /// may cancel it.
    fn maintain(
        &self,
        _transcript: Transcript,
        _request: MaintainRequest,
    ) -> impl Future<Output = Result<MaintainReply>> + Send {
        async { Ok(MaintainReply::default()) }
    }

    /// A sub-agent is about to start. `transcript` is that of the parent.
    ///
    /// # Errors
    ///
    /// Any error stops the spawn.
    fn prepare_subagent_spawn(
        &self,
        _transcript: Transcript,
        _request: SubagentSpawnRequest,
    ) -> impl Future<Output = Result<SubagentSpawnReply>> + Send {
        async { Ok(SubagentSpawnReply::default()) }
    }

    /// A prepared spawn failed: undo the preparation.
    fn rollback_subagent_spawn(
        &self,
        _request: SubagentRollbackRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// A sub-agent ended.
    fn on_subagent_ended(
        &self,
        _request: SubagentEndedRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// The tools this engine offers to the model of a session, such as a search over compacted entries.
    /// Called before requests; the settings `tools.allow` and `tools.deny` filter them.
    fn tools(&self, _session: SessionRef) -> Vec<ToolSpec> {
        Vec::new()
    }

    /// The model called one of [`tools`](Self::tools).
    fn call_tool(
        &self,
        _transcript: Transcript,
        request: ToolCallRequest,
    ) -> impl Future<Output = Result<ToolAnswer>> + Send {
        let message = format!("engine {} has no tool {:?}", Self::INFO.id, request.name);
        async { Err(EngineError::new(ErrorKind::Unsupported, message)) }
    }

    /// Counters for users. Must return quickly.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// Releases all resources. Called once, when no other call runs, with a limit of 2 s. Do not rely on it
    /// to save state: a killed process does not call it.
    fn dispose(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

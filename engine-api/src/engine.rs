//! The contract: what a context engine is and when the host calls it.

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

/// What an engine is, known before it runs.
///
/// A constant, so that the host reads it out of the library file without loading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The one name: slot value, file name, metric label. `^[a-z0-9][a-z0-9-]{0,63}$`.
    pub id: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// Semantic version of the engine.
    pub version: &'static str,
    /// The engine keeps every assembled plan within its budget by itself; the host does not ask it
    /// to compact, except by hand or after a provider's overflow.
    pub owns_compaction: bool,
    /// Names of host capabilities without which the engine cannot work; see [`capability`].
    pub requires: &'static [&'static str],
}

/// Whether a text is the id of an engine by the rule of [`Info::id`]. Ids become parts of paths, so what
/// a library calls itself is held against the rule before it is used.
pub fn is_engine_id(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let begins = text.bytes().next().is_some_and(word);
    begins && text.len() <= ID_BYTES && text.bytes().all(|byte| word(byte) || byte == b'-')
}

impl Info {
    /// An engine that needs nothing and lets the host decide when to compact.
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

/// [`Info`] as it comes out of a loaded library.
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

/// Names of what a host can do, for [`Info::requires`] and [`HostInfo`](crate::HostInfo).
pub mod capability {
    /// [`Host::complete`](crate::Host::complete) reaches a model.
    pub const COMPLETE: &str = "model.complete";
    /// The key-value store.
    pub const KV: &str = "kv";
    /// The blob store.
    pub const BLOB: &str = "blob";
    /// [`Host::history`](crate::Host::history) reads what compactions folded away.
    pub const HISTORY: &str = "history";
    /// [`Host::prompt_cache`](crate::Host::prompt_cache) has telemetry.
    pub const PROMPT_CACHE: &str = "prompt_cache";
    /// [`Host::delegate_compact`](crate::Host::delegate_compact) and
    /// [`Compaction::Delegate`](crate::Compaction::Delegate).
    pub const DELEGATE_COMPACT: &str = "compact.delegate";
    /// [`Host::spawn`](crate::Host::spawn).
    pub const SPAWN: &str = "spawn";
}

/// A strategy for what a model remembers.
///
/// # Lifecycle
///
/// 1. The host reads [`INFO`](Self::INFO) out of the library, without running anything.
/// 2. It loads the library and calls [`create`](Self::create) once, with the engine's own config.
/// 3. When a session begins or is opened again: [`bootstrap`](Self::bootstrap).
/// 4. For every new entry, or for several at once: [`ingest`](Self::ingest) or
///    [`ingest_batch`](Self::ingest_batch).
/// 5. Before every request to the model: [`assemble`](Self::assemble). The host checks the plan
///    against its law and sends what it says.
/// 6. When the plan does not fit, a provider overflows or a person asks: [`compact`](Self::compact).
/// 7. When a turn has ended well: [`after_turn`](Self::after_turn), then
///    [`commit_turn`](Self::commit_turn), then, in the background, [`maintain`](Self::maintain).
/// 8. At the end: [`dispose`](Self::dispose), last and alone. Services answer
///    [`ErrorKind::Dead`] from then on.
///
/// # Threads
///
/// One engine serves all sessions. Calls for different sessions may run at the same time on any
/// thread; calls for one session never overlap. A future may be polled from any thread. There is no
/// tokio context inside a library: use [`Host::sleep`] and [`Host::spawn`].
///
/// # Errors and panics
///
/// A panic is an error of kind [`ErrorKind::Panicked`], a late answer one of kind
/// [`ErrorKind::Deadline`]. What an error does depends on the call:
///
/// | call | what an error does |
/// |---|---|
/// | `create` | the engine is not used: the bundled one serves, or opening fails, as the operator configured with `on_engine_error` |
/// | `bootstrap`, `ingest`, `assemble`, `after_turn`, `commit_turn`, `maintain`, `tools`, `on_subagent_ended` | quarantine: the bundled engine answers this call and all later ones, or the turn fails, as configured |
/// | `compact` | the compaction is rejected and counted by the circuit breaker, nobody stands in; a panic, a deadline or nonsense is quarantine from the next call on |
/// | `prepare_subagent_spawn` | the spawn does not happen |
/// | `call_tool` | the model reads the message as the tool's failure |
/// | `status`, `rollback_subagent_spawn`, `dispose` | it is logged or shown |
///
/// Of the second row three kinds are answers, not failures: [`ErrorKind::WindowTooSmall`] asks for the
/// next model, [`ErrorKind::CannotFit`] and [`ErrorKind::Cancelled`] end the request and nobody is to
/// blame. A plan that the host's law refuses counts like an error of `assemble`. Nothing an engine does
/// can change or lose what is in the session.
///
/// # Time
///
/// | call | limit by default |
/// |---|---|
/// | `create`, `assemble` | 5 s |
/// | `bootstrap` | 10 s |
/// | `ingest`, `ingest_batch`, `tools`, `status`, sub-agent calls, `dispose` | 2 s |
/// | `after_turn`, `commit_turn`, `maintain`, `call_tool` | 60 s |
/// | `compact` | 300 s without [`Host::progress`], 900 s in all |
///
/// When a limit is over the host drops the future: an engine that awaits is gone at once. A loop that
/// computes asks [`Host::is_cancelled`] now and then; one that does neither keeps its thread, and the
/// host counts it as lost. `ingest` and `assemble` stand on the way of every request: what takes long
/// belongs into `maintain`, `compact` or [`Host::spawn`].
pub trait ContextEngine: Send + Sync + Sized + 'static {
    /// What the engine is.
    const INFO: Info;

    /// Builds the engine. `config` is the table `[plugins.entries.<id>.config]`, `{}` where there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`EngineError::config`] for a setting that is wrong: the host shows its line. The engine is
    /// then not used.
    fn create(host: Host, config: Value) -> Result<Self>;

    /// A session begins in this engine, or is opened again. May be called several times, also when the
    /// engine takes over from another one in the middle of a session. What is in the transcript already
    /// comes with [`ingest_batch`](Self::ingest_batch) directly afterwards.
    fn bootstrap(
        &self,
        _transcript: Transcript,
        _request: BootstrapRequest,
    ) -> impl Future<Output = Result<BootstrapReply>> + Send {
        async { Ok(BootstrapReply::default()) }
    }

    /// Takes note of new entries. The same range may come again after a restart or a lost answer, and must
    /// then change nothing. An engine that works every plan out of the transcript needs none of it.
    fn ingest(
        &self,
        _transcript: Transcript,
        _request: IngestRequest,
    ) -> impl Future<Output = Result<IngestReply>> + Send {
        async { Ok(IngestReply::default()) }
    }

    /// Takes note of many entries at once: the history of a session that is opened. By default
    /// the same as [`ingest`](Self::ingest).
    fn ingest_batch(
        &self,
        transcript: Transcript,
        request: IngestRequest,
    ) -> impl Future<Output = Result<IngestReply>> + Send {
        self.ingest(transcript, request)
    }

    /// Chooses what the model sees in the next request.
    ///
    /// Called before every request: once per turn and again after each round of tools. What is left
    /// out is only hidden; the session keeps it.
    ///
    /// # What the host does with the answer
    ///
    /// Refuses a plan with positions out of order or out of range, widens a cut that would separate
    /// a call from its result, puts back what may never go (pinned entries, the newest user message,
    /// the live tool round) and counts. Over `request.budget`, it asks for
    /// [`compact`](Self::compact) and assembles again, three times at most. An engine with
    /// [`owns_compaction`](Info::owns_compaction) is asked again with a smaller budget instead: by as much
    /// as what was put back costs. What fits after none of this is shaped by the host's own last rung.
    /// The table of refusals and repairs stands at [`Plan`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WindowTooSmall`] makes the host try the next model of its list.
    fn assemble(
        &self,
        transcript: Transcript,
        request: AssembleRequest,
    ) -> impl Future<Output = Result<Plan>> + Send;

    /// Makes the live transcript smaller, for good.
    ///
    /// The plan is applied as a new epoch and recorded in the session, which keeps every entry. It
    /// counts only if the measured size falls below `request.budget` by the host's margin (5 % of it unless
    /// the operator says otherwise); one that grows or hardly helps is rejected, and three of those in a row
    /// stop all compactions for ten minutes. Write a summary as [`Role::User`](crate::Role::User) with
    /// [`Plan::insert`] and let it cover what it stands for.
    /// There is no default: an engine that has no compaction of its own answers
    /// [`Compaction::Delegate`].
    ///
    /// # Errors
    ///
    /// Any error leaves the session as it was and goes to whoever asked for the compaction.
    fn compact(
        &self,
        transcript: Transcript,
        request: CompactRequest,
    ) -> impl Future<Output = Result<Compaction>> + Send;

    /// A turn has ended well. Not called after an error or an abort.
    fn after_turn(
        &self,
        _transcript: Transcript,
        _request: AfterTurnRequest,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// A turn is final. Comes at least once for each turn: a repeat has the same
    /// [`advancement_key`](CommitTurnRequest::advancement_key) and must change nothing.
    fn commit_turn(
        &self,
        _transcript: Transcript,
        _request: CommitTurnRequest,
    ) -> impl Future<Output = Result<CommitTurnReply>> + Send {
        async { Ok(CommitTurnReply::Committed) }
    }

    /// There is time for housekeeping: the answer is out and nobody waits. Runs in the background, one at
    /// a time for each session, and may be given up for the next turn.
    fn maintain(
        &self,
        _transcript: Transcript,
        _request: MaintainRequest,
    ) -> impl Future<Output = Result<MaintainReply>> + Send {
        async { Ok(MaintainReply::default()) }
    }

    /// A sub-agent is about to start. `transcript` is the parent's.
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

    /// The spawn that was prepared failed; undo the preparation.
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

    /// The tools this engine offers to the model of a session, for instance to look up what a
    /// compaction folded away. Asked before requests; the operator's `tools.allow` and `tools.deny` decide
    /// which of them the model is shown.
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

    /// What the engine says of itself to a person who asks. A look at counters, not work.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// Lets go of everything. Called once, last and alone, with 2 seconds to spare. What must be kept has
    /// been kept before: a process that is killed calls nothing.
    fn dispose(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

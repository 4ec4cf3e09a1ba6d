//! ABI types of the engine: the object, its frequent requests, and the root module.

use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::package_version_strings;
use abi_stable::sabi_trait;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RArc, RResult, RString, RVec};
use async_ffi::FfiFuture;

use super::host::{AbiError, AbiFuture, AbiHost_TO};
use super::json::AbiCodec;
use super::plan::AbiPlan;
use super::view::AbiTranscript_TO;
use crate::error::Result;
use crate::request::{AssembleRequest, CallId, IngestReply, IngestRequest, ModelRef, SessionRef};

/// The raw transcript handle, as a parameter.
pub(crate) type AbiView = AbiTranscript_TO<RArc<()>>;
/// The raw host handle, as a parameter.
pub(crate) type AbiServices = AbiHost_TO<RArc<()>>;
/// The raw engine handle.
pub(crate) type AbiEngineObj = AbiEngine_TO<RArc<()>>;

/// The ABI of an engine. Frequent calls are typed, rare ones pass requests as JSON.
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
    // ABI growth: a call of a later minor goes here, with a default body that degrades safely.
}

/// The root module that a library exports.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EngineModuleRef, prefix_fields = EngineModulePrefix)))]
#[sabi(missing_field(panic))]
pub struct EngineModule {
    /// `EngineInfo` as JSON.
    pub info: extern "C" fn() -> RString,
    /// Creates the engine from the host's services and its config as JSON.
    #[sabi(last_prefix_field)]
    pub create: extern "C" fn(AbiServices, RString) -> RResult<AbiEngineObj, AbiError>,
}

impl RootModule for EngineModuleRef {
    abi_stable::declare_root_module_statics! {EngineModuleRef}
    const BASE_NAME: &'static str = "ctxhost_engine";
    const NAME: &'static str = "ctxhost_engine";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

/// The ABI of [`IngestRequest`]. Frozen within the major version.
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
    // Reserved for fields of later minors: the struct itself must not change.
    ext_json: RString,
}

/// The ABI of [`AssembleRequest`]. Frozen within the major version.
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

const HEARTBEAT: u64 = 1;

impl AbiCodec<AbiIngest> for IngestRequest {
    fn encode(self) -> AbiIngest {
        AbiIngest {
            call: self.call.0,
            from: self.entries.start,
            to: self.entries.end,
            // Bits, so that later flags do not change the layout.
            flags: if self.is_heartbeat { HEARTBEAT } else { 0 },
            session_id: self.session.id.into(),
            session_key: self.session.key.into(),
            ext_json: RString::new(),
        }
    }

    fn decode(raw: AbiIngest) -> Result<Self> {
        Ok(IngestRequest {
            call: CallId(raw.call),
            session: session(raw.session_id, raw.session_key),
            entries: raw.from..raw.to,
            is_heartbeat: raw.flags & HEARTBEAT != 0,
        })
    }
}

impl AbiCodec<u64> for IngestReply {
    fn encode(self) -> u64 {
        self.entries
    }

    fn decode(entries: u64) -> Result<Self> {
        Ok(IngestReply { entries })
    }
}

impl AbiCodec<AbiAssemble> for AssembleRequest {
    fn encode(self) -> AbiAssemble {
        AbiAssemble {
            call: self.call.0,
            budget: self.budget,
            reserve_tokens: self.reserve_tokens,
            window_tokens: self.model.window_tokens,
            now_ms: self.now_ms,
            session_id: self.session.id.into(),
            session_key: self.session.key.into(),
            prompt: self.prompt.into(),
            provider: self.model.provider.into(),
            model: self.model.id.into(),
            tools: self.available_tools.into_iter().map(RString::from).collect(),
            ext_json: RString::new(),
        }
    }

    fn decode(raw: AbiAssemble) -> Result<Self> {
        Ok(AssembleRequest {
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
        })
    }
}

fn session(id: RString, key: RString) -> SessionRef {
    SessionRef { id: id.into_string(), key: key.into_string() }
}

//! The host's half: a linked or loaded engine behind plain calls.

use std::future::Future;
use std::sync::Arc;

use abi_stable::std_types::{RResult, RString};
use async_ffi::FfiFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::admit::{AdmitError, root_module};
use super::c::admit::{Checked, checked_table};
use super::engine::{AbiEngineObj, EngineModuleRef};
use super::guard::{catch, guarded};
use super::host::{AbiError, from_abi};
use super::json::{from_json, to_json};
use super::services::{HostServices, Services};
use crate::engine::{ContextEngine, EngineInfo};
use crate::error::Result;
use crate::plan::{Compaction, Plan};
use crate::request::*;
use crate::transcript::Transcript;

/// An engine that can be created: linked into the host or admitted from a library.
#[derive(Clone, Copy)]
pub struct EngineDoor {
    way: Way,
}

/// In which language one speaks behind a door.
#[derive(Clone, Copy)]
enum Way {
    Rust(EngineModuleRef),
    C(&'static Checked),
}

impl EngineDoor {
    /// The door of an engine that is linked into the host: the same code path as a loaded one.
    pub fn linked<E: ContextEngine>() -> EngineDoor {
        EngineDoor { way: Way::Rust(super::export::module::<E>()) }
    }

    /// Checks the header at `symbol` and lets the library in.
    ///
    /// Layouts are compared in both directions: an engine may be older or newer than the host by
    /// any minor, as long as one of the two is an extension of the other.
    ///
    /// # Errors
    ///
    /// [`AdmitError`]; nothing of the engine has run then, except its library's constructors.
    ///
    /// # Safety
    ///
    /// `symbol` is the address of [`ROOT_SYMBOL`](crate::border::ROOT_SYMBOL) in a library that is never unloaded, and the
    /// library was built by `export_engine!` or is no engine library at all.
    pub unsafe fn admit(symbol: *const ()) -> Result<EngineDoor, AdmitError> {
        // SAFETY: the caller promises what `root_module` asks for.
        let module = unsafe { root_module(symbol)? };
        Ok(EngineDoor { way: Way::Rust(module) })
    }

    /// Asks the function at `symbol` for its table, checks that and lets the library in.
    ///
    /// # Errors
    ///
    /// [`AdmitError`]; nothing of the engine has run then, except its library's constructors and
    /// the function itself.
    ///
    /// # Safety
    ///
    /// `symbol` is the address of [`C_ROOT_SYMBOL`](crate::border::C_ROOT_SYMBOL) in a library that is
    /// never unloaded, and the library keeps the rules of `ctxhost_engine.h`.
    pub unsafe fn admit_c(symbol: *const ()) -> Result<EngineDoor, AdmitError> {
        // SAFETY: the caller promises what `checked_table` asks for.
        let checked = unsafe { checked_table(symbol)? };
        Ok(EngineDoor { way: Way::C(checked) })
    }

    /// What the engine says it is.
    pub fn info(&self) -> Result<EngineInfo> {
        match self.way {
            Way::Rust(module) => {
                let info = module.info();
                from_json(catch(|| info())?.as_str())
            }
            Way::C(checked) => Ok(checked.info().clone()),
        }
    }

    /// Creates the engine.
    ///
    /// # Errors
    ///
    /// Whatever the engine's `create` answers, and [`ErrorKind::Panicked`](crate::ErrorKind).
    pub fn create(&self, services: Arc<dyn HostServices>, config: &Value) -> Result<EngineHandle> {
        let leash = Services::new(services);
        let config = to_json(config);
        let engine = match self.way {
            Way::Rust(module) => {
                let (object, create) = (leash.clone().into_object().0, module.create());
                from_abi(catch(|| create(object, config))?)?
            }
            Way::C(checked) => super::c::engine::create(checked, leash.clone(), config.as_str())?,
        };
        Ok(EngineHandle { engine: Arc::new(engine), leash })
    }
}

impl std::fmt::Debug for EngineDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineDoor")
    }
}

/// A live engine. Cloning shares it; every future owns what it needs and may be dropped to cancel.
#[derive(Clone)]
pub struct EngineHandle {
    engine: Arc<AbiEngineObj>,
    leash: Services,
}

impl EngineHandle {
    /// Calls [`ContextEngine::bootstrap`].
    pub fn bootstrap(
        &self,
        view: Transcript,
        request: BootstrapRequest,
    ) -> impl Future<Output = Result<Bootstrapped>> + Send + 'static {
        self.cold(request, move |e, q| e.bootstrap(view.into_object().0, q))
    }

    /// Calls [`ContextEngine::ingest`].
    pub fn ingest(
        &self,
        view: Transcript,
        request: IngestRequest,
    ) -> impl Future<Output = Result<Ingested>> + Send + 'static {
        let call = self.call(move |e| e.ingest(view.into_object().0, request.into()));
        async move { Ok(call.await?.into()) }
    }

    /// Calls [`ContextEngine::ingest_batch`].
    pub fn ingest_batch(
        &self,
        view: Transcript,
        request: IngestRequest,
    ) -> impl Future<Output = Result<Ingested>> + Send + 'static {
        let call = self.call(move |e| e.ingest_batch(view.into_object().0, request.into()));
        async move { Ok(call.await?.into()) }
    }

    /// Calls [`ContextEngine::assemble`].
    pub fn assemble(
        &self,
        view: Transcript,
        request: AssembleRequest,
    ) -> impl Future<Output = Result<Plan>> + Send + 'static {
        let call = self.call(move |e| e.assemble(view.into_object().0, request.into()));
        async move { call.await?.into_plan() }
    }

    /// Calls [`ContextEngine::compact`].
    pub fn compact(
        &self,
        view: Transcript,
        request: CompactRequest,
    ) -> impl Future<Output = Result<Compaction>> + Send + 'static {
        let request = to_json(&request);
        let call = self.call(move |e| e.compact(view.into_object().0, request));
        async move { call.await?.into_compaction() }
    }

    /// Calls [`ContextEngine::after_turn`].
    pub fn after_turn(
        &self,
        view: Transcript,
        request: AfterTurnRequest,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let request = to_json(&request);
        self.call(move |e| e.after_turn(view.into_object().0, request))
    }

    /// Calls [`ContextEngine::commit_turn`].
    pub fn commit_turn(
        &self,
        view: Transcript,
        request: CommitTurnRequest,
    ) -> impl Future<Output = Result<Committed>> + Send + 'static {
        self.cold(request, move |e, q| e.commit_turn(view.into_object().0, q))
    }

    /// Calls [`ContextEngine::maintain`].
    pub fn maintain(
        &self,
        view: Transcript,
        request: MaintainRequest,
    ) -> impl Future<Output = Result<Maintained>> + Send + 'static {
        self.cold(request, move |e, q| e.maintain(view.into_object().0, q))
    }

    /// Calls [`ContextEngine::prepare_subagent_spawn`].
    pub fn prepare_subagent_spawn(
        &self,
        view: Transcript,
        request: SubagentSpawnRequest,
    ) -> impl Future<Output = Result<SpawnPrepared>> + Send + 'static {
        self.cold(request, move |e, q| e.prepare_subagent_spawn(view.into_object().0, q))
    }

    /// Calls [`ContextEngine::rollback_subagent_spawn`].
    pub fn rollback_subagent_spawn(
        &self,
        request: SubagentRollbackRequest,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let request = to_json(&request);
        self.call(move |e| e.rollback_subagent_spawn(request))
    }

    /// Calls [`ContextEngine::on_subagent_ended`].
    pub fn on_subagent_ended(
        &self,
        request: SubagentEndedRequest,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let request = to_json(&request);
        self.call(move |e| e.on_subagent_ended(request))
    }

    /// Calls [`ContextEngine::tools`].
    pub fn tools(&self, session: &SessionRef) -> Result<Vec<ToolSpec>> {
        let answer = catch(|| self.engine.tools(to_json(session)))?;
        from_json(from_abi(answer)?.as_str())
    }

    /// Calls [`ContextEngine::call_tool`].
    pub fn call_tool(
        &self,
        view: Transcript,
        request: ToolCallRequest,
    ) -> impl Future<Output = Result<ToolAnswer>> + Send + 'static {
        self.cold(request, move |e, q| e.call_tool(view.into_object().0, q))
    }

    /// Calls [`ContextEngine::status`].
    pub fn status(&self) -> Result<EngineStatus> {
        let answer = catch(|| self.engine.status())?;
        from_json(from_abi(answer)?.as_str())
    }

    /// Calls [`ContextEngine::dispose`].
    pub fn dispose(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let engine = self.engine.clone();
        guarded(async move {
            engine.dispose().await;
            Ok(())
        })
    }

    /// Takes the services away: whatever the engine still runs, it reaches the host no more.
    pub fn revoke(&self) {
        self.leash.revoke();
    }

    /// A call begins at the first poll, inside the lane that polls it, and not before.
    fn call<T: Send + 'static>(
        &self,
        begin: impl FnOnce(&AbiEngineObj) -> FfiFuture<RResult<T, AbiError>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let engine = self.engine.clone();
        guarded(async move { from_abi(begin(&engine).await) })
    }

    fn cold<T: DeserializeOwned + Send + 'static>(
        &self,
        request: impl Serialize,
        begin: impl FnOnce(&AbiEngineObj, RString) -> FfiFuture<RResult<RString, AbiError>>
        + Send
        + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let request = to_json(&request);
        let call = self.call(move |engine| begin(engine, request));
        async move { from_json(call.await?.as_str()) }
    }
}

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineHandle")
    }
}

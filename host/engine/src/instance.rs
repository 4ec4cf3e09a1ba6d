//! An engine that was opened: what it is, its calls, its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ctxhost_engine_api::border::{DisposeRequest, EngineRequest, StatusRequest};
use ctxhost_engine_api::*;

use super::backend::EngineBackend;
use super::build_guard::BuildGuard;
use super::calls::{CallLimit, CallTable};
use super::client::typed_methods;
use super::environment::EngineEnvironment;
use super::load::{self, EngineOpenError};
use super::sandbox::SandboxInfo;
use super::spec::{EngineSource, EngineSpec};
use super::threads::{CANCEL_GRACE, Isolation};
use super::timeouts::EngineTimeouts;

/// An engine that can be called.
pub struct EngineInstance {
    info: EngineInfo,
    source: EngineSource,
    isolation: Isolation,
    pub(super) backend: Arc<EngineBackend>,
    pub(super) calls: Arc<CallTable>,
    pub(super) timeouts: EngineTimeouts,
    is_disposed: AtomicBool,
    /// Last, so that it is dropped after everything that runs the engine.
    watch: Arc<BuildGuard>,
}

impl EngineInstance {
    /// Opens an engine: finds its door, checks its name and needs, creates it.
    ///
    /// # Errors
    ///
    /// [`EngineOpenError`].
    pub fn open(
        spec: &EngineSpec,
        environment: &EngineEnvironment,
    ) -> Result<EngineInstance, EngineOpenError> {
        let calls = Arc::new(CallTable::default());
        let (info, backend, watch) = load::open_backend(spec, environment, &calls)?;
        let (source, isolation) = (spec.source.clone(), spec.isolation);
        let timeouts = environment.timeouts.clone();
        let (backend, watch) = (Arc::new(backend), Arc::new(watch));
        let is_disposed = AtomicBool::new(false);
        Ok(EngineInstance { info, source, isolation, backend, calls, timeouts, is_disposed, watch })
    }

    /// Which build it is: the SHA-256 of its file in hex, or `bundled <version>`. `None` where nobody
    /// is to remember its failures.
    pub fn build(&self) -> Option<&str> {
        self.watch.build()
    }

    /// What it is.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.info.id
    }

    /// Where it came from.
    pub fn source(&self) -> &EngineSource {
        &self.source
    }

    /// How far it is kept from the host.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The process it sits in; `None` for one that is in this process.
    pub fn sandbox_info(&self) -> Option<SandboxInfo> {
        self.backend.sandbox_info()
    }

    /// Whether this error is the end of one call and not of the engine: its process died over what is
    /// not asked twice, and another one takes over.
    pub fn is_single_call_loss(&self, operation: &str, error: &EngineError) -> bool {
        let is_asked_once =
            matches!(operation, "compact" | "after_turn" | "maintain" | "on_subagent_ended");
        is_asked_once && error.kind == ErrorKind::Dead && self.backend.can_restart()
    }

    /// Whether one of this process's threads hangs in a call of it that was given up.
    pub fn has_lost_thread(&self) -> bool {
        self.backend.has_lost_thread()
    }

    /// Asks the engine with the request of a call.
    ///
    /// # Errors
    ///
    /// As [`EngineInstance::call`].
    pub async fn ask<R: EngineRequest>(&self, view: &Transcript, request: R) -> Result<R::Reply> {
        R::reply(self.call(view, request.into()).await?)
    }

    engine_calls! { typed_methods Result }

    /// Calls `dispose` of the engine, within its time limit, and takes the services away. No call may
    /// follow. Only the first of these calls does anything; an engine that is dropped without one is
    /// disposed of then.
    pub async fn dispose(&self) {
        if let Some(disposal) = self.disposal() {
            disposal.run().await;
        }
    }

    /// What `dispose` takes; `None` where it has begun already.
    fn disposal(&self) -> Option<Disposal> {
        let is_first = !self.is_disposed.swap(true, Ordering::AcqRel);
        is_first.then(|| Disposal {
            id: self.info.id.clone(),
            backend: self.backend.clone(),
            calls: self.calls.clone(),
            limit: Duration::from_millis(self.timeouts.dispose_ms),
            _watch: self.watch.clone(),
        })
    }
}

/// The last call of an engine, which may outlive its [`EngineInstance`].
struct Disposal {
    id: String,
    backend: Arc<EngineBackend>,
    calls: Arc<CallTable>,
    limit: Duration,
    _watch: Arc<BuildGuard>,
}

impl Disposal {
    async fn run(self) {
        let call = self.calls.begin(CallLimit::fixed(self.limit), None);
        let dispose = DisposeRequest.into();
        let disposed = self.backend.call(&call, Transcript::empty(), dispose).await;
        if let Err(error) = disposed {
            tracing::warn!(engine = self.id, %error, "dispose failed");
        }
        self.backend.revoke();
    }

    /// Runs to its end for a caller that cannot wait asynchronously: on a thread of its own, since the
    /// caller may be a thread of an async runtime, which cannot start another one.
    fn run_blocking(self) {
        let limit = self.limit;
        let (ended, end) = mpsc::channel();
        let name = format!("dispose-{}", self.id);
        let id = self.id.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            match runtime {
                Ok(runtime) => runtime.block_on(self.run()),
                Err(error) => tracing::warn!(engine = self.id, %error, "dispose was not called"),
            }
            // Best effort: nobody listens once the time is up.
            let _ = ended.send(());
        };
        match std::thread::Builder::new().name(name).spawn(work) {
            // A call that ignores its deadline, inline on that thread, is left to it.
            Ok(_) => _ = end.recv_timeout(limit.saturating_add(CANCEL_GRACE)),
            Err(error) => tracing::warn!(engine = id, %error, "dispose was not called"),
        }
    }
}

impl Drop for EngineInstance {
    fn drop(&mut self) {
        if let Some(disposal) = self.disposal() {
            disposal.run_blocking();
        }
    }
}

impl std::fmt::Debug for EngineInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineInstance")
            .field("id", &self.info.id)
            .field("source", &self.source)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

//! An open engine: its info, its calls, its disposal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ctxhost_engine_api::border::{BoxFuture, DisposeRequest, EngineRequest, StatusRequest};
use ctxhost_engine_api::*;

use super::backend::EngineBackend;
use super::build_guard::BuildGuard;
use super::calls::{CallLimit, CallTable};
use super::client::typed_methods;
use super::environment::{CompactionDelegate, EngineEnvironment};
use super::error::EngineOpenError;
use super::load;
use super::sandbox::info::SandboxInfo;
use super::spec::{EngineSource, EngineSpec};
use super::threads::{CANCEL_GRACE, Isolation};
use super::timeouts::EngineTimeouts;

/// An engine that can be called.
pub struct EngineInstance {
    info: EngineInfo,
    source: EngineSource,
    isolation: Isolation,
    pub(super) backend: Arc<dyn EngineBackend>,
    pub(super) calls: Arc<CallTable>,
    pub(super) timeouts: EngineTimeouts,
    is_disposed: AtomicBool,
    // Last, so that it is dropped after everything that runs the engine.
    guard: Arc<BuildGuard>,
}

impl EngineInstance {
    /// Opens an engine: checks its id and the capabilities it requires, and creates it.
    ///
    /// # Errors
    ///
    /// [`EngineOpenError`].
    pub fn open(
        spec: &EngineSpec,
        environment: &EngineEnvironment,
    ) -> Result<EngineInstance, EngineOpenError> {
        let calls = Arc::new(CallTable::default());
        let (info, backend, guard) = load::open_backend(spec, environment, &calls)?;
        let (source, isolation) = (spec.source.clone(), spec.isolation);
        let timeouts = environment.timeouts.clone();
        let guard = Arc::new(guard);
        let is_disposed = AtomicBool::new(false);
        Ok(EngineInstance { info, source, isolation, backend, calls, timeouts, is_disposed, guard })
    }

    /// The build: the SHA-256 of its file in hex, or `bundled <version>`; `None` where its failures
    /// are not recorded.
    pub fn build(&self) -> Option<&str> {
        self.guard.build()
    }

    /// What the engine states about itself.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// The engine's id.
    pub fn id(&self) -> &str {
        &self.info.id
    }

    /// Where the engine comes from.
    pub fn source(&self) -> &EngineSource {
        &self.source
    }

    /// Its isolation from the host.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The state of its sandbox; `None` for an engine in this process.
    pub fn sandbox_info(&self) -> Option<SandboxInfo> {
        self.backend.sandbox_info()
    }

    /// Whether an error ends one call but not the engine: its sandbox died in a call that must not be
    /// repeated, and is restarted.
    pub fn is_single_call_loss(&self, operation: &str, error: &EngineError) -> bool {
        let is_unrepeatable =
            matches!(operation, "compact" | "after_turn" | "maintain" | "on_subagent_ended");
        is_unrepeatable && error.kind == ErrorKind::Dead && self.backend.can_restart()
    }

    /// Forgets earlier restarts of its sandbox: after a quarantine it has all of them again.
    pub(crate) fn forget_restarts(&self) {
        self.backend.forget_restarts();
    }

    /// Whether a thread of this process hangs in a cancelled call of the engine.
    pub fn has_lost_thread(&self) -> bool {
        self.backend.has_lost_thread()
    }

    /// Calls the engine with a request.
    ///
    /// # Errors
    ///
    /// As [`EngineInstance::call`].
    pub async fn ask<R: EngineRequest>(&self, view: &Transcript, request: R) -> Result<R::Reply> {
        R::reply(self.call(view, request.into()).await?)
    }

    engine_calls! { typed_methods Result }

    /// Calls `dispose` of the engine within its time limit, and revokes the services of the host. No
    /// call may follow. Only the first call has an effect; dropping the engine disposes of it as well.
    pub async fn dispose(&self) {
        if let Some(disposal) = self.disposal() {
            disposal.run().await;
        }
    }

    /// What `dispose` needs; `None` where it was called before.
    fn disposal(&self) -> Option<Disposal> {
        let is_first = !self.is_disposed.swap(true, Ordering::AcqRel);
        is_first.then(|| Disposal {
            id: self.info.id.clone(),
            backend: self.backend.clone(),
            calls: self.calls.clone(),
            limit: Duration::from_millis(self.timeouts.dispose_ms),
            _guard: self.guard.clone(),
        })
    }
}

/// The last call of an engine, which may outlive its [`EngineInstance`].
struct Disposal {
    id: String,
    backend: Arc<dyn EngineBackend>,
    calls: Arc<CallTable>,
    limit: Duration,
    _guard: Arc<BuildGuard>,
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

    /// Runs to its end for a synchronous caller.
    fn run_blocking(self) {
        let limit = self.limit;
        let (ended, end) = mpsc::channel();
        // The caller may be a thread of an async runtime, which cannot start a second one.
        let name = format!("dispose-{}", self.id);
        let id = self.id.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            match runtime {
                Ok(runtime) => runtime.block_on(self.run()),
                Err(error) => tracing::warn!(engine = self.id, %error, "dispose was not called"),
            }
            // The receiver is gone where the time is up.
            let _ = ended.send(());
        };
        match std::thread::Builder::new().name(name).spawn(work) {
            // The grace period is for the timeout inside; an inline call that blocks is abandoned.
            Ok(_) => _ = end.recv_timeout(limit.saturating_add(CANCEL_GRACE)),
            Err(error) => tracing::warn!(engine = id, %error, "dispose was not called"),
        }
    }
}

impl CompactionDelegate for EngineInstance {
    fn compact_for(
        self: Arc<Self>,
        view: Transcript,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        Box::pin(async move { self.compact(view, request).await })
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

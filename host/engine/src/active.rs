//! The engines of a slot: the configured chain, and the bundled engine as its fallback.
//!
//! ```text
//!  a call ─► trial ─► fallback ─► chain ─► deadline ─► engine
//!              │         └─ no engine of the chain answers: the bundled one does
//!              └─ a new engine fails: the engines before it answer, and serve again
//! ```

use std::sync::Arc;

use ctxhost_engine_api::border::StatusRequest;
use ctxhost_engine_api::*;

use super::answer::EngineSet;
use super::chain::EngineChain;
use super::client::typed_methods;
use super::environment::EngineEnvironment;
use super::error::{OnEngineError, SlotError};
use super::failures::FailureCounts;
use super::instance::EngineInstance;
use super::quarantine::QuarantineRecord;
use super::service::SlotResult;
use super::spec::EngineSpec;
use super::trial::EngineTrial;

/// The engines of a slot. Callers see one engine, and each answer names the engines that gave it.
#[derive(Debug)]
pub struct ActiveEngine {
    pub(super) chain: EngineChain,
    pub(super) bundled: Arc<EngineInstance>,
    pub(super) trial: EngineTrial,
    /// One for each holder that is idle, and this one.
    pub(super) idle_marks: Arc<()>,
}

impl ActiveEngine {
    /// Opens a chain of engines in their order; an empty chain is the bundled engine alone.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where an engine does not open and `on_error` is [`OnEngineError::Fail`],
    /// or where the bundled engine does not open; [`SlotError::Chain`] for an invalid chain.
    pub fn open(
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        bundled: &EngineSpec,
        on_error: OnEngineError,
        environment: &EngineEnvironment,
    ) -> Result<Self, SlotError> {
        Self::open_as(engines.as_ref(), bundled, (on_error, on_error), environment)
    }

    /// Opens the successor of a running chain, which continues where one of these engines does not
    /// open.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where an engine does not open, [`SlotError::Chain`] for an invalid
    /// chain.
    pub fn open_successor(
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        bundled: &EngineSpec,
        on_error: OnEngineError,
        environment: &EngineEnvironment,
    ) -> Result<Self, SlotError> {
        Self::open_as(engines.as_ref(), bundled, (OnEngineError::Fail, on_error), environment)
    }

    fn open_as(
        engines: &[EngineSpec],
        bundled: &EngineSpec,
        on_errors: (OnEngineError, OnEngineError),
        environment: &EngineEnvironment,
    ) -> Result<Self, SlotError> {
        // First, since engines of the chain may delegate to it while they are created.
        let instance = Arc::new(EngineInstance::open(bundled, environment)?);
        let delegate = Arc::downgrade(&instance);
        environment.set_delegate(delegate);
        let chain = EngineChain::open(engines, (bundled, &instance), on_errors, environment)?;
        Ok(ActiveEngine {
            chain,
            bundled: instance,
            trial: EngineTrial::default(),
            idle_marks: Arc::default(),
        })
    }

    engine_calls! { typed_methods SlotResult }

    /// The ids of the configured engines, joined.
    pub fn configured_id(&self) -> String {
        self.chain.configured_id().unwrap_or_else(|| self.bundled.id().to_owned())
    }

    /// The engines that shape the next request: joined ids and versions, and whether the last one
    /// keeps plans within their budget itself.
    pub fn serving_info(&self) -> EngineInfo {
        let active = self.current();
        active.chain.serving_info().unwrap_or_else(|| active.bundled.info().clone())
    }

    /// The engines that serve the next call. Where they change, sessions have to be bootstrapped
    /// again.
    pub fn serving(&self) -> EngineSet {
        self.current().chain.serving()
    }

    /// Why an engine is in quarantine: the first in the chain's order; `None` where none is.
    pub fn quarantine_record(&self) -> Option<QuarantineRecord> {
        self.chain.quarantine_records().next()
    }

    /// Releases all engines from quarantine and answers why the first was in it.
    pub fn release_quarantine(&self) -> Option<QuarantineRecord> {
        self.chain.release_quarantine()
    }

    /// What happens when an engine fails.
    pub fn on_error(&self) -> OnEngineError {
        self.chain.on_error
    }

    /// The failures since the last call of this function.
    pub fn take_failures(&self) -> FailureCounts {
        self.chain.failures.take()
    }

    /// Closes the configured engines while callers may still hold them: their calls are cancelled,
    /// and the bundled engine answers.
    pub async fn retire(&self) {
        self.chain.retired.cancel();
        // The bundled engine stays open, since it answers the cancelled calls.
        for engine in self.chain.engines().filter(|engine| !Arc::ptr_eq(engine, &self.bundled)) {
            engine.dispose().await;
        }
    }

    /// Whether the configured engines are closed.
    pub fn is_retired(&self) -> bool {
        self.chain.retired.is_cancelled()
    }

    /// Closes all engines. For engines without other holders.
    pub async fn dispose(&self) {
        self.retire().await;
        self.bundled.dispose().await;
    }
}

//! The engines that serve: those the slot is configured with, and the bundled one behind them.
//!
//! ```text
//!  a call ─► trial ─► fallback ─► chain ─► deadline ─► engine
//!              │         └─ no engine of the chain answers: the bundled one does
//!              └─ a new engine fails: the engines before it answer, and serve again
//! ```

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineRequest, StatusRequest};
use ctxhost_engine_api::*;

use super::answer::EngineSet;
use super::chain::EngineChain;
use super::client::typed_methods;
use super::environment::EngineEnvironment;
use super::error::{OnEngineError, SlotError};
use super::failures::FailureCounts;
use super::instance::EngineInstance;
use super::quarantine::QuarantineRecord;
use super::service::{EngineContext, EngineService as _, SlotResult};
use super::spec::EngineSpec;
use super::trial::EngineTrial;

/// The engines that serve. Whoever calls them calls them as if they were one engine, and is told which
/// of them answered.
#[derive(Debug)]
pub struct ActiveEngine {
    pub(super) chain: EngineChain,
    pub(super) bundled: Arc<EngineInstance>,
    pub(super) trial: EngineTrial,
}

impl ActiveEngine {
    /// Opens engines, the first of them the one that reads the session itself; none is the bundled one.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where one does not open and `on_error` is [`OnEngineError::Fail`], or where
    /// the bundled one does not; [`SlotError::Row`] for a chain that is too long or holds one twice.
    pub fn open(
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        bundled: &EngineSpec,
        on_error: OnEngineError,
        environment: &EngineEnvironment,
    ) -> Result<Self, SlotError> {
        Self::open_as(engines.as_ref(), bundled, (on_error, on_error), environment)
    }

    /// Opens engines that are to follow others, which go on where one of these does not open.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where one does not open, [`SlotError::Row`] as for [`ActiveEngine::open`].
    pub fn open_successor(
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        bundled: &EngineSpec,
        on_error: OnEngineError,
        environment: &EngineEnvironment,
    ) -> Result<Self, SlotError> {
        Self::open_as(engines.as_ref(), bundled, (OnEngineError::Fail, on_error), environment)
    }

    /// The bundled engine is opened first: others may delegate to it.
    fn open_as(
        engines: &[EngineSpec],
        bundled: &EngineSpec,
        on_errors: (OnEngineError, OnEngineError),
        environment: &EngineEnvironment,
    ) -> Result<Self, SlotError> {
        let instance = Arc::new(EngineInstance::open(bundled, environment)?);
        environment.set_delegate(Arc::downgrade(&instance));
        let chain = EngineChain::open(engines, (bundled, &instance), on_errors, environment)?;
        Ok(ActiveEngine { chain, bundled: instance, trial: EngineTrial::default() })
    }

    /// Calls the engines with the request of a call.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn ask<'a, R: EngineRequest>(
        &self,
        context: impl Into<EngineContext<'a>>,
        request: R,
    ) -> SlotResult<R::Reply> {
        let served = self.call(context.into(), request.into()).await?;
        served.try_map(R::reply).map_err(SlotError::from_answer)
    }

    engine_calls! { typed_methods SlotResult }

    /// The ids that the slot was asked to hold, as one word.
    pub fn configured_id(&self) -> String {
        self.chain.configured_id().unwrap_or_else(|| self.bundled.id().to_owned())
    }

    /// What shapes the next request: the ids of the engines that serve as one word, their versions, and
    /// whether the last of them keeps plans within their budget by itself.
    pub fn serving_info(&self) -> EngineInfo {
        let active = self.current();
        active.chain.serving_info().unwrap_or_else(|| active.bundled.info().clone())
    }

    /// Which engines serve the next call: what must be told of a session anew when it changes.
    pub fn serving(&self) -> EngineSet {
        self.current().chain.serving()
    }

    /// Why an engine does not serve, the first one's where several do not; `None` where all do.
    pub fn quarantine_record(&self) -> Option<QuarantineRecord> {
        self.chain.quarantine_records().next()
    }

    /// Lets all engines serve again; answers why the first of them did not.
    pub fn release_quarantine(&self) -> Option<QuarantineRecord> {
        self.chain.release_quarantine()
    }

    /// What is done when one of the engines fails.
    pub fn on_error(&self) -> OnEngineError {
        self.chain.on_error
    }

    /// What went wrong since this was asked last.
    pub fn take_failures(&self) -> FailureCounts {
        self.chain.failures.take()
    }

    /// Lets the configured engines go while somebody may still hold them: their calls are cut off and
    /// answered by the bundled engine.
    pub async fn retire(&self) {
        self.chain.retired.cancel();
        for engine in self.chain.engines().filter(|engine| !Arc::ptr_eq(engine, &self.bundled)) {
            engine.dispose().await;
        }
    }

    /// Whether the configured engines were let go; others serve meanwhile.
    pub fn is_retired(&self) -> bool {
        self.chain.retired.is_cancelled()
    }

    /// Lets all engines go. For engines that nobody else holds.
    pub async fn dispose(&self) {
        self.retire().await;
        self.bundled.dispose().await;
    }
}

//! A chain of engines in one slot: each engine reads the projection of the plan before it.
//!
//! ```text
//!  session ─► mask ─► check ─► its projection ─► legacy ─► check ─► one plan over the session
//!               │ refused, failed                  │ refused, failed
//!               ▼                                  ▼
//!           left out and reported              left out and reported
//! ```
//!
//! To its callers a chain is one engine: plans, ranges and ids are those of the session. A chain of
//! one has no projections, and an empty chain answers nothing. Compactions are computed over the
//! session itself, not over projections: a compaction is permanent, and must not lose what an
//! engine only hides for one request.

mod assemble;
mod calls;
mod compose;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ctxhost_engine_api::border::{EngineCall, EngineReply, FailurePolicy};
use ctxhost_engine_api::{EngineError, EngineInfo};
use tokio_util::sync::CancellationToken;

use self::view::LinkViews;
use super::answer::{EngineAnswer, EngineSet};
use super::chain_spec::{
    ChainSpecError, MAX_CHAIN_LINKS, format_versions, join_ids, validate_chain,
};
use super::clock::HostClock;
use super::environment::EngineEnvironment;
use super::error::{OnEngineError, SlotError, is_engine_fault};
use super::failures::FailureCounter;
use super::instance::EngineInstance;
use super::quarantine::{Quarantine, QuarantineRecord};
use super::spec::EngineSpec;

/// The number of chains opened by this process.
static CHAINS: AtomicU64 = AtomicU64::new(0);

/// A chain of engines.
#[derive(Debug)]
pub(super) struct EngineChain {
    /// The number of this chain in the process.
    number: u64,
    links: Vec<ChainLink>,
    pub(super) on_error: OnEngineError,
    quarantine: Quarantine,
    clock: HostClock,
    views: LinkViews,
    pub(super) failures: FailureCounter,
    /// Cancelled when the engines are closed.
    pub(super) retired: CancellationToken,
}

/// One engine of a chain.
#[derive(Debug)]
pub(super) struct ChainLink {
    /// Its index in the chain.
    number: usize,
    id: String,
    /// `None` where it did not open.
    engine: Option<Arc<EngineInstance>>,
}

/// A link whose engine is open and not in quarantine.
#[derive(Clone, Copy, Debug)]
struct ServingLink<'a> {
    link: &'a ChainLink,
    engine: &'a Arc<EngineInstance>,
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum ChainOutcome {
    Answered(Box<EngineAnswer<EngineReply>>),
    /// No engine of the chain answered.
    Unanswered(UnansweredCall),
}

/// Why no engine answered a call.
#[derive(Debug, Default)]
pub(super) struct UnansweredCall {
    /// Why an engine lost this call, where it still serves.
    pub(super) lost_call: Option<String>,
    /// Plans that were refused.
    pub(super) refused_plans: u64,
}

impl EngineChain {
    /// Opens the engines of a chain. `on_opening` decides about engines that do not open,
    /// `on_error` about calls that fail.
    pub(super) fn open(
        engines: &[EngineSpec],
        bundled: (&EngineSpec, &Arc<EngineInstance>),
        (on_opening, on_error): (OnEngineError, OnEngineError),
        environment: &EngineEnvironment,
    ) -> Result<EngineChain, SlotError> {
        if engines.len() > MAX_CHAIN_LINKS {
            return Err(ChainSpecError::TooMany { engines: engines.len() }.into());
        }
        let mut chain = EngineChain {
            number: CHAINS.fetch_add(1, Ordering::Relaxed),
            links: Vec::new(),
            on_error,
            quarantine: Quarantine::with_log(environment.call_failure_log()),
            clock: environment.clock.clone(),
            views: LinkViews::default(),
            failures: FailureCounter::default(),
            retired: CancellationToken::new(),
        };
        let is_bundled =
            |spec: &EngineSpec| spec.id == bundled.0.id && spec.source == bundled.0.source;
        for spec in engines {
            let number = chain.links.len();
            let engine = if is_bundled(spec) {
                // The bundled engine alone needs no chain: the fallback answers.
                if engines.len() == 1 {
                    continue;
                }
                // Shared, because two instances of one id would overwrite each other's values.
                Ok(bundled.1.clone())
            } else {
                EngineInstance::open(spec, environment).map(Arc::new)
            };
            match engine {
                Ok(engine) => {
                    let id = engine.id().to_owned();
                    chain.links.push(ChainLink { number, id, engine: Some(engine) });
                }
                Err(error) if on_opening == OnEngineError::Fail => return Err(error.into()),
                Err(error) => {
                    let id =
                        if spec.id.is_empty() { spec.source.to_string() } else { spec.id.clone() };
                    let link = ChainLink { number, id, engine: None };
                    chain.put_in_quarantine(&link, "open", &error.to_string());
                    chain.links.push(link);
                }
            }
        }
        // Not earlier: the id of a library named by its path is known once it is open.
        validate_chain(&chain.links.iter().map(|link| link.id.as_str()).collect::<Vec<_>>())?;
        Ok(chain)
    }

    /// Whether the chain has no engines.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The open engines.
    pub(super) fn engines(&self) -> impl Iterator<Item = &Arc<EngineInstance>> {
        self.links.iter().filter_map(|link| link.engine.as_ref())
    }

    /// The joined ids of its engines; `None` where it has none.
    pub(super) fn configured_id(&self) -> Option<String> {
        (!self.is_empty()).then(|| join_ids(self.links.iter().map(|link| link.id.as_str())))
    }

    /// The serving engines as one; `None` where none serves.
    pub(super) fn serving_info(&self) -> Option<EngineInfo> {
        let serving: Vec<&EngineInfo> =
            self.serving_links().map(|serving| serving.engine.info()).collect();
        let last = serving.last()?;
        Some(EngineInfo {
            id: join_ids(serving.iter().map(|info| info.id.as_str())),
            name: serving.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", "),
            version: format_versions(serving.iter().copied()),
            owns_compaction: last.owns_compaction,
            requires: serving.iter().flat_map(|info| info.requires.clone()).collect(),
        })
    }

    /// The engines that serve.
    pub(super) fn serving(&self) -> EngineSet {
        self.engine_set(self.serving_links())
    }

    /// The last link of a set; `None` where the set belongs to another chain.
    pub(super) fn last_link(&self, serving: EngineSet) -> Option<&ChainLink> {
        let is_ours = serving.chain == self.number;
        self.links.iter().rfind(|link| is_ours && serving.links >> link.number & 1 == 1)
    }

    /// The records of the engines in quarantine.
    pub(super) fn quarantine_records(&self) -> impl Iterator<Item = QuarantineRecord> {
        self.links.iter().filter_map(|link| self.quarantine.record(&link.id))
    }

    /// Releases all engines and answers the record of the first.
    pub(super) fn release_quarantine(&self) -> Option<QuarantineRecord> {
        // Collected first, since every engine is to be released and not only the first.
        let released: Vec<_> =
            self.links.iter().filter_map(|link| self.quarantine.release(&link.id)).collect();
        released.into_iter().next()
    }

    /// Handles an answer that violates an invariant like a failure.
    pub(super) fn quarantine_invalid(
        &self,
        link: &ChainLink,
        operation: &'static str,
        reason: &str,
    ) -> Result<Option<String>, SlotError> {
        self.failures.count_violation();
        self.exclude(link, operation, EngineError::failed(reason))
    }

    /// Attributes an answer to engines, with the reasons why others are in quarantine.
    fn attribute<'a, T>(
        &self,
        by: &[ServingLink<'a>],
        value: T,
        elapsed: Duration,
    ) -> EngineAnswer<T> {
        let infos = || by.iter().map(|serving| serving.engine.info());
        let excluded: Vec<String> =
            self.quarantine_records().map(|record| record.to_string()).collect();
        EngineAnswer {
            value,
            serving: Some(self.engine_set(by.iter().copied())),
            engine: join_ids(infos().map(|info| info.id.as_str())),
            version: format_versions(infos()),
            fallback: (!excluded.is_empty()).then(|| excluded.join("; ")),
            repairs: Vec::new(),
            refused_plans: 0,
            elapsed,
        }
    }

    /// An answer that no engine of the chain gave.
    pub(super) fn attribute_to_host<T>(&self, value: T, elapsed: Duration) -> EngineAnswer<T> {
        self.attribute(&[], value, elapsed)
    }

    fn engine_set<'a>(&self, engines: impl Iterator<Item = ServingLink<'a>>) -> EngineSet {
        // `MAX_CHAIN_LINKS` is 4, so a byte has enough bits.
        let links = engines.fold(0, |bits, serving| bits | 1 << serving.link.number);
        EngineSet { chain: self.number, links }
    }

    /// The serving links, in order.
    fn serving_links(&self) -> impl DoubleEndedIterator<Item = ServingLink<'_>> {
        self.links.iter().filter_map(|link| {
            let engine = link.engine.as_ref()?;
            let serves = !self.retired.is_cancelled() && self.quarantine.record(&link.id).is_none();
            serves.then_some(ServingLink { link, engine })
        })
    }

    /// Handles a failed call: the chain continues without the engine, unless that is an error.
    fn handle_failure(
        &self,
        link: &ChainLink,
        operation: &'static str,
        error: EngineError,
    ) -> Result<Option<String>, SlotError> {
        self.failures.count_failure();
        self.exclude(link, operation, error)
    }

    /// Quarantines an engine. Where it lost one call and still serves, answers the message for that call.
    fn exclude(
        &self,
        link: &ChainLink,
        operation: &'static str,
        mut error: EngineError,
    ) -> Result<Option<String>, SlotError> {
        let engine = link.engine.as_ref();
        if engine.is_some_and(|engine| engine.has_lost_thread()) {
            error.message += "; its thread hangs";
        }
        // A restarted sandbox loses one call; quarantining the engine would lose all further ones.
        let is_lost = engine.is_some_and(|engine| engine.is_single_call_loss(operation, &error));
        if is_lost {
            tracing::warn!(engine = link.id, operation, %error, "the engine lost a call");
        } else {
            self.put_in_quarantine(link, operation, &error.message);
        }
        match self.on_error {
            OnEngineError::Fail => Err(SlotError::from_engine(&link.id, operation, error)),
            OnEngineError::Fallback => {
                Ok(is_lost.then(|| format!("{} lost {operation}: {}", link.id, error.message)))
            }
        }
    }

    /// Handles a failed call whose error goes to the caller.
    fn handle_caller_failure(
        &self,
        link: &ChainLink,
        operation: &'static str,
        error: EngineError,
    ) -> SlotError {
        if is_engine_fault(error.kind) {
            self.failures.count_failure();
            let engine = link.engine.as_ref();
            if !engine.is_some_and(|engine| engine.is_single_call_loss(operation, &error)) {
                self.put_in_quarantine(link, operation, &error.message);
            }
        }
        SlotError::from_engine(&link.id, operation, error)
    }

    /// With `on_engine_error = "fail"` the chain does not continue without an engine that failed. Calls that only
    /// report their errors are served by the remaining engines even then.
    pub(super) fn refuse_while_quarantined(&self, call: &EngineCall) -> Result<(), SlotError> {
        let is_refused =
            self.on_error == OnEngineError::Fail && call.on_failure() != FailurePolicy::Report;
        match is_refused.then(|| self.quarantine_records().next()).flatten() {
            Some(record) => {
                let error = EngineError::failed(format!("in quarantine: {}", record.reason));
                Err(SlotError::from_engine(&record.id, call.name(), error))
            }
            None => Ok(()),
        }
    }

    fn put_in_quarantine(&self, link: &ChainLink, operation: &str, reason: &str) {
        let engine = link.engine.as_ref();
        self.quarantine.put(QuarantineRecord {
            id: link.id.clone(),
            bytes: engine.and_then(|engine| engine.build().map(str::to_owned)),
            operation: operation.into(),
            reason: reason.into(),
            failed_at_ms: self.clock.now_ms(),
        });
        // No call reaches it before a release, which is to give it another chance.
        engine.into_iter().for_each(|engine| engine.forget_restarts());
    }
}

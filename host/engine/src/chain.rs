//! A chain of engines in one slot, each reading what the one before it shows.
//!
//! ```text
//!  session ─► mask ─► law ─► its projection ─► legacy ─► law ─► one plan over the session ─► law
//!               │ refused, failed                │ refused, failed
//!               ▼                                ▼
//!           left out, loudly                 left out, loudly
//! ```
//!
//! Whoever calls a chain calls it as if it were one engine: plans, ranges and ids are those of the session.
//! A chain of one has no projections, and one of none answers nothing. Compactions are worked out over the
//! session itself and not over what earlier engines show, because they are written down for good, and
//! nothing that an engine only hides for one request may be lost with them.

mod assemble;
mod calls;
mod compose;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ctxhost_engine_api::border::EngineReply;
use ctxhost_engine_api::{EngineError, EngineInfo};
use tokio_util::sync::CancellationToken;

use self::view::LinkViews;
use super::answer::{EngineAnswer, EngineSet};
use super::chain_spec::{
    ChainSpecError, MAX_CHAIN_LINKS, format_versions, join_ids, validate_chain,
};
use super::environment::{EngineEnvironment, HostClock};
use super::error::{OnEngineError, SlotError, is_engine_fault};
use super::failures::FailureCounter;
use super::instance::EngineInstance;
use super::quarantine::{Quarantine, QuarantineRecord};
use super::spec::EngineSpec;

/// Chains opened so far by this process.
static CHAINS: AtomicU64 = AtomicU64::new(0);

/// Engines that follow each other.
#[derive(Debug)]
pub(super) struct EngineChain {
    /// Which chain of this process it is.
    number: u64,
    links: Vec<ChainLink>,
    pub(super) on_error: OnEngineError,
    quarantine: Quarantine,
    clock: HostClock,
    views: LinkViews,
    pub(super) failures: FailureCounter,
    /// The engines are to be let go.
    pub(super) retired: CancellationToken,
}

/// One engine of a chain.
#[derive(Debug)]
pub(super) struct ChainLink {
    /// Its place.
    number: usize,
    id: String,
    /// `None` where it did not open.
    engine: Option<Arc<EngineInstance>>,
}

/// A link that serves.
#[derive(Clone, Copy, Debug)]
struct ServingLink<'a> {
    link: &'a ChainLink,
    engine: &'a Arc<EngineInstance>,
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum ChainOutcome {
    Answered(Box<EngineAnswer<EngineReply>>),
    /// No engine of the chain answered it.
    Unanswered(UnansweredCall),
}

/// What there is to say of a call that no engine answered.
#[derive(Debug, Default)]
pub(super) struct UnansweredCall {
    /// Why an engine that goes on did not.
    pub(super) lost_call: Option<String>,
    /// Plans that the law refused.
    pub(super) refused_plans: u64,
}

impl EngineChain {
    /// Opens the engines of a chain. The bundled engine alone is none; as one of several it is the one
    /// that is open already, since two of one id would write over each other's notes.
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
            let (number, engine) = (
                chain.links.len(),
                match is_bundled(spec) {
                    true if engines.len() == 1 => continue,
                    true => Ok(bundled.1.clone()),
                    false => EngineInstance::open(spec, environment).map(Arc::new),
                },
            );
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
        // Only now every id is known: a library may have been named by its path.
        validate_chain(&chain.links.iter().map(|link| link.id.as_str()).collect::<Vec<_>>())?;
        Ok(chain)
    }

    /// Whether there is no engine in it.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The engines that are open.
    pub(super) fn engines(&self) -> impl Iterator<Item = &Arc<EngineInstance>> {
        self.links.iter().filter_map(|link| link.engine.as_ref())
    }

    /// The ids of its engines, as one word; `None` where there are none.
    pub(super) fn configured_id(&self) -> Option<String> {
        (!self.is_empty()).then(|| join_ids(self.links.iter().map(|link| link.id.as_str())))
    }

    /// The engines that serve as if they were one; `None` where none does.
    pub(super) fn serving_info(&self) -> Option<EngineInfo> {
        let working: Vec<&EngineInfo> = self.serving_links().map(|it| it.engine.info()).collect();
        let last = working.last()?;
        Some(EngineInfo {
            id: join_ids(working.iter().map(|info| info.id.as_str())),
            name: working.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", "),
            version: format_versions(working.iter().copied()),
            owns_compaction: last.owns_compaction,
            requires: working.iter().flat_map(|info| info.requires.clone()).collect(),
        })
    }

    /// Which engines serve.
    pub(super) fn serving(&self) -> EngineSet {
        self.engine_set(self.serving_links())
    }

    /// The last link of those that gave an answer; `None` for an answer of others.
    pub(super) fn last_link(&self, serving: EngineSet) -> Option<&ChainLink> {
        let is_ours = serving.chain == self.number;
        self.links.iter().rfind(|link| is_ours && serving.links >> link.number & 1 == 1)
    }

    /// Why those that do not serve do not.
    pub(super) fn quarantine_records(&self) -> impl Iterator<Item = QuarantineRecord> {
        self.links.iter().filter_map(|link| self.quarantine.record(&link.id))
    }

    /// Lets all engines serve again; answers why the first of them did not.
    pub(super) fn release_quarantine(&self) -> Option<QuarantineRecord> {
        let lifted: Vec<_> =
            self.links.iter().filter_map(|link| self.quarantine.release(&link.id)).collect();
        lifted.into_iter().next()
    }

    /// The law refused what an engine answered: the same as if it had failed.
    pub(super) fn quarantine_invalid(
        &self,
        link: &ChainLink,
        operation: &'static str,
        why: &str,
    ) -> Result<Option<String>, SlotError> {
        self.failures.count_violation();
        self.exclude(link, operation, EngineError::failed(why))
    }

    /// An answer of these engines, which says who was left out.
    fn attribute<'a, T>(
        &self,
        by: &[ServingLink<'a>],
        value: T,
        took: Duration,
    ) -> EngineAnswer<T> {
        let infos = || by.iter().map(|working| working.engine.info());
        let left_out: Vec<String> =
            self.quarantine_records().map(|record| record.to_string()).collect();
        EngineAnswer {
            value,
            serving: Some(self.engine_set(by.iter().copied())),
            engine: join_ids(infos().map(|info| info.id.as_str())),
            version: format_versions(infos()),
            fallback: (!left_out.is_empty()).then(|| left_out.join("; ")),
            repairs: Vec::new(),
            refused_plans: 0,
            elapsed: took,
        }
    }

    /// An answer of none of these engines.
    pub(super) fn attribute_to_host<T>(&self, value: T, took: Duration) -> EngineAnswer<T> {
        self.attribute(&[], value, took)
    }

    fn engine_set<'a>(&self, engines: impl Iterator<Item = ServingLink<'a>>) -> EngineSet {
        let links = engines.fold(0, |bits, working| bits | 1 << working.link.number);
        EngineSet { chain: self.number, links }
    }

    /// The links that serve, in order.
    fn serving_links(&self) -> impl DoubleEndedIterator<Item = ServingLink<'_>> {
        self.links.iter().filter_map(|link| {
            let engine = link.engine.as_ref()?;
            let serves = !self.retired.is_cancelled() && self.quarantine.record(&link.id).is_none();
            serves.then_some(ServingLink { link, engine })
        })
    }

    /// An engine failed: from here on the chain does without it, unless that is an error.
    fn handle_failure(
        &self,
        link: &ChainLink,
        operation: &'static str,
        error: EngineError,
    ) -> Result<Option<String>, SlotError> {
        self.failures.count_failure();
        self.exclude(link, operation, error)
    }

    /// What is to be said of a call that is lost with an engine that goes on; `None` where it does not.
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
        let is_lost = engine.is_some_and(|engine| engine.is_single_call_loss(operation, &error));
        if is_lost {
            tracing::warn!(engine = link.id, operation, %error, "a call is lost");
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

    /// An engine failed a call whose error goes to the caller: it is left out from then on.
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

    /// Where the operator wants failures and an engine has failed, the others do not go on without it.
    fn refuse_while_quarantined(&self, operation: &'static str) -> Result<(), SlotError> {
        let failed =
            self.quarantine_records().next().filter(|_| self.on_error == OnEngineError::Fail);
        failed.map_or(Ok(()), |record| {
            let error = EngineError::failed(format!("in quarantine: {}", record.reason));
            Err(SlotError::from_engine(&record.id, operation, error))
        })
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
    }
}

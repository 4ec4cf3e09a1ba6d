//! Measures how much of the information that is needed later an engine keeps, without a model.
//!
//! ```text
//!  questions   history ─► engine ─► prompt ─► is the labelled evidence in it, verbatim?
//!  recordings  each request again ─► prompt ─► are the identifiers of the next step in it?
//!  answers     each recorded answer, scored by a model after that prompt (optional)
//!  rules       generated sessions, compacted repeatedly ─► is each active rule shown, and no replaced one?
//! ```
//!
//! Engines run through the host: every plan is enforced, compacted and verified as for an agent. Built-in
//! baselines select entries without an engine, comparable with published figures. Nothing is sent unless a
//! model scores answers, and two runs give the same figures, except for timings.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod baselines;
mod context;
mod dataset;
mod evidence;
mod identifiers;
mod recording;
pub mod report;
mod rules;
mod rules_generator;
mod utility;
pub mod verdict;

use std::sync::Arc;

use ctxhost_agent::engine_registry::EngineRegistryError;
use ctxhost_config::Config;
use ctxhost_engine::EngineSpec;
use ctxhost_provider::Embedder;

pub use baselines::Baseline;
pub use context::CachePrices;
pub use dataset::{DatasetError, LabelledQuestion, parse_questions};
pub use evidence::measure_evidence;
pub use recording::measure_recording;
pub use rules::{RuleOptions, measure_rules};
pub use utility::{ProbedAnswer, UtilityProbe};

/// What is measured: an engine, or a baseline that selects entries without one.
#[derive(Clone, Debug)]
pub enum BenchSubject {
    /// An engine or a chain.
    Engine {
        /// Its name.
        name: String,
        /// The engines to open.
        specs: Vec<EngineSpec>,
        /// Their model for vectors, if any.
        embedder: Option<Arc<dyn Embedder>>,
    },
    /// A selection of entries without an engine.
    Baseline(Baseline),
}

impl BenchSubject {
    /// Parses the name of a baseline or an engine of the config.
    ///
    /// # Errors
    ///
    /// [`EngineRegistryError`] for an unknown name.
    pub fn parse(name: &str, config: &Config) -> Result<BenchSubject, EngineRegistryError> {
        if let Some(baseline) = Baseline::parse(name) {
            return Ok(BenchSubject::Baseline(baseline));
        }
        let specs =
            ctxhost_agent::engine_registry::EngineRegistry::load(config).chain(config, name)?;
        Ok(BenchSubject::Engine { name: name.to_owned(), specs, embedder: None })
    }

    /// The same with a model for vectors, if it is an engine.
    #[must_use]
    pub fn with_embedder(mut self, model: Option<Arc<dyn Embedder>>) -> BenchSubject {
        if let BenchSubject::Engine { embedder, .. } = &mut self {
            *embedder = model;
        }
        self
    }

    fn embedder(&self) -> Option<Arc<dyn Embedder>> {
        match self {
            BenchSubject::Engine { embedder, .. } => embedder.clone(),
            BenchSubject::Baseline(_) => None,
        }
    }

    /// Whether it selects entries without an engine.
    pub fn is_baseline(&self) -> bool {
        matches!(self, BenchSubject::Baseline(_))
    }

    /// Its name in reports.
    pub fn name(&self) -> &str {
        match self {
            BenchSubject::Engine { name, .. } => name,
            BenchSubject::Baseline(baseline) => baseline.name(),
        }
    }
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum QualityError {
    /// An engine failed, or the pinned entries do not fit.
    #[error("{subject}: {source}")]
    Engine {
        /// The subject.
        subject: String,
        /// The cause.
        source: ctxhost_context::ContextError,
    },
    /// A model did not score an answer.
    #[error("{subject} at {budget_tokens} tokens, answer {answer}: {source}")]
    Probe {
        /// The subject.
        subject: String,
        /// Its budget, in tokens.
        budget_tokens: u64,
        /// The number of the answer in the recording, from 1.
        answer: usize,
        /// The cause.
        source: ctxhost_provider::LogprobError,
    },
    /// A session could not be written or read.
    #[error(transparent)]
    Session(#[from] ctxhost_session::SessionError),
    /// An I/O error.
    #[error(transparent)]
    Disk(#[from] std::io::Error),
}

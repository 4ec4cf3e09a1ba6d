//! The bench of a child: the loaded library, and everything a case needs to put it to work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::border::EngineFactory;
use serde_json::Value;

use super::fault::CheckFault;
use super::history::{CaseHistory, HistoryCut};
use super::host::FaultyHost;
use super::provider::ProviderFamily;
use super::session::CheckSession;
use super::trace::CallTrace;

/// What a model answers where a case has one: the sections of a summary, with nothing in them that a
/// check could mistake for something of the conversation.
pub(super) const SUMMARY: &str = "## Decisions\nRename the field everywhere.\n\n## Open TODOs\nRun the \
     tests.\n\n## Constraints/Rules\nNone.\n\n## Pending user asks\nFinish the part at hand.\n\n\
     ## Exact identifiers\nNone.\n";

/// A loaded library at work.
pub(super) struct CaseHarness<'a> {
    pub(super) factory: EngineFactory,
    pub(super) config: &'a Value,
    pub(super) trace: &'a Arc<CallTrace>,
    pub(super) call_limit: Duration,
    /// What is taken away from the history of a case.
    pub(super) cut: &'a HistoryCut,
    /// The library.
    pub(super) file: &'a Path,
    /// The folder that the child stands in; whatever lies in it afterwards the engine put there.
    pub(super) work_dir: &'a Path,
}

impl CaseHarness<'_> {
    /// An honest host, without a model.
    pub(super) fn host(&self) -> FaultyHost {
        FaultyHost::new(self.trace)
    }

    /// An honest host whose model always answers the same summary.
    pub(super) fn host_with_model(&self) -> FaultyHost {
        let host = self.host();
        host.inner.answer_always(SUMMARY);
        host
    }

    /// The engine, created on a host.
    pub(super) fn open(&self, host: FaultyHost) -> Result<CheckSession, CheckFault> {
        CheckSession::open(self, host, "conformance")
    }

    /// The history of a number, after the cut.
    pub(super) fn history(&self, number: u64, family: ProviderFamily) -> CaseHistory {
        CaseHistory::generate(number, family).apply_cut(self.cut)
    }
}

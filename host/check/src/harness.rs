//! The harness of a case in a child process: the loaded library and what a case needs to run it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine::{EngineFile, LibraryCopy};
use ctxhost_engine_api::border::EngineFactory;
use serde_json::Value;

use super::fault::CheckFault;
use super::history::{CaseHistory, HistoryCut};
use super::host::FaultyHost;
use super::provider::ProviderFamily;
use super::session::CheckSession;
use super::trace::CallTrace;

/// The answer of the model, in cases with a model: a summary without any text of the conversation, so that
/// checks cannot confuse the two.
pub(super) const SUMMARY: &str = "## Decisions\nRename the field everywhere.\n\n## Open TODOs\nRun the \
     tests.\n\n## Constraints/Rules\nNone.\n\n## Pending user asks\nFinish the part at hand.\n\n\
     ## Exact identifiers\nNone.\n";

/// A loaded library and the parameters of a case.
pub(super) struct CaseHarness<'a> {
    pub(super) factory: EngineFactory,
    pub(super) config: &'a Value,
    pub(super) trace: &'a Arc<CallTrace>,
    pub(super) call_limit: Duration,
    /// Entries removed from the history of the case.
    pub(super) cut: &'a HistoryCut,
    /// The library, as it was read.
    pub(super) library: &'a EngineFile,
    /// A copy to load the library a second time; only in the group that does.
    pub(super) second_copy: Option<&'a LibraryCopy>,
    /// The working folder of the child. Files in it afterwards were written by the engine.
    pub(super) work_dir: &'a Path,
}

impl CaseHarness<'_> {
    /// A correct host without a model.
    pub(super) fn host(&self) -> FaultyHost {
        FaultyHost::new(self.trace)
    }

    /// A correct host whose model always returns the same summary.
    pub(super) fn host_with_model(&self) -> FaultyHost {
        let host = self.host();
        host.inner.answer_always(SUMMARY);
        host
    }

    /// Creates the engine on a host.
    pub(super) fn open(&self, host: FaultyHost) -> Result<CheckSession, CheckFault> {
        CheckSession::open(self, host, "conformance")
    }

    /// The history of a number, with the cut applied.
    pub(super) fn history(&self, number: u64, family: ProviderFamily) -> CaseHistory {
        CaseHistory::generate(number, family).apply_cut(self.cut)
    }
}

//! The bench of a child: the loaded library, and everything a case needs to put it to work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::border::EngineDoor;
use serde_json::Value;

use super::fault::Fault;
use super::history::{Cut, History};
use super::host::KitHost;
use super::provider::Family;
use super::stage::Stage;
use super::trace::Trace;

/// What a model answers where a case has one: the sections of a summary, with nothing in them that a
/// check could mistake for something of the conversation.
pub(super) const SUMMARY: &str = "## Decisions\nRename the field everywhere.\n\n## Open TODOs\nRun the \
     tests.\n\n## Constraints/Rules\nNone.\n\n## Pending user asks\nFinish the part at hand.\n\n\
     ## Exact identifiers\nNone.\n";

/// A loaded library at work.
pub(super) struct Bench<'a> {
    pub(super) door: EngineDoor,
    pub(super) config: &'a Value,
    pub(super) trace: &'a Arc<Trace>,
    pub(super) call_limit: Duration,
    /// What is taken away from the history of a case.
    pub(super) cut: &'a Cut,
    /// The library.
    pub(super) file: &'a Path,
    /// The folder that the child stands in; whatever lies in it afterwards the engine put there.
    pub(super) yard: &'a Path,
}

impl Bench<'_> {
    /// An honest host, without a model.
    pub(super) fn host(&self) -> KitHost {
        KitHost::new(self.trace)
    }

    /// An honest host whose model always answers the same summary.
    pub(super) fn host_with_model(&self) -> KitHost {
        let host = self.host();
        host.honest.answer_always(SUMMARY);
        host
    }

    /// The engine, created on a host.
    pub(super) fn open(&self, host: KitHost) -> Result<Stage, Fault> {
        Stage::open(self, host, "conformance")
    }

    /// The history of a number, after the cut.
    pub(super) fn history(&self, number: u64, family: Family) -> History {
        History::generated(number, family).after(self.cut)
    }
}

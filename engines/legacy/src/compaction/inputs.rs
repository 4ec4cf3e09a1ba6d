//! The inputs that all steps of one compaction share.

use std::borrow::Cow;

use ctxhost_engine_api::{CompactRequest, Host, Transcript};
use ctxhost_text::identifiers::anonymise;

use crate::decisions::DecisionStore;
use crate::settings::{IdentifierPolicy, Settings, share_of};

/// Inputs of one compaction.
#[derive(Clone, Copy)]
pub(crate) struct LegacyCompaction<'a> {
    pub(crate) host: &'a Host,
    pub(crate) settings: &'a Settings,
    pub(crate) decisions: &'a DecisionStore,
    pub(crate) transcript: &'a Transcript,
    pub(crate) request: &'a CompactRequest,
}

impl LegacyCompaction<'_> {
    /// Whether the conversation must shrink before the next request.
    pub(crate) fn is_over_target(&self) -> bool {
        let settings = &self.settings.compaction;
        self.transcript.total_tokens() > share_of(self.request.budget, settings.target_share)
    }

    /// The text, anonymised under the policy `anonymize`.
    pub(crate) fn anonymised<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.settings.compaction.identifier_policy {
            IdentifierPolicy::Anonymize => anonymise(text),
            _ => Cow::Borrowed(text),
        }
    }
}

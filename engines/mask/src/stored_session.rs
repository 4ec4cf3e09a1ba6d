//! The masks and the window of a session as stored, so that a restart does not change the prefix.

use ctxhost_engine_api::{Transcript, serde_json};
use ctxhost_engine_kit::sliding_window::WindowCut;
use serde::{Deserialize, Serialize};

/// What earlier requests chose. The transcript and the budget alone do not determine it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredMaskSession {
    /// Number of masked results.
    pub(crate) masked: usize,
    /// The window, if it was moved.
    pub(crate) cut: Option<WindowCut>,
    /// Names of the dropped turns.
    pub(crate) names: String,
    /// The last position that the state refers to, and the id of the entry there.
    // On another branch or after a compaction another entry has this position.
    pub(crate) last: u64,
    pub(crate) last_id: String,
}

impl StoredMaskSession {
    /// Parses a stored session; `None` if it belongs to another transcript or format.
    pub(crate) fn parse(json: &str, transcript: &Transcript) -> Option<StoredMaskSession> {
        let stored: StoredMaskSession = serde_json::from_str(json).ok()?;
        let is_current = transcript.get(stored.last)?.id() == stored.last_id;
        is_current.then_some(stored)
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

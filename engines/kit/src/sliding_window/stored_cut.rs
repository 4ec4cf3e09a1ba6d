//! The cut of a sliding window as stored, so that a restart does not change the prefix.

use ctxhost_engine_api::Transcript;
use serde::{Deserialize, Serialize};

use super::{SlidingWindow, WindowCut};

/// A cut with the id of the entry there.
// On another branch or after a compaction another entry has this position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCut {
    cut: Option<WindowCut>,
    id: String,
}

impl StoredCut {
    /// The cut of a window.
    pub fn new(window: &SlidingWindow, transcript: &Transcript) -> StoredCut {
        let cut = window.cut().cloned();
        let entry = cut.as_ref().and_then(|cut| transcript.get(cut.start()));
        StoredCut { id: entry.map_or(String::new(), |entry| entry.id().to_owned()), cut }
    }

    /// Parses a stored cut; `None` if it belongs to another transcript or format.
    pub fn parse(json: &str, transcript: &Transcript) -> Option<StoredCut> {
        let stored: StoredCut = serde_json::from_str(json).ok()?;
        let start = stored.cut.as_ref()?.start();
        let is_current = transcript.get(start)?.id() == stored.id;
        is_current.then_some(stored)
    }

    /// The cut; `None` if everything is kept.
    pub fn cut(&self) -> Option<&WindowCut> {
        self.cut.as_ref()
    }

    /// Serialises it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

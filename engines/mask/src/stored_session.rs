//! The masks and the windows of a session as stored, so that a restart does not change the prefix.

use ctxhost_engine_api::{Transcript, serde_json};
use ctxhost_engine_kit::budget_states::BudgetStates;
use ctxhost_engine_kit::sliding_window::WindowCut;
use serde::{Deserialize, Serialize};

/// The choices of a session for each of its budgets.
pub(crate) type StoredMaskSession = BudgetStates<StoredChoice>;

/// What earlier requests chose. The transcript and the budget alone do not determine it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredChoice {
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

impl StoredChoice {
    /// Whether it belongs to a transcript.
    pub(crate) fn is_of(&self, transcript: &Transcript) -> bool {
        transcript.get(self.last).is_some_and(|entry| entry.id() == self.last_id)
    }
}

/// Parses a stored session; `None` if it has another format.
pub(crate) fn parse(json: &str) -> Option<StoredMaskSession> {
    serde_json::from_str(json).ok()
}

/// Serialises a session.
pub(crate) fn to_json(session: &StoredMaskSession) -> String {
    serde_json::to_string(session).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_an_older_version_is_one_choice() {
        let old = r#"{"masked":3,"cut":null,"names":"a.rs","last":6,"last_id":"e6"}"#;
        let mut stored = parse(old).unwrap_or_default();
        assert_eq!((stored.state().masked, to_json(&stored).as_str()), (3, old));
        stored.select(200_000);
        assert_eq!(stored.state().names, "a.rs");
    }
}

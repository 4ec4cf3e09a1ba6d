//! The engine's decisions per session, kept across requests and restarts so that cached prefixes
//! stay valid.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::{Entry, Host, LogLevel, SessionRef, Transcript, capability};
use ctxhost_engine_kit::budget_states::BudgetStates;
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::store::{has_capability, has_key_value_store, session_key};
use serde::{Deserialize, Serialize};

/// Key prefix in the engine's store.
// The number changes with the JSON format, so that no version misreads another one's value.
const KEY_PREFIX: &str = "decisions/1/";

/// How far a result was pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PruneLevel {
    /// Head and tail remain.
    Soft,
    /// Only the placeholder remains.
    Hard,
}

/// Decisions about entries, by id.
// Ids, because positions change with each compaction; sorted, so that equal decisions are equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct EntryDecisions {
    /// Results cut by the aggregate rule, with their limit in weighted characters.
    reduced: BTreeMap<String, u64>,
    /// Pruned results.
    pruned: BTreeMap<String, PruneLevel>,
    /// Calls with cut arguments.
    arguments: BTreeSet<String>,
    /// Entries with replaced images.
    images: BTreeSet<String>,
    /// The transcript that they are of. For a larger window it has entries that a compaction replaced for a small one.
    #[serde(skip)]
    epoch: u64,
}

/// The stored decisions of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StoredDecisions {
    #[serde(flatten)]
    entries: BudgetStates<EntryDecisions>,
    /// Time of the last pruning, in ms since 1970.
    pruned_at_ms: Option<i64>,
    /// Blob handles of stored originals.
    // Skipped when empty: most sessions store no blobs.
    #[serde(rename = "putAway", skip_serializing_if = "BTreeMap::is_empty")]
    stored_originals: BTreeMap<String, String>,
}

/// The decisions of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionDecisions {
    is_loaded: bool,
    is_changed: bool,
    decisions: StoredDecisions,
}

impl SessionDecisions {
    /// The limit of a result set by the aggregate rule.
    pub(crate) fn reduced_limit(&self, id: &str) -> Option<u64> {
        self.decisions.entries.state().reduced.get(id).copied()
    }

    /// How far a result was pruned.
    pub(crate) fn prune_level(&self, id: &str) -> Option<PruneLevel> {
        self.decisions.entries.state().pruned.get(id).copied()
    }

    /// Whether the arguments of this call were cut.
    pub(crate) fn is_cut_call(&self, id: &str) -> bool {
        self.decisions.entries.state().arguments.contains(id)
    }

    /// Whether the images of an entry were replaced.
    pub(crate) fn has_dropped_images(&self, id: &str) -> bool {
        self.decisions.entries.state().images.contains(id)
    }

    /// Time of the last pruning.
    pub(crate) fn pruned_at_ms(&self) -> Option<i64> {
        self.decisions.pruned_at_ms
    }

    /// Whether any result was pruned.
    pub(crate) fn has_pruned(&self) -> bool {
        !self.decisions.entries.state().pruned.is_empty()
    }

    /// Whether the arguments of any call were cut.
    pub(crate) fn has_cut_arguments(&self) -> bool {
        !self.decisions.entries.state().arguments.is_empty()
    }

    /// The blob handle of a stored original.
    pub(crate) fn blob_handle(&self, id: &str) -> Option<&str> {
        self.decisions.stored_originals.get(id).map(String::as_str)
    }

    fn set_stored_original(&mut self, id: &str, handle: String) {
        self.is_changed = true;
        self.decisions.stored_originals.insert(id.to_owned(), handle);
    }

    pub(crate) fn set_reduced(&mut self, id: &str, limit_chars: u64) {
        if self.reduced_limit(id) != Some(limit_chars) {
            self.decide().reduced.insert(id.to_owned(), limit_chars);
        }
    }

    pub(crate) fn set_pruned(&mut self, id: &str, pruned: PruneLevel) {
        if self.prune_level(id) != Some(pruned) {
            self.decide().pruned.insert(id.to_owned(), pruned);
        }
    }

    pub(crate) fn set_arguments_cut(&mut self, id: &str) {
        if !self.is_cut_call(id) {
            self.decide().arguments.insert(id.to_owned());
        }
    }

    pub(crate) fn set_images_dropped(&mut self, id: &str) {
        if !self.has_dropped_images(id) {
            self.decide().images.insert(id.to_owned());
        }
    }

    fn decide(&mut self) -> &mut EntryDecisions {
        self.is_changed = true;
        self.decisions.entries.decide()
    }

    /// Uses the decisions of a budget until the next one is selected.
    fn select_budget(&mut self, budget_tokens: u64) {
        self.decisions.entries.select(budget_tokens);
    }

    pub(crate) fn set_pruned_at(&mut self, now_ms: i64) {
        self.is_changed |= self.decisions.pruned_at_ms != Some(now_ms);
        self.decisions.pruned_at_ms = Some(now_ms);
    }

    /// Drops the decisions about entries that a compaction removed.
    fn drop_removed_entries(&mut self, transcript: &Transcript) {
        let StoredDecisions { entries, stored_originals, .. } = &mut self.decisions;
        let EntryDecisions { reduced, pruned, arguments, images, epoch } = entries.state_mut();
        if *epoch == transcript.epoch() {
            return;
        }
        *epoch = transcript.epoch();
        // Without this the stored value would grow with every compaction.
        let live: HashSet<&str> = transcript.iter().map(|entry| entry.id()).collect();
        reduced.retain(|id, _| live.contains(id.as_str()));
        pruned.retain(|id, _| live.contains(id.as_str()));
        arguments.retain(|id| live.contains(id.as_str()));
        images.retain(|id| live.contains(id.as_str()));
        stored_originals.retain(|id, _| live.contains(id.as_str()));
    }

    fn take_changes(&mut self) -> Option<String> {
        let is_changed = std::mem::take(&mut self.is_changed);
        is_changed.then(|| serde_json::to_string(&self.decisions).ok()).flatten()
    }
}

/// The decisions of all sessions.
#[derive(Debug, Default)]
pub(crate) struct DecisionStore {
    sessions: SessionMap<SessionDecisions>,
    warned: Mutex<HashSet<String>>,
}

impl DecisionStore {
    /// Loads the stored decisions of a session once. A failing store is logged; decisions then
    /// start empty.
    pub(crate) async fn load(&self, host: &Host, session: &SessionRef) {
        if self.sessions.with_session(session, |decisions| decisions.is_loaded) {
            return;
        }
        let mut loaded = StoredDecisions::default();
        if has_key_value_store(host) {
            match host.kv_get(&session_key(KEY_PREFIX, session)).await {
                Ok(Some(text)) => match serde_json::from_str(&text) {
                    Ok(decisions) => loaded = decisions,
                    Err(error) => self.warn_once(host, "stored decisions are unreadable", &error),
                },
                Ok(None) => {}
                Err(error) => self.warn_once(host, "stored decisions could not be read", &error),
            }
        }
        self.sessions.with_session(session, |decisions| {
            // Also after a failure: a store that fails once must not be asked in every request.
            let default = SessionDecisions::default();
            *decisions = SessionDecisions { is_loaded: true, decisions: loaded, ..default };
        });
    }

    /// Stores changed decisions. A failing store is logged.
    pub(crate) async fn store(&self, host: &Host, session: &SessionRef) {
        // Taken even without a store, or the changes would be serialised again each time.
        let Some(changes) = self.sessions.with_session(session, SessionDecisions::take_changes)
        else {
            return;
        };
        if !has_key_value_store(host) {
            return;
        }
        if let Err(error) = host.kv_put(&session_key(KEY_PREFIX, session), &changes).await {
            self.warn_once(host, "new decisions could not be stored", &error);
        }
    }

    /// The limit of a result set by the aggregate rule for a budget, in weighted characters.
    pub(crate) fn reduced_limit(
        &self,
        session: &SessionRef,
        budget_tokens: u64,
        id: &str,
    ) -> Option<u64> {
        self.sessions.with_session(session, |decisions| {
            decisions.select_budget(budget_tokens);
            decisions.reduced_limit(id)
        })
    }

    /// Stores the texts of results as blobs, once each. On failure only the session keeps the
    /// original.
    pub(crate) async fn store_originals<'t>(
        &self,
        host: &Host,
        session: &SessionRef,
        results: impl Iterator<Item = Entry<'t>>,
    ) {
        if !has_capability(host, capability::BLOB) {
            return;
        }
        for entry in results {
            let id = entry.id();
            if self.sessions.with_session(session, |decisions| decisions.blob_handle(id).is_some())
            {
                continue;
            }
            match host.blob_put(entry.text().as_bytes().to_vec()).await {
                Ok(handle) => self
                    .sessions
                    .with_session(session, |decisions| decisions.set_stored_original(id, handle)),
                Err(error) => {
                    let sentence = format!("a large result could not be stored as a blob: {error}");
                    // The next one would fail as well.
                    return self.log_once(host, &sentence);
                }
            }
        }
    }

    /// The blob handle of a stored original.
    pub(crate) fn blob_handle(&self, session: &SessionRef, id: &str) -> Option<String> {
        self.sessions
            .with_session(session, |decisions| decisions.blob_handle(id).map(str::to_owned))
    }

    /// Runs `work` on the decisions of a session for a budget; never held across an `await`.
    pub(crate) fn with_session<T>(
        &self,
        session: &SessionRef,
        transcript: &Transcript,
        budget_tokens: u64,
        work: impl FnOnce(&mut SessionDecisions) -> T,
    ) -> T {
        self.sessions.with_session(session, |decisions| {
            decisions.select_budget(budget_tokens);
            decisions.drop_removed_entries(transcript);
            work(decisions)
        })
    }

    /// Whether a warning is new.
    pub(crate) fn is_new_warning(&self, sentence: &str) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.insert(sentence.to_owned())
    }

    /// Drops the decisions in memory; stored ones stay.
    pub(crate) fn clear(&self) {
        self.sessions.clear();
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn warn_once(&self, host: &Host, what: &str, error: &dyn std::fmt::Display) {
        let sentence = format!("{what}: {error}; cached prefixes may be lost after a restart");
        self.log_once(host, &sentence);
    }

    fn log_once(&self, host: &Host, sentence: &str) {
        if self.is_new_warning(sentence) {
            host.log(LogLevel::Warn, sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_are_written() {
        let mut decisions = SessionDecisions::default();
        assert_eq!(decisions.take_changes(), None);
        decisions.set_reduced("b", 7);
        decisions.set_pruned("a", PruneLevel::Soft);
        let changes = decisions.take_changes().unwrap();
        assert_eq!(
            changes,
            r#"{"reduced":{"b":7},"pruned":{"a":"soft"},"arguments":[],"images":[],"prunedAtMs":null}"#
        );
        assert_eq!(serde_json::from_str::<StoredDecisions>(&changes).unwrap(), decisions.decisions);
        decisions.set_reduced("b", 7);
        decisions.set_pruned("a", PruneLevel::Soft);
        assert_eq!(decisions.take_changes(), None, "unchanged");
        decisions.set_pruned("a", PruneLevel::Hard);
        assert!(decisions.take_changes().is_some());
    }

    #[test]
    fn decisions_of_an_older_version_count_until_a_small_budget_decides() {
        let old = r#"{"reduced":{"b":7},"pruned":{},"arguments":[],"images":[],"prunedAtMs":null}"#;
        let stored: StoredDecisions = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&stored).unwrap(), old);
        let mut decisions = SessionDecisions { decisions: stored, ..SessionDecisions::default() };
        let limits =
            |decisions: &SessionDecisions| ["a", "b"].map(|id| decisions.reduced_limit(id));
        decisions.select_budget(200_000);
        assert_eq!(limits(&decisions), [None, Some(7)]);
        decisions.select_budget(10_000);
        decisions.set_reduced("a", 5);
        decisions.select_budget(200_000);
        assert_eq!(limits(&decisions), [None, None]);
        let json = decisions.take_changes().unwrap();
        let stored = serde_json::from_str(&json).unwrap();
        let mut again = SessionDecisions { decisions: stored, ..SessionDecisions::default() };
        again.select_budget(10_000);
        assert_eq!(limits(&again), [Some(5), Some(7)]);
    }
}

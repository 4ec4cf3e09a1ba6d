//! Measures whether requests contain the identifiers that their answers use.
//!
//! An identifier (path, URL, hash, long number) is needed if an answer of the recording uses it again after a pause. It
//! is kept if it occurs anywhere in the answered request. `ctxhost-retention` decides what an identifier is.

use std::collections::HashMap;

use ctxhost_engine_api::{Entry, PlanItem};

use super::prefix;
use ctxhost_retention as retention;

/// Entries without an identifier before its next use counts. Recent entries are in every request; 20 entries are about
/// ten steps of a coding agent.
const PAUSE_ENTRIES: u64 = 20;

/// Counts needed and kept identifiers. Each text is searched once.
#[derive(Default)]
pub(super) struct IdentifierMeter {
    /// The number of each identifier.
    numbers: HashMap<String, usize>,
    /// The entry of its last use, by number.
    last_named: Vec<u64>,
    /// The identifiers of an item, by its identity.
    named: HashMap<u64, Vec<usize>>,
    entries: u64,
    needed: u64,
    kept: u64,
}

impl IdentifierMeter {
    /// Records an answer to a request of these items.
    pub(super) fn record_answer(&mut self, items: &[PlanItem<'_>], answer: &Entry<'_>) {
        let named = self.identifiers_of(&PlanItem::Kept(*answer)).to_vec();
        let mut missing: Vec<usize> = named.into_iter().filter(|n| self.is_recalled(*n)).collect();
        let needed = missing.len() as u64;
        for item in items {
            // Most answers need nothing, and their requests are not searched.
            if missing.is_empty() {
                break;
            }
            let shown = self.identifiers_of(item);
            missing.retain(|number| shown.binary_search(number).is_err());
        }
        self.needed += needed;
        self.kept += needed - missing.len() as u64;
    }

    /// Records an entry of the recording.
    pub(super) fn record_entry(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        for number in self.identifiers_of(&PlanItem::Kept(*entry)).to_vec() {
            if let Some(last) = self.last_named.get_mut(number) {
                *last = self.entries;
            }
        }
    }

    /// The numbers of needed and of kept identifiers.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.needed, self.kept)
    }

    fn is_recalled(&self, number: usize) -> bool {
        let last = self.last_named.get(number).copied().unwrap_or(0);
        last > 0 && self.entries - last >= PAUSE_ENTRIES
    }

    /// The numbers of an item's identifiers, sorted and unique.
    fn identifiers_of(&mut self, item: &PlanItem<'_>) -> &[usize] {
        let identity = prefix::identity(item);
        // Most items recur in many requests.
        if !self.named.contains_key(&identity) {
            let texts = retention::texts_of(item);
            let found = texts.iter().flat_map(|text| retention::names_in(text));
            let found: Vec<String> = found.collect();
            let mut numbers: Vec<_> = found.into_iter().map(|name| self.number_of(name)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            self.named.insert(identity, numbers);
        }
        self.named.get(&identity).map_or(&[], Vec::as_slice)
    }

    fn number_of(&mut self, identifier: String) -> usize {
        let next = self.last_named.len();
        let number = *self.numbers.entry(identifier).or_insert(next);
        if number == next {
            self.last_named.push(0);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;
    use ctxhost_engine_api::{Plan, Role, Transcript};

    use super::*;

    /// Makes the plan for the answer at a position.
    type Shape = fn(&Transcript, u64) -> Plan;

    /// Measures a transcript as a replay does.
    fn measured(transcript: &Transcript, shape: Shape) -> (u64, u64) {
        let mut meter = IdentifierMeter::default();
        for entry in transcript.iter() {
            if entry.role() == Role::Assistant {
                let plan = shape(transcript, entry.seq());
                meter.record_answer(&plan.project(transcript), &entry);
            }
            meter.record_entry(&entry);
        }
        meter.counts()
    }

    fn whole(_: &Transcript, until: u64) -> Plan {
        let mut plan = Plan::default();
        plan.keep(0..until);
        plan
    }

    fn newest_four(_: &Transcript, until: u64) -> Plan {
        let mut plan = Plan::default();
        plan.keep(until.saturating_sub(4)..until);
        plan
    }

    fn with_a_note(transcript: &Transcript, until: u64) -> Plan {
        let mut plan = Plan::default();
        plan.insert(Role::User, "earlier: commit deadbeefcafe01", 0..0);
        plan.ops.extend(newest_four(transcript, until).ops);
        plan
    }

    fn a_path_and_a_hash(pause_entries: usize) -> TranscriptBuilder {
        let mut talk = TranscriptBuilder::new();
        talk.user("look at /srv/app/main.rs, commit deadbeefcafe01");
        for _ in 0..pause_entries {
            talk.assistant("continuing");
        }
        talk.calls(&[("a", "edit", r#"{"path": "line\n/srv/app/main.rs"}"#)]);
        talk.result("a", "edit", "done")
            .assistant("/srv/app/main.rs is changed since DEADBEEFCAFE01");
        talk
    }

    #[test]
    fn identifiers_used_after_a_pause_are_needed() {
        let talk = a_path_and_a_hash(PAUSE_ENTRIES as usize);
        let transcript = talk.transcript();
        assert_eq!(
            measured(&transcript, whole),
            (2, 2),
            "the path of the call, the hash of the text"
        );
        assert_eq!(measured(&transcript, newest_four), (2, 0));
        assert_eq!(measured(&transcript, with_a_note), (2, 1), "a summary may contain it");
    }

    #[test]
    fn recent_identifiers_are_not_needed() {
        let talk = a_path_and_a_hash(PAUSE_ENTRIES as usize / 2);
        assert_eq!(measured(&talk.transcript(), newest_four), (0, 0));
    }
}

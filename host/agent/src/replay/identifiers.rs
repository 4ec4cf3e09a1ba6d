//! Measures whether requests contain the identifiers that their answers use.
//!
//! An identifier (path, URL, hash, long number) is needed if an answer of the recording uses it again after a pause. It
//! is kept if it occurs anywhere in the answered request, also as the end of a longer path. `ctxhost-retention` decides what an identifier is.

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
    named: HashMap<u64, ItemIdentifiers>,
    entries: u64,
    needed: u64,
    kept: u64,
}

/// The numbers of an item's identifiers, sorted and unique.
#[derive(Clone, Default)]
struct ItemIdentifiers {
    /// What the item names.
    named: Vec<usize>,
    /// What can be read in it: these, and the ends of its paths, `b/c.rs` of `a/b/c.rs`.
    shown: Vec<usize>,
}

impl IdentifierMeter {
    /// Records an answer to a request of these items.
    pub(super) fn record_answer(&mut self, items: &[PlanItem<'_>], answer: &Entry<'_>) {
        let named = self.identifiers_of(&PlanItem::Kept(*answer)).named.clone();
        let mut missing: Vec<usize> = named.into_iter().filter(|n| self.is_recalled(*n)).collect();
        let needed = missing.len() as u64;
        for item in items {
            // Most answers need nothing, and their requests are not searched.
            if missing.is_empty() {
                break;
            }
            let shown = &self.identifiers_of(item).shown;
            missing.retain(|number| shown.binary_search(number).is_err());
        }
        self.needed += needed;
        self.kept += needed - missing.len() as u64;
    }

    /// Records an entry of the recording.
    pub(super) fn record_entry(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        for number in self.identifiers_of(&PlanItem::Kept(*entry)).named.clone() {
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

    fn identifiers_of(&mut self, item: &PlanItem<'_>) -> &ItemIdentifiers {
        let identity = prefix::identity(item);
        // Most items recur in many requests.
        if !self.named.contains_key(&identity) {
            let texts = retention::texts_of(item);
            let found: Vec<String> =
                texts.iter().flat_map(|text| retention::names_in(text)).collect();
            let named: Vec<usize> = found.iter().map(|name| self.number_of(name)).collect();
            let ends = found.iter().flat_map(|name| path_ends(name));
            let ends: Vec<usize> = ends.map(|end| self.number_of(end)).collect();
            let shown = sorted([named.as_slice(), &ends].concat());
            self.named.insert(identity, ItemIdentifiers { named: sorted(named), shown });
        }
        self.named.entry(identity).or_default()
    }

    fn number_of(&mut self, identifier: &str) -> usize {
        let next = self.last_named.len();
        let number = match self.numbers.get(identifier) {
            Some(number) => *number,
            None => *self.numbers.entry(identifier.to_owned()).or_insert(next),
        };
        if number == next {
            self.last_named.push(0);
        }
        number
    }
}

/// The ends of a path that are paths or file names too.
fn path_ends(name: &str) -> impl Iterator<Item = &str> {
    let breaks = name.match_indices(['/', '\\']).map(|(at, _)| at + 1);
    breaks.filter_map(|at| name.get(at..)).filter(|end| !end.is_empty())
}

fn sorted(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
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

    #[test]
    fn the_end_of_a_longer_path_is_shown() {
        let talk = a_path_and_a_hash(PAUSE_ENTRIES as usize);
        let shape: Shape = |transcript, until| {
            let mut plan = Plan::default();
            plan.insert(Role::User, "earlier: /mnt/x/srv/app/main.rs.bak", 0..0);
            plan.insert(Role::User, "earlier: /mnt/srv/app/main.rs", 0..0);
            plan.ops.extend(newest_four(transcript, until).ops);
            plan
        };
        assert_eq!(measured(&talk.transcript(), shape), (2, 0), "its beginning is missing");
        let ends: Vec<&str> = path_ends("C:\\a\\b/c.rs").collect();
        assert_eq!(ends, ["a\\b/c.rs", "b/c.rs", "c.rs"]);

        let mut talk = TranscriptBuilder::new();
        talk.user("read /srv/app/src/main.rs");
        for _ in 0..PAUSE_ENTRIES {
            talk.assistant("main.rs, src/main.rs");
        }
        talk.assistant("continuing");
        let mut meter = IdentifierMeter::default();
        let transcript = talk.transcript();
        transcript.iter().for_each(|entry| meter.record_entry(&entry));
        for _ in 0..PAUSE_ENTRIES {
            meter.entries += 1;
        }
        let (first, last) = (transcript.get(0).unwrap(), transcript.get(1).unwrap());
        meter.record_answer(&[PlanItem::Kept(first)], &last);
        assert_eq!(meter.counts(), (2, 2), "both are ends of the shown path");
    }
}

//! The replaced entries of a session: decided once, so that cached prefixes stay valid.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Range;

use ctxhost_engine_api::{Entry, Plan, Transcript};
use foldhash::quality::FixedState;

use super::{Replacement, keep_with_replacements};

/// The replacements of one session, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplacementMap {
    by_seq: BTreeMap<u64, MappedReplacement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MappedReplacement {
    /// Id of the entry; positions change with each compaction.
    id: String,
    /// Hash of what it replaces. An edited entry keeps its id.
    replaced: u64,
    shown: Replacement,
    saved_tokens: u64,
}

impl ReplacementMap {
    /// Replaces an entry from now on, if that saves tokens.
    pub fn insert(&mut self, entry: &Entry<'_>, shown: Replacement) {
        let saved_tokens = entry.tokens().saturating_sub(shown.tokens());
        // A replacement that saves nothing would change cached bytes for no gain.
        if saved_tokens > 0 {
            let (id, replaced) = (entry.id().to_owned(), content_hash(entry));
            let rewrite = MappedReplacement { id, replaced, shown, saved_tokens };
            self.by_seq.insert(entry.seq(), rewrite);
        }
    }

    /// Adds the replacements of another map over the same transcript.
    pub fn extend(&mut self, other: &ReplacementMap) {
        let pairs = other.by_seq.iter().map(|(seq, rewrite)| (*seq, rewrite.clone()));
        self.by_seq.extend(pairs);
    }

    /// Removes all replacements.
    pub fn clear(&mut self) {
        self.by_seq.clear();
    }

    /// Moves the replacements to the positions of their entries in another transcript and drops the
    /// others. Returns the position behind the last one, but none behind an entry whose content has changed since: a
    /// replacement made of the old content may hold what the entry has no more, such as thinking.
    pub fn rebase(&mut self, transcript: &Transcript) -> u64 {
        let old = std::mem::take(&mut self.by_seq).into_values();
        let mut by_id: HashMap<String, MappedReplacement> =
            old.map(|old| (old.id.clone(), old)).collect();
        let (mut end, mut changed) = (0, None);
        for entry in transcript.iter() {
            match by_id.remove(entry.id()) {
                Some(rewrite) if rewrite.replaced == content_hash(&entry) => {
                    end = entry.seq() + 1;
                    self.by_seq.insert(entry.seq(), rewrite);
                }
                Some(_) => changed = changed.or(Some(entry.seq())),
                None => {}
            }
        }
        changed.map_or(end, |changed| end.min(changed))
    }

    /// The replacement of an entry.
    pub fn get(&self, seq: u64) -> Option<&Replacement> {
        self.by_seq.get(&seq).map(|rewrite| &rewrite.shown)
    }

    /// Tokens saved in a range.
    pub fn saved_tokens(&self, range: Range<u64>) -> u64 {
        self.by_seq.range(range).map(|(_, rewrite)| rewrite.saved_tokens).sum()
    }

    /// Size of a transcript with its replacements, in tokens.
    pub fn shown_tokens(&self, transcript: &Transcript) -> u64 {
        let saved_tokens = self.saved_tokens(0..transcript.len() as u64);
        transcript.total_tokens().saturating_sub(saved_tokens)
    }

    /// Keeps a range with its replacements.
    pub fn keep_range(&self, plan: &mut Plan, range: Range<u64>) {
        let shown = self.by_seq.range(range.clone());
        keep_with_replacements(plan, range, shown.map(|(seq, rewrite)| (*seq, &rewrite.shown)));
    }

    /// The plan that keeps the whole transcript with its replacements.
    pub fn plan(&self, transcript: &Transcript) -> Plan {
        let mut plan = Plan::default();
        self.keep_range(&mut plan, 0..transcript.len() as u64);
        plan.estimated_tokens = self.shown_tokens(transcript);
        plan
    }
}

fn content_hash(entry: &Entry<'_>) -> u64 {
    FixedState::default().hash_one((entry.raw(), entry.text()))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn reads(talk: &mut TranscriptBuilder, numbers: Range<usize>) {
        for number in numbers {
            let id = format!("c{number}");
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"some text ".repeat(40));
        }
    }

    #[test]
    fn what_was_decided_comes_out_the_same_when_the_transcript_grows() {
        let mut talk = TranscriptBuilder::new();
        reads(&mut talk, 0..3);
        let first = talk.transcript();
        let mut rewrites = ReplacementMap::default();
        rewrites.insert(&first.get(1).unwrap(), Replacement::from_text("short", "test", "why"));
        rewrites.insert(
            &first.get(3).unwrap(),
            Replacement::from_text("long ".repeat(400), "test", "why"),
        );
        assert_eq!(rewrites.get(3), None, "longer than before");
        let before = rewrites.plan(&first);
        reads(&mut talk, 3..5);
        let later = talk.transcript();
        let plan = rewrites.plan(&later);
        assert_eq!(plan.ops[..2], before.ops[..2]);
        let cost: u64 = plan.project(&later).iter().map(|item| item.tokens()).sum();
        assert_eq!(cost, plan.estimated_tokens);
        assert_eq!(cost + rewrites.saved_tokens(0..talk.len()), later.total_tokens());
    }

    #[test]
    fn decisions_follow_their_entries() {
        let mut talk = TranscriptBuilder::new();
        reads(&mut talk, 0..3);
        let mut rewrites = ReplacementMap::default();
        let transcript = talk.transcript();
        for seq in [1, 3] {
            rewrites
                .insert(&transcript.get(seq).unwrap(), Replacement::from_text("short", "test", ""));
        }
        let before = rewrites.clone();
        assert_eq!(rewrites.rebase(&transcript), 4);
        assert_eq!(rewrites, before);
        assert_eq!(rewrites.rebase(&TranscriptBuilder::with_epoch(1).transcript()), 0);
        assert_eq!(rewrites, ReplacementMap::default());
    }

    #[test]
    fn a_decision_ends_with_the_content_that_it_was_made_for() {
        let talk = |call: &str| {
            let mut talk = TranscriptBuilder::new();
            reads(&mut talk, 0..1);
            talk.calls(&[("c", call, "{}")]).result("c", call, &"some text ".repeat(40));
            reads(&mut talk, 1..2);
            talk.transcript()
        };
        let (before, after) = (talk("read"), talk("write"));
        let mut rewrites = ReplacementMap::default();
        for seq in [1, 2, 5] {
            let entry = before.get(seq).unwrap();
            rewrites.insert(&entry, Replacement::from_text("-", "test", ""));
        }
        assert!(rewrites.get(2).is_some(), "the call is replaced");
        // The builder names entries by their positions, so the edited one keeps its id.
        assert_eq!(before.get(2).unwrap().id(), after.get(2).unwrap().id());
        assert_eq!(rewrites.rebase(&after), 2, "decided again from the edited entry on");
        assert_eq!([1, 2, 5].map(|seq| rewrites.get(seq).is_some()), [true, false, true]);
    }
}

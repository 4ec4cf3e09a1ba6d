//! Previews: of tool results too large for the window, head and important tail.
//!
//! The results of one round share one limit, so that what a single reply brings in never fills the
//! window by itself. A preview depends on its round and on the limit alone: it never changes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, estimate};
use ctxhost_engine_api::{Entry, Flags, Plan, Role, Transcript};
use ctxhost_engine_kit::text::{Limit, grouped, truncate};
use ctxhost_engine_kit::turns::Reading;

/// The layer that notes of plans name.
const LAYER: &str = "preview";

/// The previews of one session, by position.
#[derive(Debug, Default)]
pub(crate) struct Previews {
    reading: Reading,
    limit_tokens: u64,
    cuts: BTreeMap<u64, Preview>,
}

/// A result as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    pub(crate) text: String,
    pub(crate) saved_tokens: u64,
    detail: String,
}

impl Previews {
    /// Looks at what is new, once; at everything where the transcript or the limit is another one.
    pub(crate) fn follow(&mut self, transcript: &Transcript, limit_tokens: u64) {
        let mut new = self.reading.advance(transcript);
        if self.limit_tokens != limit_tokens {
            self.limit_tokens = limit_tokens;
            new.start = 0;
        }
        if new.start == 0 {
            self.cuts.clear();
        }
        let mut at = transcript.cut_at_or_before(new.start);
        while at < new.end {
            let end = transcript.cut_at_or_after(at + 1);
            self.look_at(transcript, at..end);
            at = end;
        }
    }

    /// How a result is shown; `None` for one that is shown as it is.
    pub(crate) fn get(&self, seq: u64) -> Option<&Preview> {
        self.cuts.get(&seq)
    }

    /// What the previews of a range save.
    pub(crate) fn saved_tokens(&self, range: Range<u64>) -> u64 {
        self.cuts.range(range).map(|(_, preview)| preview.saved_tokens).sum()
    }

    /// Keeps a range with its previews.
    pub(crate) fn keep(&self, plan: &mut Plan, range: Range<u64>) {
        let mut from = range.start;
        for (seq, preview) in self.cuts.range(range.clone()) {
            plan.keep(from..*seq);
            preview.put_in(plan, *seq);
            from = seq + 1;
        }
        plan.keep(from..range.end);
    }

    /// A round over the limit: each of its results that takes more than an even share is cut to it.
    fn look_at(&mut self, transcript: &Transcript, round: Range<u64>) {
        let is_result = |entry: &Entry<'_>| entry.role() == Role::Tool && !entry.has(Flags::ORPHAN);
        let results = || transcript.range(round.clone()).filter(is_result);
        if results().map(|entry| entry.tokens()).sum::<u64>() <= self.limit_tokens {
            return;
        }
        let share_tokens = self.limit_tokens / (results().count() as u64).max(1);
        for entry in results().filter(|entry| entry.tokens() > share_tokens) {
            if let Some(preview) = Preview::of(&entry, share_tokens * CHARS_PER_TOKEN) {
                self.cuts.insert(entry.seq(), preview);
            }
        }
    }
}

impl Preview {
    fn of(entry: &Entry<'_>, limit_chars: u64) -> Option<Preview> {
        let limit = Limit { min_keep_chars: limit_chars / 4, ..Limit::chars(limit_chars) };
        let notice = |count| format!("\n[{count} more characters; read the part you need]");
        let Cow::Owned(text) = truncate(entry.text(), limit, notice) else { return None };
        let tokens = estimate(&text);
        let saved_tokens = entry.tokens().saturating_sub(tokens);
        let detail = format!("{} -> {} tokens", grouped(entry.tokens()), grouped(tokens));
        let says_something = saved_tokens > 0 && !text.trim().is_empty();
        says_something.then_some(Preview { text, saved_tokens, detail })
    }

    pub(crate) fn put_in(&self, plan: &mut Plan, seq: u64) {
        plan.replace_text(seq, self.text.as_str()).note(LAYER, self.detail.as_str());
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::Conversation;

    use super::*;

    fn round(sizes: &[usize]) -> Conversation {
        let mut talk = Conversation::new();
        let ids: Vec<String> = (0..sizes.len()).map(|at| format!("c{at}")).collect();
        talk.user("read")
            .calls(&ids.iter().map(|id| (id.as_str(), "read", "{}")).collect::<Vec<_>>());
        ids.iter()
            .zip(sizes)
            .for_each(|(id, size)| _ = talk.result(id, "read", &"text\n".repeat(*size)));
        talk
    }

    fn shown_tokens(previews: &mut Previews, talk: &Conversation, limit_tokens: u64) -> Vec<u64> {
        let transcript = talk.transcript();
        previews.follow(&transcript, limit_tokens);
        let mut plan = Plan::default();
        previews.keep(&mut plan, 0..talk.len());
        let items = plan.project(&transcript);
        let tokens: u64 = items.iter().map(|item| item.tokens()).sum();
        assert_eq!(tokens + previews.saved_tokens(0..talk.len()), transcript.total_tokens());
        items.iter().filter(|item| item.role() == Role::Tool).map(|item| item.tokens()).collect()
    }

    #[test]
    fn the_results_of_a_round_share_its_limit() {
        let talk = round(&[800, 8_000, 40]);
        let mut previews = Previews::default();
        assert_eq!(shown_tokens(&mut previews, &talk, 20_000), [1_000, 10_000, 50]);
        let shown = shown_tokens(&mut previews, &talk, 3_000);
        assert!((900..=1_000).contains(&shown[1]), "{shown:?}");
        assert_eq!((shown[0], shown[2]), (1_000, 50));
    }

    #[test]
    fn what_was_cut_is_cut_the_same_way_when_the_transcript_grows() {
        let mut talk = round(&[8_000]);
        let mut previews = Previews::default();
        shown_tokens(&mut previews, &talk, 1_000);
        let before = previews.cuts.clone();
        talk.assistant("done").calls(&[("n", "ls", "{}")]).result("n", "ls", "a");
        shown_tokens(&mut previews, &talk, 1_000);
        assert_eq!((previews.cuts, before.len()), (before, 1));
    }
}

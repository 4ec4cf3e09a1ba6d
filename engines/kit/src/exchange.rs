//! The newest exchange: the newest request, and the answer before it, which the request refers to.
//!
//! ```text
//!  … [call result] [answer] [request] [call result] …
//!                  └ whole in half of the budget, else cut to it
//! ```

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, group_thousands};
use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};

use crate::calls::render_result_line;
use crate::caps::{LEAST_RESULT_CHARS, argument_cap_chars, cut_arguments, cut_result, fair_cap};
use crate::cuts::frame_around;
use crate::replacement::{Replacement, ReplacementMap};
use ctxhost_text::truncate::head_and_tail;

/// Layer name in plan notes.
const LAYER: &str = "newest exchange";
/// Part of the budget for the newest request with the answer before it.
// The other half is for the summary and the entries after the request.
const BUDGET_PART: u64 = 2;
/// Size of the notice in a cut text, in weighted characters.
const NOTICE_CHARS: u64 = 60;

/// The answer before the newest request, with what of it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestExchange {
    answer: Range<u64>,
    tokens: u64,
    cuts: ReplacementMap,
}

impl NewestExchange {
    /// The answer in the room that the request leaves of half of the budget; each further attempt
    /// halves the room. `shown` are the entries that the engine shows otherwise. `None` without an
    /// answer or room.
    pub fn fit(
        transcript: &Transcript,
        budget_tokens: u64,
        attempt: u32,
        shown: &ReplacementMap,
    ) -> Option<NewestExchange> {
        let request = transcript.newest_user_message()?;
        let answer = answer_before(transcript, request.frame())?;
        let half_tokens = budget_tokens / BUDGET_PART;
        let room_tokens = half_tokens >> attempt.saturating_sub(1).min(u64::BITS - 1);
        let room_tokens = room_tokens.checked_sub(request.tokens())?;
        let fitting = AnswerFitting { transcript, answer: answer.clone(), shown, room_tokens };
        let cuts = fitting.cut()?;
        let tokens = fitting.tokens(|entry| cuts.get(entry.seq()));
        Some(NewestExchange { answer, tokens, cuts })
    }

    /// The positions of the answer: one message, or calls with their results.
    pub fn answer(&self) -> Range<u64> {
        self.answer.clone()
    }

    /// Size of the answer as shown, in tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The entries of the answer that are cut; empty if it fits whole.
    pub fn cuts(&self) -> &ReplacementMap {
        &self.cuts
    }

    /// Whether a part of the answer is left out.
    pub fn is_cut(&self) -> bool {
        self.cuts != ReplacementMap::default()
    }
}

/// The frame of the last answer before `end`, unless a summary is newer.
fn answer_before(transcript: &Transcript, end: u64) -> Option<Range<u64>> {
    let newest_first = transcript.range(0..end).rev();
    let is_answer = |entry: &Entry<'_>| {
        matches!(entry.role(), Role::Assistant | Role::Tool) && !entry.has(Flags::ORPHAN)
    };
    let since_summary = |entry: &Entry<'_>| entry.kind() != EntryKind::CompactionSummary;
    let answer = newest_first.take_while(since_summary).find(is_answer)?;
    Some(frame_around(transcript, answer.seq()))
}

/// Cuts an answer to its room.
struct AnswerFitting<'a> {
    transcript: &'a Transcript,
    answer: Range<u64>,
    shown: &'a ReplacementMap,
    room_tokens: u64,
}

impl<'a> AnswerFitting<'a> {
    fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'a>> {
        self.transcript.range(self.answer.clone())
    }

    fn results(&self) -> impl DoubleEndedIterator<Item = Entry<'a>> {
        self.entries().filter(|entry| entry.role() == Role::Tool)
    }

    fn entry_tokens(&self, entry: &Entry<'_>) -> u64 {
        self.shown.get(entry.seq()).map_or(entry.tokens(), Replacement::tokens)
    }

    fn tokens<'r>(&self, cut: impl Fn(&Entry<'_>) -> Option<&'r Replacement>) -> u64 {
        let size = |entry: Entry<'_>| {
            cut(&entry).map_or_else(|| self.entry_tokens(&entry), Replacement::tokens)
        };
        self.entries().map(size).sum()
    }

    /// The replacements with which the answer fits; `None` if it cannot.
    fn cut(&self) -> Option<ReplacementMap> {
        let mut cuts = ReplacementMap::default();
        if self.tokens(|_| None) <= self.room_tokens {
            return Some(cuts);
        }
        // With less room it would be all notices.
        if self.room_tokens * CHARS_PER_TOKEN < LEAST_RESULT_CHARS {
            return None;
        }
        self.cut_messages(&mut cuts);
        let results: Vec<u64> = self.results().map(|entry| self.entry_tokens(&entry)).collect();
        let all_tokens = self.tokens(|entry| cuts.get(entry.seq()));
        let others_tokens = all_tokens - results.iter().sum::<u64>();
        let room_tokens = self.room_tokens.checked_sub(others_tokens)?;
        match fair_cap(results, room_tokens) {
            None => {}
            Some(level) if level * CHARS_PER_TOKEN >= LEAST_RESULT_CHARS => {
                self.cut_results(level, &mut cuts);
            }
            Some(_) => self.drop_oldest_results(room_tokens, &mut cuts)?,
        }
        Some(cuts)
    }

    /// Cuts the text of an answer, or the arguments of its calls.
    fn cut_messages(&self, cuts: &mut ReplacementMap) {
        let answer = std::iter::once(self.answer.clone());
        let arguments = argument_cap_chars(self.transcript, answer, self.room_tokens);
        for entry in self.entries().filter(|entry| entry.role() == Role::Assistant) {
            let cut = match arguments {
                _ if !entry.has(Flags::TOOL_CALLS) => cut_text(&entry, self.room_tokens),
                Some(cap_chars) => cut_arguments(&entry, cap_chars, LAYER),
                None => None,
            };
            cut.into_iter().for_each(|shown| cuts.insert(&entry, shown));
        }
    }

    /// Cuts every result above a level, in tokens.
    fn cut_results(&self, level_tokens: u64, cuts: &mut ReplacementMap) {
        for entry in self.results().filter(|entry| self.entry_tokens(entry) > level_tokens) {
            // Cutting its text does not remove an image.
            let cut = if entry.has(Flags::IMAGES) {
                Some(self.line(&entry))
            } else {
                cut_result(&entry, level_tokens * CHARS_PER_TOKEN, LAYER)
            };
            cut.into_iter().for_each(|shown| cuts.insert(&entry, shown));
        }
    }

    /// Keeps the newest results that fit and replaces the others by lines; `None` if not even the
    /// lines fit.
    fn drop_oldest_results(&self, room_tokens: u64, cuts: &mut ReplacementMap) -> Option<()> {
        let line_tokens =
            |line: &Replacement, entry: &Entry<'_>| line.tokens().min(self.entry_tokens(entry));
        let lines: Vec<_> = self.results().map(|entry| (self.line(&entry), entry)).collect();
        let least_tokens = lines.iter().map(|(line, entry)| line_tokens(line, entry)).sum();
        let mut left_tokens = room_tokens.checked_sub(least_tokens)?;
        for (line, entry) in lines.into_iter().rev() {
            let whole_tokens = self.entry_tokens(&entry) - line_tokens(&line, &entry);
            match left_tokens.checked_sub(whole_tokens) {
                Some(left) => left_tokens = left,
                None => cuts.insert(&entry, line),
            }
        }
        Some(())
    }

    fn line(&self, entry: &Entry<'_>) -> Replacement {
        let line = render_result_line(self.transcript, entry, false);
        Replacement::from_text(line, LAYER, "a result as a line")
    }
}

/// Head and end of an answer in `room_tokens`; `None` if cutting the text does not shrink the entry.
fn cut_text(entry: &Entry<'_>, room_tokens: u64) -> Option<Replacement> {
    let room_chars = room_tokens * CHARS_PER_TOKEN;
    if entry.has(Flags::IMAGES) || entry.has(Flags::PINNED) {
        return None;
    }
    let half_chars = room_chars.saturating_sub(NOTICE_CHARS) / 2;
    let text = head_and_tail(entry.text(), half_chars, half_chars, "\n[the middle is left out]\n");
    let detail = format!("cut to {} chars", group_thousands(room_chars));
    let shown = Replacement::from_text(text, LAYER, detail);
    (shown.tokens() < entry.tokens()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn fit(talk: &TranscriptBuilder, budget_tokens: u64) -> Option<NewestExchange> {
        NewestExchange::fit(&talk.transcript(), budget_tokens, 1, &ReplacementMap::default())
    }

    fn wide(results: usize, chars: usize) -> TranscriptBuilder {
        let ids: Vec<String> = (0..results).map(|at| format!("c{at}")).collect();
        let mut talk = TranscriptBuilder::new();
        talk.user("run all")
            .calls(&ids.iter().map(|id| (&**id, "check", "{}")).collect::<Vec<_>>());
        ids.iter().for_each(|id| _ = talk.result(id, "check", &"x".repeat(chars)));
        talk.user("which failed?");
        talk
    }

    #[test]
    fn the_answer_before_the_newest_request_stays_whole_in_half_of_the_budget() {
        let mut talk = TranscriptBuilder::new();
        talk.user("write").assistant(&"old ".repeat(900)).user("again");
        talk.assistant(&"word ".repeat(3_000)).user("shorten it");
        let exchange = fit(&talk, 8_000).unwrap();
        assert_eq!((exchange.answer(), exchange.is_cut()), (3..4, false));
        // In the middle of the next turn it is still the same answer.
        talk.calls(&[("a", "read", "{}")]).result("a", "read", &"text ".repeat(500));
        assert_eq!(fit(&talk, 8_000).unwrap().answer(), 3..4);
    }

    #[test]
    fn a_longer_answer_is_cut_to_what_fits() {
        let mut talk = TranscriptBuilder::new();
        let text = format!("BEGIN {} END", "word ".repeat(3_000));
        talk.user("write").assistant(&text).user("shorten it");
        for (budget_tokens, attempt) in [(4_000, 1), (8_000, 2)] {
            let (transcript, shown) = (talk.transcript(), ReplacementMap::default());
            let exchange =
                NewestExchange::fit(&transcript, budget_tokens, attempt, &shown).unwrap();
            assert!((1_900..2_000).contains(&exchange.tokens()), "{}", exchange.tokens());
            let cut = format!("{:?}", exchange.cuts().get(1).unwrap());
            assert!(cut.contains("BEGIN") && cut.contains("END"));
        }
        assert_eq!(fit(&talk, 100), None);
    }

    #[test]
    fn the_newest_of_many_results_stay_whole() {
        let talk = wide(150, 900);
        let exchange = fit(&talk, 28_000).unwrap();
        assert!((13_000..=14_000).contains(&exchange.tokens()), "{}", exchange.tokens());
        let whole: Vec<u64> = (2..152).filter(|&seq| exchange.cuts().get(seq).is_none()).collect();
        assert_eq!(whole, ((152 - whole.len() as u64)..152).collect::<Vec<_>>());
        assert!(whole.len() > 30, "{}", whole.len());
    }

    #[test]
    fn a_few_large_results_share_the_room() {
        let exchange = fit(&wide(3, 40_000), 16_000).unwrap();
        assert!((7_700..8_000).contains(&exchange.tokens()), "{}", exchange.tokens());
        assert!((2..5).all(|seq| exchange.cuts().get(seq).is_some()));
    }

    #[test]
    fn a_summary_or_a_missing_answer_leaves_none() {
        let mut talk = TranscriptBuilder::with_epoch(1);
        assert_eq!(fit(&talk, 8_000), None);
        talk.summary("so far").user("go on");
        assert_eq!(fit(&talk, 8_000), None);
    }
}

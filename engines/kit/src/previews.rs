//! Previews: head and important tail of tool results that are too large for the window.
//!
//! The results of one round share one limit, so that a single reply never fills the window. A
//! preview depends only on its round and the limit, so its bytes never change.

use std::borrow::Cow;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, estimate, group_thousands};
use ctxhost_engine_api::{Entry, Flags, Role, Transcript};

use crate::cursor::TranscriptCursor;
use crate::replacement::{Replacement, ReplacementMap};
use ctxhost_text::truncate::{TextLimit, truncate};

/// Layer name in plan notes.
const LAYER: &str = "preview";

/// The previews of one session.
#[derive(Debug, Default)]
pub struct ResultPreviews {
    cursor: TranscriptCursor,
    limit_tokens: u64,
    rewrites: ReplacementMap,
}

impl ResultPreviews {
    /// Processes new entries, or all entries if the transcript or the limit changed.
    pub fn follow(&mut self, transcript: &Transcript, limit_tokens: u64) {
        let mut new = self.cursor.advance(transcript);
        // Another limit changes every preview, so all rounds are cut again.
        if self.limit_tokens != limit_tokens {
            self.limit_tokens = limit_tokens;
            new.start = 0;
        }
        if new.start == 0 {
            self.rewrites.clear();
        }
        // A round may have grown since the last call: start at its beginning.
        let mut at = transcript.cut_at_or_before(new.start);
        while at < new.end {
            let end = transcript.cut_at_or_after(at + 1);
            self.cut_round(transcript, at..end);
            at = end;
        }
    }

    /// The results that are replaced by previews.
    pub fn rewrites(&self) -> &ReplacementMap {
        &self.rewrites
    }

    /// Cuts each result of an oversized round that is above an even share.
    fn cut_round(&mut self, transcript: &Transcript, round: Range<u64>) {
        let is_result = |entry: &Entry<'_>| entry.role() == Role::Tool && !entry.has(Flags::ORPHAN);
        let results = || transcript.range(round.clone()).filter(is_result);
        if results().map(|entry| entry.tokens()).sum::<u64>() <= self.limit_tokens {
            return;
        }
        // An even share: results below it stay whole, so the round may end below its limit.
        let share_tokens = self.limit_tokens / (results().count() as u64).max(1);
        for entry in results().filter(|entry| entry.tokens() > share_tokens) {
            if let Some(preview) = preview_of(&entry, share_tokens * CHARS_PER_TOKEN) {
                self.rewrites.insert(&entry, preview);
            }
        }
    }
}

fn preview_of(entry: &Entry<'_>, limit_chars: u64) -> Option<Replacement> {
    let limit = TextLimit::with_max_chars(limit_chars).keeping(limit_chars / 4);
    let notice = |count| format!("\n[{count} more characters; read the part you need]");
    let Cow::Owned(text) = truncate(entry.text(), limit, notice) else { return None };
    let detail = format!(
        "{} → {} tokens",
        group_thousands(entry.tokens()),
        group_thousands(estimate(&text))
    );
    (!text.trim().is_empty()).then(|| Replacement::from_text(text, LAYER, detail))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn round(sizes: &[usize]) -> TranscriptBuilder {
        let mut talk = TranscriptBuilder::new();
        let ids: Vec<String> = (0..sizes.len()).map(|at| format!("c{at}")).collect();
        talk.user("read")
            .calls(&ids.iter().map(|id| (id.as_str(), "read", "{}")).collect::<Vec<_>>());
        ids.iter()
            .zip(sizes)
            .for_each(|(id, size)| _ = talk.result(id, "read", &"text\n".repeat(*size)));
        talk
    }

    fn shown_tokens(
        previews: &mut ResultPreviews,
        talk: &TranscriptBuilder,
        limit_tokens: u64,
    ) -> Vec<u64> {
        let transcript = talk.transcript();
        previews.follow(&transcript, limit_tokens);
        let plan = previews.rewrites().plan(&transcript);
        let items = plan.project(&transcript);
        let tokens: u64 = items.iter().map(|item| item.tokens()).sum();
        assert_eq!(tokens, plan.estimated_tokens);
        items.iter().filter(|item| item.role() == Role::Tool).map(|item| item.tokens()).collect()
    }

    #[test]
    fn the_results_of_a_round_share_its_limit() {
        let talk = round(&[800, 8_000, 40]);
        let mut previews = ResultPreviews::default();
        assert_eq!(shown_tokens(&mut previews, &talk, 20_000), [1_000, 10_000, 50]);
        let shown = shown_tokens(&mut previews, &talk, 3_000);
        assert!((900..=1_000).contains(&shown[1]), "{shown:?}");
        assert_eq!((shown[0], shown[2]), (1_000, 50));
    }

    #[test]
    fn what_was_cut_is_cut_the_same_way_when_the_transcript_grows() {
        let mut talk = round(&[8_000]);
        let mut previews = ResultPreviews::default();
        shown_tokens(&mut previews, &talk, 1_000);
        let before = previews.rewrites().clone();
        assert_ne!(before, ReplacementMap::default());
        talk.assistant("done").calls(&[("n", "ls", "{}")]).result("n", "ls", "a");
        shown_tokens(&mut previews, &talk, 1_000);
        assert_eq!(previews.rewrites(), &before);
    }
}

//! Selects the newest entries to keep: whole frames, then one frame with its results cut.
//!
//! ```text
//!  … [call result result] [call RESULT] [call result] [answer]      a frame is a call with its results
//!                          └ cut to fit └ whole ─────────────
//! ```

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::CHARS_PER_TOKEN;
use ctxhost_engine_api::{Entry, Flags, Role, Transcript};

use crate::caps::{LEAST_RESULT_CHARS, fair_cap};
use crate::cuts::trailing_frame;

/// A frame is cut only if at least this fraction of the room is left.
// With less room a cut frame would be all notices.
const LEAST_PART: u64 = 4;

/// The start of the kept tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptTail {
    /// Its first position.
    pub start: u64,
    /// Its first frame and the cap of each result in it, in weighted characters; `None` if no
    /// result is cut.
    pub cut: Option<(Range<u64>, u64)>,
}

/// The newest frames that take at most `keep_tokens`, measured by `cost`; at least the newest one.
/// If much room is left before a frame that does not fit, its results are cut to that room.
pub fn newest_within(
    transcript: &Transcript,
    keep_tokens: u64,
    cost: impl Fn(&Entry<'_>) -> u64,
) -> TranscriptTail {
    let mut start = trailing_frame(transcript);
    let all = |range: Range<u64>| transcript.range(range).map(|entry| cost(&entry)).sum::<u64>();
    let mut room = keep_tokens.saturating_sub(all(start..transcript.len() as u64));
    while start > 0 {
        let frame = transcript.cut_at_or_before(start - 1)..start;
        let Some(left) = room.checked_sub(all(frame.clone())) else {
            return cut_into(transcript, frame, room, keep_tokens / LEAST_PART, &cost)
                .unwrap_or(TranscriptTail { start, cut: None });
        };
        room = left;
        start = frame.start;
    }
    TranscriptTail { start, cut: None }
}

/// The tail of `keep_tokens`, longer than `shorter` by at least one frame while there is one.
pub fn lengthen(
    transcript: &Transcript,
    shorter: &TranscriptTail,
    keep_tokens: u64,
    cost: impl Fn(&Entry<'_>) -> u64,
) -> TranscriptTail {
    let longer = newest_within(transcript, keep_tokens, cost);
    if longer != *shorter && longer.start <= shorter.start {
        return longer;
    }
    // The frame before it has no result to cut, so it stays whole.
    let start = transcript.cut_at_or_before(shorter.start.saturating_sub(1));
    TranscriptTail { start, cut: None }
}

/// A tail whose first frame has its results cut, if that leaves enough of them.
fn cut_into(
    transcript: &Transcript,
    frame: Range<u64>,
    room_tokens: u64,
    least_tokens: u64,
    cost: &impl Fn(&Entry<'_>) -> u64,
) -> Option<TranscriptTail> {
    // Cutting text does not shrink a result that consists of images.
    let is_result = |entry: &Entry<'_>| entry.role() == Role::Tool && !entry.has(Flags::IMAGES);
    let costs = |wanted: bool| {
        let entries = transcript.range(frame.clone());
        entries.filter(move |entry| is_result(entry) == wanted).map(|entry| cost(&entry))
    };
    let results: Vec<u64> = costs(true).collect();
    let least_results = results.len() as u64 * LEAST_RESULT_CHARS / CHARS_PER_TOKEN;
    let room = room_tokens.checked_sub(costs(false).sum())?;
    // Results cut below their minimum would only be notices.
    if results.is_empty() || room < least_results || room_tokens < least_tokens {
        return None;
    }
    let cap_chars = fair_cap(results, room)? * CHARS_PER_TOKEN;
    Some(TranscriptTail { start: frame.start, cut: Some((frame, cap_chars)) })
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;
    use proptest::prelude::*;

    use super::*;

    fn rounds(sizes: &[usize]) -> Transcript {
        let mut talk = TranscriptBuilder::new();
        talk.user("go");
        for (at, size) in sizes.iter().enumerate() {
            let id = at.to_string();
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"x".repeat(size * 4));
        }
        talk.transcript()
    }

    fn tokens(entry: &Entry<'_>) -> u64 {
        entry.tokens()
    }

    #[test]
    fn a_large_result_is_cut_so_that_the_room_is_used() {
        let transcript = rounds(&[100, 9_000, 100]);
        let tail = newest_within(&transcript, 2_000, tokens);
        let (frame, cap_chars) = tail.cut.clone().unwrap();
        assert_eq!((tail.start, frame), (3, 3..5));
        assert!((6_000..8_000).contains(&cap_chars), "{cap_chars}");
        assert_eq!(newest_within(&transcript, 400, tokens).start, 3);
        assert_eq!(newest_within(&transcript, 120, tokens), TranscriptTail { start: 5, cut: None });
        assert_eq!(
            newest_within(&transcript, 90_000, tokens),
            TranscriptTail { start: 0, cut: None }
        );
    }

    #[test]
    fn what_has_no_result_is_not_cut() {
        let mut talk = TranscriptBuilder::new();
        talk.user(&"long ".repeat(2_000)).assistant("short");
        assert_eq!(
            newest_within(&talk.transcript(), 1_000, tokens),
            TranscriptTail { start: 1, cut: None }
        );
        assert_eq!(
            newest_within(&TranscriptBuilder::new().transcript(), 1_000, tokens),
            TranscriptTail::default()
        );
    }

    proptest! {
        #[test]
        fn a_tail_fits_its_room_and_uses_most_of_it(
            sizes in prop::collection::vec(1usize..3_000, 1..30), keep in 400u64..20_000,
        ) {
            let transcript = rounds(&sizes);
            let tail = newest_within(&transcript, keep, tokens);
            let cost = |entry: Entry<'_>| match &tail.cut {
                Some((frame, chars)) if frame.contains(&entry.seq()) && entry.role() == Role::Tool => {
                    entry.tokens().min(chars / 4)
                }
                _ => entry.tokens(),
            };
            let spent: u64 = transcript.range(tail.start..transcript.len() as u64).map(cost).sum();
            let is_newest_alone = tail.start == trailing_frame(&transcript);
            prop_assert!(spent <= keep || is_newest_alone, "{} of {}", spent, keep);
            prop_assert!(tail.start == 0 || spent >= keep / 2, "{} of {}", spent, keep);
            prop_assert!(transcript.get(tail.start).is_none_or(|entry| entry.is_cut_point()));
        }
    }
}

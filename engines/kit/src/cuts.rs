//! Cut points of a transcript: never between a call and its result, never through protected
//! entries.

use std::ops::Range;

use ctxhost_engine_api::{Entry, Flags, Transcript};

/// The frame of an entry: the entry itself, or a call with all its results.
pub fn frame_around(transcript: &Transcript, seq: u64) -> Range<u64> {
    transcript.cut_at_or_before(seq)..transcript.cut_at_or_after(seq + 1)
}

/// The newest entry that can be sent; a result without its call cannot.
pub fn newest_entry(transcript: &Transcript) -> Option<Entry<'_>> {
    transcript.iter().rev().find(|entry| !entry.has(Flags::ORPHAN))
}

/// Start of the newest frame, which the model is about to answer.
pub fn trailing_frame(transcript: &Transcript) -> u64 {
    newest_entry(transcript).map_or(0, |entry| entry.frame())
}

/// Start of a tail of at most `keep_tokens`. The tail always contains the trailing frame.
pub fn tail_start(transcript: &Transcript, keep_tokens: u64) -> u64 {
    transcript.tail_within(keep_tokens).min(trailing_frame(transcript))
}

/// The frames before `end` that no plan may leave out (pinned entries, newest user message) and the
/// `answer` before that message, in rising order without overlap.
pub fn protected_before(transcript: &Transcript, end: u64, answer: Range<u64>) -> Vec<Range<u64>> {
    let newest = transcript.newest_user_message().map(|entry| entry.seq());
    let stays = |seq, pinned| pinned || Some(seq) == newest || answer.contains(&seq);
    let mut frames: Vec<Range<u64>> = Vec::new();
    for entry in transcript.range(0..end) {
        if !stays(entry.seq(), entry.has(Flags::PINNED)) {
            continue;
        }
        let frame = frame_around(transcript, entry.seq());
        match frames.last_mut() {
            // Two protected entries may be in one frame or in adjacent ones.
            Some(last) if frame.start <= last.end => last.end = last.end.max(frame.end),
            _ => frames.push(frame),
        }
    }
    frames
}

/// The ranges between `kept` ranges before `end`; `kept` is in rising order.
pub fn gaps(kept: &[Range<u64>], end: u64) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut from = 0;
    for range in kept {
        gaps.push(from..range.start.min(end));
        from = range.end;
    }
    gaps.push(from..end);
    gaps.retain(|gap| !gap.is_empty());
    gaps
}

/// Start of the newest `turns` turns of a range; a turn starts with a user message.
pub fn recent_turns_start(transcript: &Transcript, range: Range<u64>, turns: usize) -> u64 {
    let starts = transcript.range(range.clone()).rev().filter(|entry| entry.is_user_message());
    starts.take(turns).last().map_or(range.end, |entry| entry.seq())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    fn sample() -> Transcript {
        let mut sample = TranscriptBuilder::new();
        sample.user("task").assistant("plan");
        sample.calls(&[("1", "read", &json!({}).to_string())]).result("1", "read", "text");
        sample.user("and now?").calls(&[("2", "exec", &json!({}).to_string())]);
        sample.result("2", "exec", &"x".repeat(4_000));
        sample.transcript()
    }

    #[test]
    fn a_frame_is_a_call_with_its_results() {
        let transcript = sample();
        assert_eq!(frame_around(&transcript, 3), 2..4);
        assert_eq!(frame_around(&transcript, 1), 1..2);
        assert_eq!(trailing_frame(&transcript), 5);
    }

    #[test]
    fn results_without_a_call_are_no_newest_frame() {
        let mut talk = TranscriptBuilder::new();
        assert_eq!(trailing_frame(&talk.transcript()), 0);
        talk.user("go").calls(&[("1", "read", "{}")]).result("unknown", "read", "lost");
        let transcript = talk.transcript();
        assert!(transcript.get(2).unwrap().has(Flags::ORPHAN));
        assert_eq!(newest_entry(&transcript).unwrap().seq(), 1);
        assert_eq!(trailing_frame(&transcript), 1);
        assert_eq!(tail_start(&transcript, 0), 1);
    }

    #[test]
    fn the_tail_holds_the_trailing_frame_even_when_it_is_too_large() {
        let transcript = sample();
        assert_eq!(tail_start(&transcript, 10), 5);
        assert_eq!(tail_start(&transcript, 100_000), 0);
    }

    #[test]
    fn protected_frames_and_the_gaps_between_them() {
        let transcript = sample();
        let kept = protected_before(&transcript, 5, 0..0);
        assert_eq!(kept, [0..1, 4..5]);
        assert_eq!(protected_before(&transcript, 5, 2..4), [0..1, 2..5]);
        assert_eq!(gaps(&kept, 5), [1..4]);
        assert_eq!(gaps(&[], 3), [0..3]);
    }

    #[test]
    fn recent_turns_begin_at_a_user_message() {
        let transcript = sample();
        for (turns, start) in [(0, 7), (1, 4), (2, 0), (9, 0)] {
            assert_eq!(recent_turns_start(&transcript, 0..7, turns), start);
        }
    }
}

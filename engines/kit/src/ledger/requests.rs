//! Renders the user's requests: word for word if they fit, else the longest are cut first.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use super::items::{LedgerItems, text_line};
use crate::caps::fair_cap;
use crate::text::head_and_tail;

/// Lower bound of a cut request, in weighted characters.
// A request fits into it; what is cut is text pasted into the message.
const LEAST_CHARS: u64 = 400;
/// Size of the tags and the cut mark, in weighted characters.
const TAG_CHARS: u64 = 48;
/// Marks the omitted middle of a request.
const GAP: &str = " […] ";

/// Renders the block, oldest first, in at most `room_chars` weighted characters. If necessary the
/// longest requests are cut, then the oldest dropped.
pub(super) fn render(requests: &LedgerItems, room_chars: u64, tag: &str) -> Vec<String> {
    let texts: Vec<&str> = requests.oldest_first().iter().map(|item| item.text.as_str()).collect();
    let room_chars = room_chars.saturating_sub(TAG_CHARS);
    let sizes = texts.iter().map(|text| size(&text_line(text, tag)));
    let limit_chars = fair_cap(sizes.collect(), room_chars).map(|level| level.max(LEAST_CHARS));
    // Newest first, so that the oldest are dropped if even the cut requests do not fit.
    let lines = texts.iter().rev().map(|text| line(text, limit_chars, tag));
    let mut room = room_chars;
    let mut shown: Vec<String> = Vec::new();
    for line in lines {
        let Some(left) = room.checked_sub(size(&line)) else { break };
        room = left;
        shown.push(line);
    }
    shown.reverse();
    shown
}

fn line(text: &str, limit_chars: Option<u64>, tag: &str) -> String {
    let whole = text_line(text, tag);
    match limit_chars.filter(|limit| size(&whole) > *limit) {
        None => whole,
        Some(limit) => {
            // The indent of continuation lines counts as well, so the text gives way to it.
            let extra = size(&whole).saturating_sub(weighted_chars(text)) + weighted_chars(GAP);
            let room = limit.saturating_sub(extra.min(limit / 2));
            text_line(&head_and_tail(text, room / 3 * 2, room / 3, GAP), tag)
        }
    }
}

fn size(line: &str) -> u64 {
    weighted_chars(line) + 1
}

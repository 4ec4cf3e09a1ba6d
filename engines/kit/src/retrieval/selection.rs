//! Selects found slices for a room, and renders them.

use std::collections::BTreeMap;

use ctxhost_engine_api::{Entry, Flags, Role, Transcript};
use ctxhost_engine_kit::cuts::frame_around;
use ctxhost_engine_kit::excerpt::{
    GAP_TOKENS, HEADER_TOKENS, frame_tokens, quote_parts, render_excerpt,
};

use crate::ranking::RankedSlice;
use crate::session::{RecallSession, TextSlice};

/// Slices in a row that do not fit before the room counts as full.
const MAX_MISSES: usize = 64;

/// Slice numbers by the position of their entry.
pub(crate) type SliceSelection = BTreeMap<u64, Vec<u32>>;

impl RecallSession {
    /// Renders the best slices that fit as one message.
    pub(crate) fn found_text(
        &self,
        transcript: &Transcript,
        ranked: &[RankedSlice],
        room_tokens: u64,
        is_candidate: impl Fn(u64) -> bool,
    ) -> String {
        // With less room the frame would hold no text.
        let Some(free_tokens) = room_tokens.checked_sub(frame_tokens() + 40) else {
            return String::new();
        };
        let cost = |number: u32, chosen: &SliceSelection| self.excerpt_tokens(number, chosen);
        let (chosen, found) = self.choose(transcript, ranked, free_tokens, is_candidate, cost);
        let quoted = chosen.iter().filter_map(|(seq, numbers)| {
            let entry = transcript.get(*seq)?;
            Some((entry, self.partial_text(&entry, numbers)))
        });
        render_excerpt(quoted, found, room_tokens)
    }

    /// Selects the best slices that fit; also returns their entries in the order they were found.
    pub(crate) fn choose(
        &self,
        transcript: &Transcript,
        ranked: &[RankedSlice],
        room_tokens: u64,
        is_candidate: impl Fn(u64) -> bool,
        cost: impl Fn(u32, &SliceSelection) -> u64,
    ) -> (SliceSelection, Vec<u64>) {
        let (mut chosen, mut order, mut misses) = (SliceSelection::new(), Vec::new(), 0);
        let mut split = room_tokens;
        for (number, score) in ranked {
            let Some(slice) = self.slices.get(*number as usize) else { continue };
            let seq = u64::from(slice.entry);
            if *score <= 0.0 || misses > MAX_MISSES {
                break;
            }
            if !is_candidate(seq) || self.is_replaced(transcript, *number) {
                continue;
            }
            match split.checked_sub(cost(*number, &chosen)) {
                Some(rest) => {
                    split = rest;
                    let numbers = chosen.entry(seq).or_default();
                    if numbers.is_empty() {
                        order.push(seq);
                    }
                    numbers.push(*number);
                }
                None => misses += 1,
            }
        }
        (chosen, order)
    }

    /// Whether a slice contains a replaced rule.
    fn is_replaced(&self, transcript: &Transcript, number: u32) -> bool {
        let Some(slice) = self.slices.get(number as usize) else { return false };
        let seq = u64::from(slice.entry);
        let mut replaced = self.rules.replaced_texts_of(seq).peekable();
        if replaced.peek().is_none() {
            return false;
        }
        let text = transcript.get(seq).and_then(|entry| entry.text().get(slice.range()));
        let line = text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        replaced.any(|rule| line.contains(rule))
    }

    /// The text of some slices of an entry with gap marks; `None` if all of its text is selected.
    pub(crate) fn partial_text(&self, entry: &Entry<'_>, numbers: &[u32]) -> Option<String> {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let slices = sorted.iter().filter_map(|number| self.slices.get(*number as usize));
        let secrets = self.names.secrets_of(entry.seq(), entry.text());
        quote_parts(&secrets, &slices.map(TextSlice::range).collect::<Vec<_>>())
    }

    /// Tokens that a slice adds to an excerpt, depending on whether its entry is already in it.
    fn excerpt_tokens(&self, number: u32, chosen: &SliceSelection) -> u64 {
        let Some(slice) = self.slices.get(number as usize) else { return 0 };
        let is_in = chosen.contains_key(&u64::from(slice.entry));
        u64::from(slice.tokens) + GAP_TOKENS + if is_in { 0 } else { HEADER_TOKENS }
    }
}

/// Whether an entry is not part of a call and its results, and can be kept alone.
pub(crate) fn is_alone(transcript: &Transcript, seq: u64) -> bool {
    let frame = frame_around(transcript, seq);
    let is_plain = transcript.get(seq).is_some_and(|entry| {
        entry.role() != Role::Tool && !entry.has(Flags::TOOL_CALLS) && !entry.has(Flags::ABORTED)
    });
    is_plain && frame.end - frame.start == 1
}

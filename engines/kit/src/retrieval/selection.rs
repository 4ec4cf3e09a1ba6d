//! Selects found slices for a room, and renders them.

use std::collections::{BTreeMap, HashMap};

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, Flags, Role, Transcript};

use crate::cuts::frame_around;
use crate::excerpt::{GAP_TOKENS, HEADER_TOKENS, frame_tokens, quote_parts, render_excerpt};
use crate::rules::UserRules;
use ctxhost_text::hash::BuildIdentityHasher;

use super::history_index::{HistoryIndex, SLICE_TOKENS, TextSlice};
use super::layout::RequestLayout;
use super::ranked_slices::RankedSlices;

/// Slices that do not fit before the room counts as full.
const MAX_MISSES: usize = 64;
/// With less room, in tokens, an excerpt would hold no text besides its frame.
const LEAST_EXCERPT_TOKENS: u64 = 40;

/// Slice numbers by the position of their entry.
type SliceSelection = BTreeMap<u64, Vec<u32>>;

/// Finds the best slices for a layout.
#[derive(Clone, Copy, Debug)]
pub struct SliceFinder<'a> {
    /// The index that was searched.
    pub index: &'a HistoryIndex,
    /// The rules of the session; a slice with a replaced one is not shown.
    pub rules: &'a UserRules,
    /// Its transcript.
    pub transcript: &'a Transcript,
    /// What was found.
    pub ranked: &'a RankedSlices,
}

impl<'a> SliceFinder<'a> {
    /// Adds found entries before the cut, whole or in part, at their positions.
    pub fn add_found(&self, room_tokens: u64, layout: &mut RequestLayout) {
        let cost = |slice: &TextSlice, is_in: bool| {
            u64::from(slice.tokens) + if is_in { 0 } else { GAP_TOKENS / 2 }
        };
        let (cut, kept) = (layout.cut, &layout.kept);
        let is_candidate =
            |seq: u64| seq < cut && !kept.contains_key(&seq) && is_alone(self.transcript, seq);
        let (chosen, mut order) = self.choose(room_tokens, is_candidate, |_, _| false, cost);
        let mut texts: BTreeMap<u64, Option<String>> = chosen
            .iter()
            .filter_map(|(seq, numbers)| {
                let entry = self.transcript.get(*seq)?;
                let text = self.partial_text(&entry, numbers);
                // Thinking and images beside the text were not what was found.
                let is_more = entry.has(Flags::THINKING) || entry.has(Flags::IMAGES);
                Some((*seq, text.or_else(|| is_more.then(|| entry.text().to_owned()))))
            })
            .collect();
        let size = |seq: u64, text: &Option<String>| {
            text.as_ref()
                .map_or_else(|| self.transcript.tokens(seq..seq + 1), |text| tokens::estimate(text))
        };
        let mut spent_tokens: u64 = texts.iter().map(|(seq, text)| size(*seq, text)).sum();
        while spent_tokens > room_tokens {
            // The estimate of gap marks was too low: drops the entry that was found last.
            let Some(seq) = order.pop() else { break };
            if let Some(text) = texts.remove(&seq) {
                spent_tokens -= size(seq, &text);
            }
        }
        layout.kept.extend(texts);
        self.index.settle_antecedents(self.transcript, layout);
    }

    /// Adds parts of calls and results before the cut.
    pub fn add_excerpt(&self, room_tokens: u64, layout: &mut RequestLayout) {
        let (cut, files) = (layout.cut, &self.index.files);
        let is_candidate =
            |seq: u64| seq < cut && !is_alone(self.transcript, seq) && !files.is_outdated(seq);
        layout.excerpt = self.found_text(room_tokens, is_candidate, |_, _| false);
    }

    /// Renders the best slices that the layout does not show.
    pub fn render_note(&self, room_tokens: u64, layout: &RequestLayout) -> String {
        let is_candidate =
            |seq: u64| !layout.shows_all_text(seq) && !self.index.files.is_outdated(seq);
        let is_shown = |seq: u64, part: &str| layout.quotes(seq, part);
        self.found_text(room_tokens, is_candidate, is_shown)
    }

    /// Renders the best slices that fit as one message.
    fn found_text(
        &self,
        room_tokens: u64,
        is_candidate: impl Fn(u64) -> bool,
        is_shown: impl Fn(u64, &str) -> bool,
    ) -> String {
        let free_tokens = room_tokens.saturating_sub(frame_tokens());
        if free_tokens < LEAST_EXCERPT_TOKENS {
            return String::new();
        }
        let cost = |slice: &TextSlice, is_in: bool| {
            u64::from(slice.tokens) + GAP_TOKENS + if is_in { 0 } else { HEADER_TOKENS }
        };
        let (chosen, found) = self.choose(free_tokens, is_candidate, is_shown, cost);
        let quoted = chosen.iter().filter_map(|(seq, numbers)| {
            let entry = self.transcript.get(*seq)?;
            Some((entry, self.partial_text(&entry, numbers)))
        });
        render_excerpt(quoted, found, room_tokens)
    }

    /// Selects the best slices that fit; also returns their entries in the order they were found. Of the candidates,
    /// parts that the model sees anyway are left out. `cost` is in tokens, and depends on whether the slice's entry is
    /// already in the selection.
    fn choose(
        &self,
        room_tokens: u64,
        is_candidate: impl Fn(u64) -> bool,
        is_shown: impl Fn(u64, &str) -> bool,
        cost: impl Fn(&TextSlice, bool) -> u64,
    ) -> (SliceSelection, Vec<u64>) {
        let (mut chosen, mut order, mut misses) = (SliceSelection::new(), Vec::new(), 0);
        let mut left_tokens = room_tokens;
        // Entries have several slices. Few candidates have replaced rules.
        let mut candidates: HashMap<u64, Option<bool>, BuildIdentityHasher> = HashMap::default();
        let candidate = |seq: u64| {
            is_candidate(seq).then(|| self.rules.replaced_texts_of(seq).next().is_some())
        };
        for (number, score) in self.ranked.iter() {
            let Some(slice) = self.index.slices.get(number as usize) else { continue };
            let seq = u64::from(slice.entry);
            if score <= 0.0 || misses > MAX_MISSES {
                break;
            }
            let Some(has_replaced) = *candidates.entry(seq).or_insert_with(|| candidate(seq))
            else {
                continue;
            };
            // What does not fit need not be compared with what is shown.
            let Some(rest) = left_tokens.checked_sub(cost(slice, chosen.contains_key(&seq))) else {
                misses += 1;
                continue;
            };
            let text = self.text_of(slice);
            if is_shown(seq, text) || has_replaced && self.rules.has_replaced(seq, text) {
                continue;
            }
            left_tokens = rest;
            let numbers = chosen.entry(seq).or_default();
            if numbers.is_empty() {
                order.push(seq);
            }
            numbers.push(number);
        }
        (chosen, order)
    }

    /// The text of a slice.
    fn text_of(&self, slice: &TextSlice) -> &'a str {
        let entry = self.transcript.get(u64::from(slice.entry));
        entry.and_then(|entry| entry.text().get(slice.range())).unwrap_or_default()
    }

    /// The text of some slices of an entry with gap marks; `None` if all of its text is selected.
    fn partial_text(&self, entry: &Entry<'_>, numbers: &[u32]) -> Option<String> {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let slices = sorted.iter().filter_map(|number| self.index.slices.get(*number as usize));
        let secrets = self.index.names.secrets_of(entry.seq(), entry.text());
        quote_parts(&secrets, &slices.map(TextSlice::range).collect::<Vec<_>>())
    }
}

/// Size of an excerpt with one paragraph, in tokens.
pub(super) fn paragraph_tokens() -> u64 {
    frame_tokens() + HEADER_TOKENS + GAP_TOKENS + SLICE_TOKENS
}

/// Whether an entry is not part of a call and its results, and can be kept alone.
pub(super) fn is_alone(transcript: &Transcript, seq: u64) -> bool {
    let is_plain = transcript.get(seq).is_some_and(|entry| {
        entry.role() != Role::Tool && !entry.has(Flags::TOOL_CALLS) && !entry.has(Flags::ABORTED)
    });
    is_plain && frame_around(transcript, seq).count() == 1
}

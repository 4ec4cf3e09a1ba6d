//! Chooses what the model sees: a new view when the window moves, and a note for a new prompt.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Flags, Role, Transcript};
use ctxhost_engine_kit::cuts::{frame_around, trailing_frame};
use ctxhost_engine_kit::excerpt::{
    GAP_TOKENS, HEADER_TOKENS, frame_tokens, quote_parts, render_excerpt,
};
use ctxhost_engine_kit::redact::SecretRanges;
use ctxhost_engine_kit::settings::share_of;

use crate::node::NodeId;
use crate::ranking::PromptRanking;
use crate::session::DagSession;
use crate::settings::Settings;
use crate::view::RequestView;

/// Number of newest entries that are searched for tool results.
const AGENT_ENTRIES: u64 = 40;
/// Slices in a row that do not fit before the room counts as full.
const MAX_MISSES: usize = 64;
/// Share of the room for parts of calls and results.
const EXCERPT_SHARE: f64 = 0.12;
/// With less room, in tokens, an excerpt would hold no text besides its frame.
const LEAST_EXCERPT_TOKENS: u64 = 40;
/// Rounds of making a view smaller. Own texts are estimated before they are rendered.
const ROUNDS: u32 = 4;
/// Share of the budget that stays free beside a note.
// Otherwise the answer to a short question would move the window.
const NOTE_MARGIN_SHARE: f64 = 0.02;
/// Maximum share of the budget for the engine's own text.
// The host refuses a plan with more than half; estimates may differ slightly.
const OWN_SHARE: f64 = 0.48;

/// Slice numbers by the position of their entry.
type SliceSelection = BTreeMap<u64, Vec<u32>>;

/// Sizes of the parts of a view, in tokens.
#[derive(Clone, Copy, Debug)]
struct BudgetSplit {
    target: u64,
    tail: u64,
    outline: u64,
    excerpt: u64,
}

impl DagSession {
    /// Whether the newest entries use tools.
    pub(crate) fn uses_tools(&self, transcript: &Transcript) -> bool {
        let len = transcript.len() as u64;
        let newest = transcript.range(len.saturating_sub(AGENT_ENTRIES)..len);
        newest.into_iter().any(|entry| entry.role() == Role::Tool)
    }

    /// A view for `budget_tokens` that leaves the slack free, if the protected entries allow it.
    pub(crate) fn new_view(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
    ) -> RequestView {
        if let Some(view) = self.whole_view(transcript, budget_tokens, ranking, settings) {
            return view;
        }
        let mut allowed_tokens = budget_tokens;
        for _ in 0..ROUNDS {
            let view = self.view_within(transcript, allowed_tokens, ranking, settings);
            let tokens = view.tokens(transcript);
            if tokens <= budget_tokens {
                return RequestView { budget_tokens, ..view };
            }
            allowed_tokens =
                allowed_tokens.saturating_sub((tokens - budget_tokens) * 2 + budget_tokens / 16);
        }
        RequestView { budget_tokens, ..self.view_within(transcript, 0, ranking, settings) }
    }

    /// All live entries and the outline of the folded ones, if that fits.
    fn whole_view(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
    ) -> Option<RequestView> {
        let mut view = RequestView { budget_tokens, ..RequestView::default() };
        self.place_tail(transcript, transcript.total_tokens(), &mut view);
        let free_tokens = budget_tokens.checked_sub(view.tokens(transcript))?;
        let outline_tokens = share_of(budget_tokens, settings.agent_node_share);
        let room_tokens = outline_tokens.min(settings.node_tokens).min(free_tokens);
        self.add_outline(ranking, room_tokens, settings, &mut view);
        (view.tokens(transcript) <= budget_tokens).then_some(view)
    }

    fn view_within(
        &self,
        transcript: &Transcript,
        allowed_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
    ) -> RequestView {
        let mut split = self.split(transcript, allowed_tokens, settings);
        let mut view = RequestView::default();
        self.place_tail(transcript, split.tail, &mut view);
        if split.target > 0 {
            let free = |view: &RequestView| {
                split.target.saturating_sub(view.tokens(transcript) + split.outline)
            };
            self.add_excerpt(transcript, ranking, split.excerpt.min(free(&view) / 3), &mut view);
            self.add_found(transcript, ranking, free(&view), &mut view);
            let left_tokens = free(&view);
            if left_tokens > split.target / 16 {
                // Little was found: the newest entries get the rest.
                self.place_tail(transcript, split.tail + left_tokens, &mut view);
            }
        }
        split.outline = split.outline.min(split.target.saturating_sub(view.tokens(transcript)));
        self.add_outline(ranking, split.outline, settings, &mut view);
        view
    }

    /// Adds the outline of everything that the view does not show whole.
    pub(crate) fn add_outline(
        &self,
        ranking: &PromptRanking,
        room_tokens: u64,
        settings: &Settings,
        view: &mut RequestView,
    ) {
        let whole = view.kept.values().filter(|text| text.is_none()).count() as u64;
        let hidden = view.cut - whole.min(view.cut) + self.folded_entries();
        if hidden > 0 {
            let range = self.range_before(view.cut, hidden, settings);
            view.outline = self.outline(&range, &ranking.leaves, room_tokens, settings);
        }
    }

    fn folded_entries(&self) -> u64 {
        let leaves = self.tree.levels().first().map_or(&[][..], Vec::as_slice);
        leaves.iter().take(self.folded).map(|leaf| leaf.entries).sum()
    }

    fn split(
        &self,
        transcript: &Transcript,
        allowed_tokens: u64,
        settings: &Settings,
    ) -> BudgetSplit {
        let target = share_of(allowed_tokens, 1.0 - settings.slack_share);
        let (tail_share, outline_share) = if self.uses_tools(transcript) {
            (settings.agent_tail_share, settings.agent_node_share)
        } else {
            (settings.chat_tail_share, settings.chat_node_share)
        };
        let must_stay = self.protected_positions(transcript, transcript.len() as u64);
        let always: u64 = must_stay.iter().map(|seq| transcript.tokens(*seq..*seq + 1)).sum();
        let free_tokens = target.saturating_sub(always);
        let outline =
            share_of(allowed_tokens, outline_share).min(settings.node_tokens).min(free_tokens / 2);
        BudgetSplit {
            target,
            outline,
            tail: share_of(free_tokens.saturating_sub(outline), tail_share),
            excerpt: share_of(free_tokens, EXCERPT_SHARE),
        }
    }

    /// Positions before `end` that are always kept, whole frames.
    fn protected_positions(&self, transcript: &Transcript, end: u64) -> BTreeSet<u64> {
        let must_stay = self.must_stay.iter().chain(&self.newest_user).copied();
        let frames = must_stay.filter(|seq| *seq < end).map(|seq| frame_around(transcript, seq));
        frames.flatten().filter(|seq| *seq < end).collect()
    }

    /// Places the newest entries that fit, and the protected ones before them.
    pub(crate) fn place_tail(
        &self,
        transcript: &Transcript,
        room_tokens: u64,
        view: &mut RequestView,
    ) {
        let live = trailing_frame(transcript);
        // Before it is only the summary whose contents the tree has.
        let first = self.live_start.min(live);
        view.cut = transcript.tail_within(room_tokens).clamp(first, live.max(first));
        view.cut = transcript.cut_at_or_after(view.cut).min(live.max(first));
        let (cut, kept) = (view.cut, self.protected_positions(transcript, view.cut));
        view.kept.retain(|seq, _| *seq < cut);
        view.kept.extend(kept.into_iter().map(|seq| (seq, None)));
    }

    /// Adds found entries, whole or in part, at their positions.
    fn add_found(
        &self,
        transcript: &Transcript,
        ranking: &PromptRanking,
        room_tokens: u64,
        view: &mut RequestView,
    ) {
        let cost = |number: u32, chosen: &SliceSelection| {
            let slice = self.slices.get(number as usize);
            let is_in = slice.is_some_and(|slice| chosen.contains_key(&u64::from(slice.entry)));
            slice.map_or(0, |slice| u64::from(slice.tokens))
                + if is_in { 0 } else { GAP_TOKENS / 2 }
        };
        let (cut, kept) = (view.cut, &view.kept);
        let is_candidate =
            |seq: u64| seq < cut && !kept.contains_key(&seq) && is_alone(transcript, seq);
        let (chosen, mut order) = self.choose(ranking, room_tokens, is_candidate, cost);
        let mut texts: BTreeMap<u64, Option<String>> = chosen
            .iter()
            .filter_map(|(seq, numbers)| {
                let entry = transcript.get(*seq)?;
                let text = quote_parts(&SecretRanges::new(entry.text()), &self.parts(numbers));
                // Thinking and images beside the text were not what was found.
                let is_more = entry.has(Flags::THINKING) || entry.has(Flags::IMAGES);
                Some((*seq, text.or_else(|| is_more.then(|| entry.text().to_owned()))))
            })
            .collect();
        let size = |seq: u64, text: &Option<String>| {
            text.as_ref()
                .map_or_else(|| transcript.tokens(seq..seq + 1), |text| tokens::estimate(text))
        };
        let mut spent_tokens: u64 = texts.iter().map(|(seq, text)| size(*seq, text)).sum();
        while spent_tokens > room_tokens {
            // The estimate of gap marks was too low: drops the entry that was found last.
            let Some(seq) = order.pop() else { break };
            if let Some(text) = texts.remove(&seq) {
                spent_tokens -= size(seq, &text);
            }
        }
        view.kept.extend(texts);
    }

    fn add_excerpt(
        &self,
        transcript: &Transcript,
        ranking: &PromptRanking,
        room_tokens: u64,
        view: &mut RequestView,
    ) {
        let cut = view.cut;
        let is_candidate = |seq: u64| seq < cut && !is_alone(transcript, seq);
        view.excerpt = self.found_text(transcript, ranking, room_tokens, is_candidate);
    }

    /// Adds the note for a new prompt, as far as there is room.
    pub(crate) fn add_note(
        &self,
        transcript: &Transcript,
        newest: u64,
        budget_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
        view: &mut RequestView,
    ) {
        let is_agent = self.uses_tools(transcript);
        let share = if is_agent { settings.agent_note_share } else { settings.chat_note_share };
        let most_tokens = share_of(budget_tokens, 1.0 - NOTE_MARGIN_SHARE);
        let free = |view: &RequestView| most_tokens.saturating_sub(view.tokens(transcript));
        let wanted_tokens = share_of(budget_tokens, share);
        while free(view) < wanted_tokens && view.drop_oldest_note() {}
        let own_tokens = share_of(budget_tokens, OWN_SHARE).saturating_sub(view.own_tokens());
        let room_tokens = wanted_tokens.min(free(view)).min(own_tokens);
        let is_new = |seq: u64| !view.shows(seq) && !self.is_quoted(transcript, seq, view);
        let mut note = self.found_text(transcript, ranking, room_tokens, is_new);
        if note.is_empty() {
            // Folded entries are not live; their leaves are what can be shown.
            note = self.folded_note(ranking, room_tokens, view, settings);
        }
        if !note.is_empty() {
            view.notes.insert(newest, note);
        }
    }

    /// The best folded leaves that the outline does not show.
    fn folded_note(
        &self,
        ranking: &PromptRanking,
        room_tokens: u64,
        view: &RequestView,
        settings: &Settings,
    ) -> String {
        let is_hidden = |leaf: usize| {
            let id = NodeId::leaf(leaf).to_string();
            leaf < self.folded && !view.outline.ids.contains(&id)
        };
        let mut scores: Vec<(usize, f32)> = ranking
            .leaves
            .iter()
            .filter(|(leaf, score)| **score > 0.0 && is_hidden(**leaf))
            .map(|(leaf, score)| (*leaf, *score))
            .collect();
        scores.sort_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
        self.render_leaves(scores.into_iter().map(|(leaf, _)| leaf), room_tokens, settings)
    }

    /// Whether an excerpt or an earlier note already shows a part of an entry.
    fn is_quoted(&self, transcript: &Transcript, seq: u64, view: &RequestView) -> bool {
        let Some(entry) = transcript.get(seq) else { return false };
        let text = entry.text();
        // The beginning identifies an entry well enough and costs little to search.
        let begin = text.get(..text.floor_char_boundary(80)).unwrap_or_default().trim();
        let mut own = [&view.excerpt].into_iter().chain(view.notes.values());
        !begin.is_empty() && own.any(|text| text.contains(begin))
    }

    fn found_text(
        &self,
        transcript: &Transcript,
        ranking: &PromptRanking,
        room_tokens: u64,
        is_candidate: impl Fn(u64) -> bool,
    ) -> String {
        let Some(free_tokens) = room_tokens.checked_sub(frame_tokens() + LEAST_EXCERPT_TOKENS)
        else {
            return String::new();
        };
        let cost = |number: u32, chosen: &SliceSelection| {
            let Some(slice) = self.slices.get(number as usize) else { return 0 };
            let is_in = chosen.contains_key(&u64::from(slice.entry));
            u64::from(slice.tokens) + GAP_TOKENS + if is_in { 0 } else { HEADER_TOKENS }
        };
        let (chosen, found) = self.choose(ranking, free_tokens, is_candidate, cost);
        let quoted = chosen.iter().filter_map(|(seq, numbers)| {
            let entry = transcript.get(*seq)?;
            Some((entry, quote_parts(&SecretRanges::new(entry.text()), &self.parts(numbers))))
        });
        render_excerpt(quoted, found, room_tokens)
    }

    /// Byte ranges of slices, in rising order.
    fn parts(&self, numbers: &[u32]) -> Vec<Range<usize>> {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let slices = sorted.iter().filter_map(|number| self.slices.get(*number as usize));
        slices.map(|slice| slice.range()).collect()
    }

    /// Selects the best slices that fit; also returns their entries in the order they were found.
    fn choose(
        &self,
        ranking: &PromptRanking,
        room_tokens: u64,
        is_candidate: impl Fn(u64) -> bool,
        cost: impl Fn(u32, &SliceSelection) -> u64,
    ) -> (SliceSelection, Vec<u64>) {
        let (mut chosen, mut order, mut misses) = (SliceSelection::new(), Vec::new(), 0);
        let mut left_tokens = room_tokens;
        for (number, score) in &ranking.slices {
            let Some(slice) = self.slices.get(*number as usize) else { continue };
            let seq = u64::from(slice.entry);
            if *score <= 0.0 || misses > MAX_MISSES {
                break;
            }
            if !is_candidate(seq) {
                continue;
            }
            match left_tokens.checked_sub(cost(*number, &chosen)) {
                Some(rest) => {
                    left_tokens = rest;
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
}

/// Whether an entry is not part of a call and its results, and can be kept alone.
fn is_alone(transcript: &Transcript, seq: u64) -> bool {
    let frame = frame_around(transcript, seq);
    let is_plain = transcript.get(seq).is_some_and(|entry| {
        let other = [Flags::TOOL_CALLS, Flags::ABORTED].into_iter().any(|flag| entry.has(flag));
        entry.role() != Role::Tool && !other
    });
    is_plain && frame.end - frame.start == 1
}

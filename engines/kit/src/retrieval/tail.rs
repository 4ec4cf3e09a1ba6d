//! The newest entries of a layout, the requests before them, and the names that a layout does not show.

use std::collections::BTreeSet;

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN};

use crate::antecedent::quote_tokens;
use crate::cuts::{frame_around, trailing_frame};
use crate::live_round::LiveRoundCuts;
use crate::name_ledger::{NameList, NameSet};
use crate::requests::{RequestForm, RequestRoom};
use crate::rules::UserRules;
use crate::settings::share_of;
use ctxhost_text::redact::redact;

use super::entry_masks::MaskedPositions;
use super::history_index::HistoryIndex;
use super::layout::RequestLayout;
use super::ranked_slices::RankedSlices;
use super::selection::is_alone;

/// Best slices of a query whose names get a bonus.
const BOOSTED_SLICES: usize = 32;

impl HistoryIndex {
    /// Places the newest entries from `first` on that fit, with older results masked, and the protected
    /// entries before them. `full_share` of the room is for results in full; `allowed_tokens` is for the whole
    /// layout, in which the live round always stays.
    pub fn place_tail(
        &self,
        transcript: &Transcript,
        (room_tokens, allowed_tokens): (u64, u64),
        full_share: f64,
        first: u64,
        layout: &mut RequestLayout,
    ) {
        let len = transcript.len() as u64;
        let live = trailing_frame(transcript);
        layout.cuts = self.fit_live_round(transcript, allowed_tokens);
        let mut spent_tokens = transcript.tokens(live..len) - layout.cuts.saved_tokens(live..len);
        let mut from = live;
        let full_tokens = share_of(room_tokens, full_share);
        let mut masked = MaskedPositions::new();
        for entry in transcript.range(first.min(live)..live).rev() {
            // Outdated reads are masked wherever they are.
            let is_old =
                spent_tokens + entry.tokens() > full_tokens || self.files.is_outdated(entry.seq());
            let saved_tokens = if is_old { self.masks.saved_tokens(entry.seq()) } else { None };
            spent_tokens += entry.tokens() - saved_tokens.unwrap_or(0);
            if spent_tokens > room_tokens {
                break;
            }
            from = entry.seq();
            masked.extend(saved_tokens.map(|saved_tokens| (entry.seq(), saved_tokens)));
        }
        // Never inside a frame, and never inside the live round.
        self.set_cut(transcript, transcript.cut_at_or_after(from).min(live), layout);
        layout.masked = masked.split_off(&layout.cut);
    }

    /// Places all entries from `first` on, whole, and the protected ones before it.
    pub fn place_all(&self, transcript: &Transcript, first: u64, layout: &mut RequestLayout) {
        let first = transcript.cut_at_or_after(first).min(trailing_frame(transcript));
        self.set_cut(transcript, first, layout);
        layout.masked.clear();
        layout.cuts = LiveRoundCuts::default();
    }

    /// Size of the requests that a layout keeps and may leave out, in tokens.
    pub(super) fn request_tokens(&self, transcript: &Transcript, layout: &RequestLayout) -> u64 {
        let kept = layout.kept.iter().filter(|(seq, _)| {
            // The newest one stays in any case, with its images.
            let stays = self.newest_user == Some(**seq) || self.must_stay.contains(seq);
            self.requests.get(**seq).is_some() && !stays
        });
        kept.map(|(seq, text)| layout_tokens(transcript, *seq, text.as_deref())).sum()
    }

    /// Takes earlier requests with images and files from a layout, so that a share is for all of them again.
    pub(super) fn take_requests_with_files(&self, layout: &mut RequestLayout) {
        layout.kept.retain(|seq, text| {
            let request = self.requests.get(*seq).filter(|_| text.is_none());
            let has_files = request.is_some_and(|request| request.text_tokens < request.tokens);
            !has_files || self.must_stay.contains(seq)
        });
    }

    /// Places the user's requests from `first` on that stand before the newest entries, and returns their size. Those with a
    /// replaced rule are not sent again.
    pub fn place_requests(
        &self,
        transcript: &Transcript,
        rules: &UserRules,
        room: RequestRoom,
        first: u64,
        layout: &mut RequestLayout,
    ) -> u64 {
        let is_out = |seq| {
            layout.kept.contains_key(&seq)
                || rules.replaced_texts_of(seq).next().is_some()
                || !is_alone(transcript, seq)
        };
        let chosen = self.requests.choose_in(first..layout.cut, room, is_out);
        let mut spent_tokens = 0;
        for (seq, form) in chosen {
            let Some(entry) = transcript.get(seq) else { continue };
            let text = self.requests.text_of(&entry, form, |seq| layout.shows_whole(seq));
            // What a request refers to is found text; the slack is for the request alone.
            let quoted_tokens = text.as_deref().map_or(0, quote_tokens);
            spent_tokens += layout_tokens(transcript, seq, text.as_deref()) - quoted_tokens;
            layout.kept.insert(seq, text);
        }
        spent_tokens
    }

    /// Shows each kept request with what it refers to, unless that is kept itself.
    pub(super) fn settle_antecedents(&self, transcript: &Transcript, layout: &mut RequestLayout) {
        let mut antecedents = std::mem::take(&mut layout.antecedents);
        antecedents.retain(|seq, _| {
            self.requests.antecedent_of(*seq, |shown| layout.shows_whole(shown)).is_some()
        });
        layout.antecedents = antecedents;
        let kept: Vec<u64> = layout.kept.keys().copied().collect();
        for seq in kept.into_iter().filter(|seq| !layout.antecedents.contains_key(seq)) {
            let Some(entry) = transcript.get(seq).filter(|_| self.requests.refers(seq)) else {
                continue;
            };
            let is_shown = |shown| layout.shows_whole(shown);
            let text = self.requests.text_of(&entry, RequestForm::Whole, is_shown);
            layout.kept.insert(seq, text);
        }
    }

    fn fit_live_round(&self, transcript: &Transcript, allowed_tokens: u64) -> LiveRoundCuts {
        let before: BTreeSet<u64> =
            self.protected_before(transcript, trailing_frame(transcript)).collect();
        let other_tokens = before.into_iter().map(|seq| transcript.tokens(seq..seq + 1)).sum();
        LiveRoundCuts::fit(transcript, other_tokens, allowed_tokens, |entry| entry.tokens())
    }

    fn set_cut(&self, transcript: &Transcript, cut: u64, layout: &mut RequestLayout) {
        layout.cut = cut;
        layout.kept.retain(|seq, _| *seq < cut);
        layout.kept.extend(self.protected_before(transcript, cut).map(|seq| (seq, None)));
        // The newest request must stay as it is, and the prefix continues with one behind the cut.
        let is_fixed = |seq: &u64| *seq < cut && layout.kept.get(seq).is_some_and(Option::is_none);
        let mut antecedents = std::mem::take(&mut layout.antecedents);
        antecedents.retain(|seq, _| is_fixed(seq));
        let fixed = self.protected_before(transcript, cut).chain(self.requests.refer_before(cut));
        antecedents.extend(fixed.filter_map(|seq| {
            let antecedent = self.requests.antecedent_of(seq, |shown| layout.shows_whole(shown));
            Some((seq, antecedent?.note()))
        }));
        layout.antecedents = antecedents;
    }

    /// Positions before `end` that are always kept, whole frames; may repeat.
    fn protected_before(&self, transcript: &Transcript, end: u64) -> impl Iterator<Item = u64> {
        let must_stay = self.must_stay.iter().chain(&self.newest_user).copied();
        let frames = must_stay.filter(move |seq| *seq < end);
        frames.flat_map(|seq| frame_around(transcript, seq)).filter(move |seq| *seq < end)
    }

    /// Size of what the engine never drops, in tokens, without the newest entries.
    pub fn protected_tokens(&self, transcript: &Transcript) -> u64 {
        self.must_stay.iter().map(|seq| transcript.tokens(*seq..*seq + 1)).sum()
    }

    /// The names of the entries that a layout shows.
    pub fn shown_names(&self, transcript: &Transcript, layout: &RequestLayout) -> NameSet {
        let whole = layout.shown_positions(transcript.len() as u64);
        let whole =
            whole.filter(|seq| !layout.masked.contains_key(seq) && !layout.cuts.contains(*seq));
        let mut shown: NameSet =
            whole.flat_map(|seq| self.names.entry_names(seq).iter().copied()).collect();
        let cut = layout.cuts.texts(transcript);
        shown.extend(cut.flat_map(|(seq, text)| self.names.names_in_part(seq, &text)));
        shown
    }

    /// The same with the names in the engine's own texts.
    pub fn shown_and_own_names(
        &self,
        transcript: &Transcript,
        layout: &mut RequestLayout,
    ) -> NameSet {
        let mut shown = self.shown_names(transcript, layout);
        layout.read_own_names(&self.names, &mut shown);
        shown
    }

    /// Renders the heaviest names that are neither in `shown` nor `withheld`, without secrets, in `room_tokens`. Those
    /// that `ranked` finds get a bonus.
    pub fn render_names(
        &self,
        shown: &NameSet,
        withheld: impl Iterator<Item = u32>,
        ranked: &RankedSlices,
        room_tokens: u64,
    ) -> NameList {
        let most_chars = room_tokens * CHARS_PER_TOKEN;
        let list = self.names.render(shown, withheld, &self.boosted_names(ranked), most_chars);
        NameList { text: redact(&list.text).into_owned(), ..list }
    }

    /// The names of the entries that a query finds.
    fn boosted_names(&self, ranked: &RankedSlices) -> NameSet {
        let slices = ranked.iter().take(BOOSTED_SLICES);
        let entries = slices.filter_map(|(number, _)| self.slices.get(number as usize));
        let entries = entries.map(|slice| u64::from(slice.entry));
        entries.flat_map(|seq| self.names.entry_names(seq).iter().copied()).collect()
    }
}

/// Size of an entry, or of the text in its place, in tokens.
fn layout_tokens(transcript: &Transcript, seq: u64, text: Option<&str>) -> u64 {
    text.map_or_else(|| transcript.tokens(seq..seq + 1), tokens::estimate)
}

/// Joins the texts that are not empty, one under the other.
pub(super) fn join_texts(texts: [String; 2]) -> String {
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

/// What a text leaves of a room, in tokens.
pub(super) fn left_beside(text: &str, room_tokens: u64) -> u64 {
    room_tokens.saturating_sub(tokens::estimate(text) + 1)
}

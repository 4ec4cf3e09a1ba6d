//! The layout for the next request: the last one with a note for a new prompt, or another one.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{AssembleRequest, Plan, Transcript};

use crate::budget::own_text_tokens;
use crate::settings::share_of;

use super::history_index::HistoryIndex;
use super::layout::{LayoutStyle, RequestLayout, whole_plan};
use super::selection::{SliceFinder, paragraph_tokens};
use super::tail::{join_texts, left_beside};

/// Share of the budget that stays free beside a note.
// Otherwise the answer to a short question would move the window.
const NOTE_MARGIN_SHARE: f64 = 0.02;

/// With less than this share of the budget free, the window moves at a new prompt.
const MOST_DUE_SHARE: f64 = 0.05;

/// Shares of a budget for a note.
#[derive(Clone, Copy, Debug)]
pub struct NoteShares {
    /// For what the prompt finds.
    pub found: f64,
    /// For further names.
    pub names: f64,
}

/// The layout of a request, and whether it differs from the last one.
#[derive(Debug)]
pub struct LayoutUpdate {
    /// `None` where everything fits or must stay.
    pub layout: Option<RequestLayout>,
    /// Whether it has to be stored again.
    pub is_new: bool,
    /// Its plan.
    pub plan: Plan,
}

impl LayoutUpdate {
    /// Keeps the last layout as long as it fits, and adds a note for a new prompt. `move_window` makes another one, if
    /// possible of parts of the last one.
    pub fn new(
        index: &HistoryIndex,
        transcript: &Transcript,
        request: &AssembleRequest,
        kept: Option<RequestLayout>,
        style: &LayoutStyle,
        move_window: &dyn Fn(Option<&RequestLayout>) -> RequestLayout,
        add_note: impl FnOnce(u64, &mut RequestLayout),
    ) -> LayoutUpdate {
        let budget_tokens = request.budget;
        let mut is_new = kept.is_none();
        let mut layout = kept.unwrap_or_else(|| move_window(None));
        let notes = layout.notes.len();
        // Notes go first: the prefix before them stays valid.
        layout.drop_notes_until(budget_tokens, transcript, style);
        if layout.tokens(transcript, style) > budget_tokens {
            layout = move_window(Some(&layout));
            is_new = true;
        } else if position_of_new_prompt(index, transcript, request, &layout).is_some()
            && !has_note_room(&layout, transcript, budget_tokens, style)
        {
            // The next entries would move the window anyway, and the prompt would find nothing until then.
            let moved = move_window(Some(&layout));
            if has_note_room(&moved, transcript, budget_tokens, style) {
                layout = moved;
                is_new = true;
            }
        }
        // Behind a move, and where the note was too large for the budget: a prompt is as new as before.
        if let Some(newest) = position_of_new_prompt(index, transcript, request, &layout) {
            add_note(newest, &mut layout);
            layout.drop_notes_until(budget_tokens, transcript, style);
            is_new = true;
        }
        let tokens = layout.tokens(transcript, style);
        is_new |= layout.notes.len() != notes;
        layout.retain_text_names();
        if tokens > budget_tokens && tokens >= transcript.total_tokens() {
            // Nearly everything is protected, so own texts would only add to it.
            return LayoutUpdate { layout: None, is_new, plan: whole_plan(transcript) };
        }
        let plan = Plan { estimated_tokens: tokens, ..layout.plan(transcript, index, style) };
        LayoutUpdate { layout: Some(layout), is_new, plan }
    }
}

/// Whether a note with one paragraph fits, if need be in place of the notes that a layout has.
fn has_note_room(
    layout: &RequestLayout,
    transcript: &Transcript,
    budget_tokens: u64,
    style: &LayoutStyle,
) -> bool {
    let least_tokens = paragraph_tokens();
    let note_tokens: u64 = layout.notes.values().map(|note| tokens::estimate(note)).sum();
    let kept_tokens = layout.tokens(transcript, style).saturating_sub(note_tokens);
    // In a small budget the window would move for hardly anything else.
    least_tokens > share_of(budget_tokens, MOST_DUE_SHARE)
        || kept_tokens + least_tokens <= budget_tokens
}

/// Position of a new prompt that can have a note before it.
fn position_of_new_prompt(
    index: &HistoryIndex,
    transcript: &Transcript,
    request: &AssembleRequest,
    layout: &RequestLayout,
) -> Option<u64> {
    let newest = index.newest_user.filter(|_| !request.prompt.trim().is_empty())?;
    // A note inside a frame would separate a call from its result.
    let is_cut_point = transcript.get(newest).is_some_and(|entry| entry.is_cut_point());
    // One note per request of the user: another search for the same words would find the same.
    let is_new = newest >= layout.cut && !layout.notes.contains_key(&newest);
    (is_new && is_cut_point).then_some(newest)
}

impl SliceFinder<'_> {
    /// Inserts the note for the prompt at `newest`, as far as there is room: what the prompt finds, or else
    /// what `instead` writes into a room of tokens, then further names except those `withheld`.
    #[expect(clippy::too_many_arguments, reason = "an engine states what its notes contain")]
    pub fn add_note(
        &self,
        newest: u64,
        budget_tokens: u64,
        shares: NoteShares,
        withheld: impl Iterator<Item = u32>,
        style: &LayoutStyle,
        instead: impl FnOnce(u64, &RequestLayout) -> String,
        layout: &mut RequestLayout,
    ) {
        let margin_tokens = share_of(budget_tokens, NOTE_MARGIN_SHARE);
        let free = |layout: &RequestLayout| {
            let free_tokens = budget_tokens.saturating_sub(layout.tokens(self.transcript, style));
            // Without a margin the next entries drop the note, but the prompt has been answered then.
            free_tokens.saturating_sub(margin_tokens).max(free_tokens.min(paragraph_tokens()))
        };
        let mut free_tokens = free(layout);
        let name_tokens = share_of(budget_tokens, shares.names);
        let most_found_tokens = share_of(budget_tokens, shares.found);
        let room_tokens = most_found_tokens + name_tokens;
        while free_tokens < room_tokens && layout.drop_oldest_note() {
            free_tokens = free(layout);
        }
        let own_tokens = own_text_tokens(budget_tokens).saturating_sub(layout.own_tokens());
        let room_tokens = room_tokens.min(free_tokens).min(own_tokens);
        // In a small room what was found comes first: names alone do not answer what the user asks.
        let found_tokens = room_tokens
            .saturating_sub(name_tokens)
            .max(room_tokens / 2)
            .max(room_tokens.min(paragraph_tokens()))
            .min(most_found_tokens);
        let mut found = self.render_note(found_tokens, layout);
        if found.is_empty() {
            found = instead(found_tokens, layout);
        }
        let mut names = String::new();
        let left_tokens = left_beside(&found, room_tokens);
        // Without room for a name, the names that are shown need not be read.
        if name_tokens > 0 && left_tokens > 0 {
            let ledger = &self.index.names;
            let mut shown = self.index.shown_and_own_names(self.transcript, layout);
            shown.extend(ledger.name_numbers(&found));
            names = self.index.render_names(&shown, withheld, self.ranked, left_tokens).text;
        }
        let note = join_texts([found, names]);
        if !note.is_empty() {
            layout.notes.insert(newest, note);
        }
    }
}

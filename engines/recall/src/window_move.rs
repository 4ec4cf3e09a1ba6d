//! Computes a new layout when the window moves.

use std::collections::HashSet;

use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN};
use ctxhost_engine_api::{EntryKind, Flags, Role, Transcript};
use ctxhost_engine_kit::cuts::trailing_frame;
use ctxhost_engine_kit::excerpt::GAP_TOKENS;
use ctxhost_engine_kit::name_ledger::NameSet;
use ctxhost_engine_kit::redact::redact;
use ctxhost_engine_kit::settings::share_of;

use crate::entry_masks::MaskedPositions;
use crate::layout::RequestLayout;
use crate::ranking::{RankedSlice, SearchQuery};
use crate::selection::{SliceSelection, is_alone};
use crate::session::RecallSession;
use crate::settings::Settings;

/// Number of newest entries that are searched for tool results.
const AGENT_ENTRIES: u64 = 40;
/// Size of rules and names without their blocks, in tokens.
const HEAD_FRAME_TOKENS: u64 = 24;
/// Share of the room for parts of calls and results.
const EXCERPT_SHARE: f64 = 0.12;
/// Bytes of the newest calls that are added to the query.
const CONTEXT_BYTES: usize = 1_000;

/// Best slices of a query whose names get a bonus.
const BOOSTED_SLICES: usize = 32;

/// Division of a budget.
struct BudgetSplit {
    target_tokens: u64,
    tail_tokens: u64,
    rule_tokens: u64,
    ledger_tokens: u64,
    excerpt_tokens: u64,
}

impl RecallSession {
    /// Whether the newest entries use tools.
    pub(crate) fn uses_tools(&self, transcript: &Transcript) -> bool {
        let len = transcript.len() as u64;
        let newest = transcript.range(len.saturating_sub(AGENT_ENTRIES)..len);
        newest.into_iter().any(|entry| entry.role() == Role::Tool)
    }

    /// The prompt, or the newest user message inside a tool loop.
    pub(crate) fn query_words<'t>(&self, transcript: &'t Transcript, prompt: &'t str) -> &'t str {
        let newest = self.newest_user.and_then(|seq| transcript.get(seq));
        let words = newest.map_or("", |entry| entry.text());
        if prompt.trim().is_empty() { words } else { prompt }
    }

    /// Builds the query from the prompt and the current calls.
    pub(crate) fn build_query(&self, transcript: &Transcript, prompt: &str) -> SearchQuery {
        let prompt = self.query_words(transcript, prompt);
        let live = trailing_frame(transcript);
        let mut context = String::new();
        for call in
            transcript.range(live..transcript.len() as u64).flat_map(|entry| entry.tool_calls())
        {
            context.push_str(&call.arguments);
            context.push(' ');
        }
        // The newest calls may write whole files.
        context.truncate(context.floor_char_boundary(CONTEXT_BYTES));
        SearchQuery::new(prompt, &context)
    }

    /// A layout for `budget_tokens` that leaves the slack free, if the protected entries allow it.
    pub(crate) fn new_layout(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        ranked: &[RankedSlice],
        settings: &Settings,
    ) -> RequestLayout {
        let mut allowed_tokens = budget_tokens;
        let mut layout = RequestLayout::default();
        // Own texts are estimated before they are rendered; a few rounds correct that.
        for _ in 0..4 {
            layout =
                self.layout_within(transcript, budget_tokens, allowed_tokens, ranked, settings);
            let tokens = layout.tokens(transcript, settings);
            if tokens <= budget_tokens || allowed_tokens == 0 {
                break;
            }
            allowed_tokens =
                allowed_tokens.saturating_sub((tokens - budget_tokens) * 2 + budget_tokens / 16);
        }
        layout
    }

    fn layout_within(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        allowed_tokens: u64,
        ranked: &[RankedSlice],
        settings: &Settings,
    ) -> RequestLayout {
        let split = self.split(transcript, allowed_tokens, settings);
        let mut layout = RequestLayout {
            budget_tokens,
            replaced_rules: self.rules.replaced_count(),
            ..RequestLayout::default()
        };
        self.place_tail(transcript, split.tail_tokens, settings, &mut layout);
        self.add_head(split.rule_tokens, split.ledger_tokens, transcript, &mut layout);
        let spent_tokens = layout.tokens(transcript, settings);
        let free_tokens = split.target_tokens.saturating_sub(spent_tokens);
        let excerpt_tokens = split.excerpt_tokens.min(free_tokens / 3);
        self.add_excerpt(transcript, ranked, excerpt_tokens, &mut layout);
        let free_tokens = split.target_tokens.saturating_sub(layout.tokens(transcript, settings));
        self.add_found(transcript, ranked, free_tokens, &mut layout);
        let left_tokens = split.target_tokens.saturating_sub(layout.tokens(transcript, settings));
        if left_tokens > split.target_tokens / 16 {
            // Little was found: the newest entries get the rest.
            self.place_tail(transcript, split.tail_tokens + left_tokens, settings, &mut layout);
        }
        layout
    }

    fn split(
        &self,
        transcript: &Transcript,
        allowed_tokens: u64,
        settings: &Settings,
    ) -> BudgetSplit {
        let target_tokens = share_of(allowed_tokens, 1.0 - settings.slack_share);
        let is_agent = self.uses_tools(transcript);
        let tail_share =
            if is_agent { settings.agent_tail_share } else { settings.chat_tail_share };
        // Names matter to agents; a chat gets a quarter.
        let ledger_share =
            if is_agent { settings.ledger_share } else { settings.ledger_share / 4.0 };
        let always: u64 = self.must_stay.iter().map(|seq| transcript.tokens(*seq..*seq + 1)).sum();
        let free_tokens = target_tokens.saturating_sub(always);
        BudgetSplit {
            target_tokens,
            tail_tokens: share_of(free_tokens, tail_share),
            rule_tokens: share_of(allowed_tokens, settings.rule_share).min(free_tokens / 4),
            ledger_tokens: share_of(allowed_tokens, ledger_share)
                .min(settings.ledger_tokens)
                .min(free_tokens / 3),
            excerpt_tokens: share_of(free_tokens, EXCERPT_SHARE),
        }
    }

    /// Places the newest entries that fit, with older results masked, and the protected entries
    /// before them.
    fn place_tail(
        &self,
        transcript: &Transcript,
        room_tokens: u64,
        settings: &Settings,
        layout: &mut RequestLayout,
    ) {
        let len = transcript.len() as u64;
        let live = trailing_frame(transcript);
        let mut spent_tokens = transcript.tokens(live..len);
        let mut from = live;
        let full_tokens = share_of(room_tokens, settings.full_share);
        let mut masked = MaskedPositions::new();
        for entry in transcript.range(0..live).rev() {
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
        layout.cut = transcript.cut_at_or_after(from).min(live);
        layout.masked = masked.split_off(&layout.cut);
        layout.kept.retain(|seq, _| *seq < layout.cut);
        let must_stay = self.must_stay.iter().chain(&self.newest_user).copied();
        let cut = layout.cut;
        let kept = must_stay.filter(|seq| *seq < cut);
        layout.kept.extend(kept.map(|seq| (seq, self.summary_without_replaced(transcript, seq))));
    }

    fn add_head(
        &self,
        rule_tokens: u64,
        ledger_tokens: u64,
        transcript: &Transcript,
        layout: &mut RequestLayout,
    ) {
        let is_always = |seq| self.must_stay.contains(&seq) && !self.is_summary(transcript, seq);
        let rules = self
            .rules
            .render(rule_tokens.saturating_sub(HEAD_FRAME_TOKENS) * CHARS_PER_TOKEN, is_always);
        let shown = self.shown_names(transcript, layout);
        let spent_tokens = tokens::estimate(&rules);
        let ledger_tokens = ledger_tokens.saturating_sub(spent_tokens);
        let names = self.names.render(&shown, &NameSet::default(), ledger_tokens * CHARS_PER_TOKEN);
        let blocks: Vec<String> =
            [rules, names].into_iter().filter(|block| !block.is_empty()).collect();
        if !blocks.is_empty() {
            let blocks = blocks.join("\n");
            layout.head = format!(
                "Kept from this conversation; where it was said again later, the later words count.\n{}",
                redact(&blocks)
            );
        }
    }

    /// Names that need not be repeated: those in view, and those of replaced rules, which must not
    /// be used any more.
    fn shown_names(&self, transcript: &Transcript, layout: &RequestLayout) -> NameSet {
        let whole = layout.shown_positions(transcript.len() as u64);
        let whole = whole.filter(|seq| !layout.masked.contains_key(seq));
        let mut shown: NameSet =
            whole.flat_map(|seq| self.names.entry_names(seq).iter().copied()).collect();
        shown.extend(self.rules.withdrawn_names());
        shown
    }

    /// The names of the entries that a query finds.
    fn boosted_names(&self, ranked: &[RankedSlice]) -> NameSet {
        let slices = ranked.iter().take(BOOSTED_SLICES);
        let entries = slices.filter_map(|(number, _)| self.slices.get(*number as usize));
        let entries = entries.map(|slice| u64::from(slice.entry));
        entries.flat_map(|seq| self.names.entry_names(seq).iter().copied()).collect()
    }

    /// Renders the heaviest names that neither the layout nor `text` shows.
    pub(crate) fn render_further_names(
        &self,
        transcript: &Transcript,
        ranked: &[RankedSlice],
        text: &str,
        room_tokens: u64,
        layout: &RequestLayout,
    ) -> String {
        let mut shown = self.shown_names(transcript, layout);
        let own = [&layout.head, &layout.excerpt].into_iter().chain(layout.notes.values());
        let own = own.map(String::as_str).chain([text]);
        shown.extend(own.flat_map(|text| self.names.name_numbers(text)));
        let names =
            self.names.render(&shown, &self.boosted_names(ranked), room_tokens * CHARS_PER_TOKEN);
        redact(&names).into_owned()
    }

    fn is_summary(&self, transcript: &Transcript, seq: u64) -> bool {
        transcript.get(seq).is_some_and(|entry| entry.kind() == EntryKind::CompactionSummary)
    }

    /// A summary without the rules replaced since; `None` for other entries.
    fn summary_without_replaced(&self, transcript: &Transcript, seq: u64) -> Option<String> {
        let entry =
            transcript.get(seq).filter(|entry| entry.kind() == EntryKind::CompactionSummary)?;
        let replaced: Vec<String> =
            self.rules.replaced_texts_of(seq).map(|rule| format!("- {rule}")).collect();
        let holds = |line: &&str| !replaced.iter().any(|rule| rule == line);
        let lines: Vec<&str> = entry.text().lines().filter(holds).collect();
        (!replaced.is_empty()).then(|| lines.join("\n"))
    }

    /// Adds found entries, whole or in part, at their positions.
    fn add_found(
        &self,
        transcript: &Transcript,
        ranked: &[RankedSlice],
        room_tokens: u64,
        layout: &mut RequestLayout,
    ) {
        let cost = |number: u32, chosen: &SliceSelection| {
            let slice = self.slices.get(number as usize);
            let is_in = slice.is_some_and(|slice| chosen.contains_key(&u64::from(slice.entry)));
            slice.map_or(0, |slice| u64::from(slice.tokens))
                + if is_in { 0 } else { GAP_TOKENS / 2 }
        };
        let cut = layout.cut;
        let is_kept: HashSet<u64> = layout.kept.keys().copied().collect();
        let is_candidate =
            |seq: u64| seq < cut && !is_kept.contains(&seq) && is_alone(transcript, seq);
        let (chosen, mut order) = self.choose(transcript, ranked, room_tokens, is_candidate, cost);
        let mut texts: std::collections::BTreeMap<u64, Option<String>> = chosen
            .iter()
            .filter_map(|(seq, numbers)| {
                let entry = transcript.get(*seq)?;
                let text = self.partial_text(&entry, numbers);
                // Thinking and images beside the text were not what was found.
                let is_more = entry.has(Flags::THINKING) || entry.has(Flags::IMAGES);
                Some((*seq, text.or_else(|| is_more.then(|| entry.text().to_owned()))))
            })
            .collect();
        let cost = |seq: u64, text: &Option<String>| {
            text.as_ref()
                .map_or_else(|| transcript.tokens(seq..seq + 1), |text| tokens::estimate(text))
        };
        let mut spent_tokens: u64 = texts.iter().map(|(seq, text)| cost(*seq, text)).sum();
        while spent_tokens > room_tokens {
            // The estimate of gap marks was too low: drops the entry that was found last.
            let Some(seq) = order.pop() else { break };
            if let Some(text) = texts.remove(&seq) {
                spent_tokens -= cost(seq, &text);
            }
        }
        layout.kept.extend(texts.into_iter().filter(|(seq, _)| *seq < layout.cut));
    }

    fn add_excerpt(
        &self,
        transcript: &Transcript,
        ranked: &[RankedSlice],
        room_tokens: u64,
        layout: &mut RequestLayout,
    ) {
        let (cut, is_old) = (layout.cut, |seq| self.files.is_outdated(seq));
        let is_candidate = |seq: u64| seq < cut && !is_alone(transcript, seq) && !is_old(seq);
        layout.excerpt = self.found_text(transcript, ranked, room_tokens, is_candidate);
    }

    /// Renders the note for a prompt: the best slices that the layout does not show.
    pub(crate) fn render_note(
        &self,
        transcript: &Transcript,
        ranked: &[RankedSlice],
        room_tokens: u64,
        layout: &RequestLayout,
    ) -> String {
        let head_words = &layout.excerpt;
        let is_new = |seq: u64| {
            !layout.shows(seq)
                && !self.files.is_outdated(seq)
                && !self.is_quoted(transcript, seq, head_words, layout)
        };
        self.found_text(transcript, ranked, room_tokens, is_new)
    }

    /// Whether an excerpt or an earlier note already shows a part of an entry.
    fn is_quoted(
        &self,
        transcript: &Transcript,
        seq: u64,
        excerpt: &str,
        layout: &RequestLayout,
    ) -> bool {
        let Some(entry) = transcript.get(seq) else { return false };
        let text = entry.text();
        // The beginning identifies an entry well enough and costs little to search.
        let begin = text.get(..text.floor_char_boundary(80)).unwrap_or_default().trim();
        !begin.is_empty()
            && (excerpt.contains(begin) || layout.notes.values().any(|note| note.contains(begin)))
    }
}

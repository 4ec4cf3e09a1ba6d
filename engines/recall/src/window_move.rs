//! Computes a new layout when the window moves.

use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN};
use ctxhost_engine_api::{EntryKind, Transcript};
use ctxhost_engine_kit::name_ledger::NameSet;
use ctxhost_engine_kit::requests::RequestRoom;
use ctxhost_engine_kit::retrieval::{NEWER_SHARE, RankedSlices, RequestLayout, SliceFinder};
use ctxhost_engine_kit::settings::share_of;
use ctxhost_text::redact::redact;

use crate::session::RecallSession;
use crate::settings::Settings;

/// Line before rules and names.
const HEAD_TITLE: &str =
    "Kept from this conversation; where it was said again later, the later words count.";
/// Size of rules and names without their blocks, in tokens.
const HEAD_FRAME_TOKENS: u64 = 24;
/// Share of the room for parts of calls and results.
const EXCERPT_SHARE: f64 = 0.12;

/// Division of a budget.
pub(crate) struct BudgetSplit {
    target_tokens: u64,
    pub(crate) tail_tokens: u64,
    request_tokens: u64,
    rule_tokens: u64,
    ledger_tokens: u64,
    /// The part of the names that each move chooses again.
    pub(crate) newer_tokens: u64,
    excerpt_tokens: u64,
}

impl RecallSession {
    /// A layout for `budget_tokens` that leaves the slack free, if the protected entries allow it.
    pub(crate) fn new_layout(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        ranked: &RankedSlices,
        settings: &Settings,
    ) -> RequestLayout {
        let style = &settings.style();
        let mut allowed_tokens = budget_tokens;
        let mut layout = RequestLayout::default();
        // Own texts are estimated before they are rendered; a few rounds correct that.
        for _ in 0..4 {
            layout =
                self.layout_within(transcript, budget_tokens, allowed_tokens, ranked, settings);
            let tokens = layout.tokens(transcript, style);
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
        ranked: &RankedSlices,
        settings: &Settings,
    ) -> RequestLayout {
        let style = &settings.style();
        let mut split = self.split(transcript, allowed_tokens, settings);
        let finder = SliceFinder { index: &self.index, rules: &self.rules, transcript, ranked };
        let mut layout = RequestLayout {
            budget_tokens,
            replaced_rules: self.rules.replaced_count(),
            ..RequestLayout::default()
        };
        self.place_tail(transcript, (split.tail_tokens, allowed_tokens), 0, settings, &mut layout);
        // Only the user can repeat them, so they take nothing from what is found, but a part of the slack.
        let room = self.request_room(transcript, split.request_tokens);
        split.target_tokens +=
            self.index.place_requests(transcript, &self.rules, room, 0, &mut layout);
        let shown = self.add_head(split.rule_tokens, split.ledger_tokens, transcript, &mut layout);
        self.add_newer(transcript, allowed_tokens, &split, &shown, &mut layout);
        let spent_tokens = layout.tokens(transcript, style);
        let free_tokens = split.target_tokens.saturating_sub(spent_tokens);
        let excerpt_tokens = split.excerpt_tokens.min(free_tokens / 3);
        finder.add_excerpt(excerpt_tokens, &mut layout);
        let spent_tokens = spent_tokens + tokens::estimate(&layout.excerpt);
        let free_tokens = split.target_tokens.saturating_sub(spent_tokens);
        finder.add_found(free_tokens, &mut layout);
        let left_tokens = split.target_tokens.saturating_sub(layout.tokens(transcript, style));
        if left_tokens > split.target_tokens / 16 {
            // Little was found: the newest entries get the rest.
            let tail_tokens = split.tail_tokens + left_tokens;
            self.place_tail(transcript, (tail_tokens, allowed_tokens), 0, settings, &mut layout);
            // What is still free is for the ends of a long request in which nothing was found.
            let tokens = split.target_tokens.saturating_sub(layout.tokens(transcript, style));
            let room = RequestRoom { tokens, long_tokens: 0, may_shorten: true };
            self.index.place_requests(transcript, &self.rules, room, 0, &mut layout);
        }
        layout
    }

    pub(crate) fn split(
        &self,
        transcript: &Transcript,
        allowed_tokens: u64,
        settings: &Settings,
    ) -> BudgetSplit {
        let target_tokens = share_of(allowed_tokens, 1.0 - settings.slack_share);
        let is_agent = self.index.uses_tools(transcript);
        let tail_share =
            if is_agent { settings.agent_tail_share } else { settings.chat_tail_share };
        // Names matter to agents; a chat gets a quarter.
        let ledger_share =
            if is_agent { settings.ledger_share } else { settings.ledger_share / 4.0 };
        let always_tokens = self.index.protected_tokens(transcript);
        let free_tokens = target_tokens.saturating_sub(always_tokens);
        let names_tokens =
            share_of(allowed_tokens, ledger_share).min(settings.ledger_tokens).min(free_tokens / 3);
        let has_short_moves = is_agent && settings.slack_share > 0.0;
        let newer_tokens = if has_short_moves { share_of(names_tokens, NEWER_SHARE) } else { 0 };
        BudgetSplit {
            target_tokens,
            tail_tokens: share_of(free_tokens, tail_share),
            request_tokens: share_of(allowed_tokens, settings.request_share).min(free_tokens / 4),
            rule_tokens: share_of(allowed_tokens, settings.rule_share).min(free_tokens / 4),
            ledger_tokens: names_tokens - newer_tokens,
            newer_tokens,
            excerpt_tokens: share_of(free_tokens, EXCERPT_SHARE),
        }
    }

    /// Places the requests that a short move takes out of the newest entries, beside those of the last layout.
    pub(crate) fn place_new_requests(
        &self,
        transcript: &Transcript,
        split: &BudgetSplit,
        first: u64,
        layout: &mut RequestLayout,
    ) {
        let tokens = self.index.room_for_new_requests(transcript, layout, split.request_tokens);
        let room = self.request_room(transcript, tokens);
        self.index.place_requests(transcript, &self.rules, room, first, layout);
    }

    fn request_room(&self, transcript: &Transcript, tokens: u64) -> RequestRoom {
        let may_shorten = self.index.uses_tools(transcript);
        RequestRoom { tokens, long_tokens: 0, may_shorten }
    }

    /// Places the newest entries from `first` on that fit, and earlier summaries without replaced rules.
    pub(crate) fn place_tail(
        &self,
        transcript: &Transcript,
        rooms: (u64, u64),
        first: u64,
        settings: &Settings,
        layout: &mut RequestLayout,
    ) {
        self.index.place_tail(transcript, rooms, settings.full_share, first, layout);
        for (seq, text) in layout.kept.iter_mut().filter(|(_, text)| text.is_none()) {
            *text = self.summary_without_replaced(transcript, *seq);
        }
    }

    /// Adds rules and names to the head, and returns all names that the entries and the head show then.
    fn add_head(
        &self,
        rule_tokens: u64,
        ledger_tokens: u64,
        transcript: &Transcript,
        layout: &mut RequestLayout,
    ) -> NameSet {
        let stays =
            |seq, rule: &str| layout.keeps_part(seq, rule) || self.index.must_stay.contains(&seq);
        let is_always = |seq, rule: &str| stays(seq, rule) && !self.is_summary(transcript, seq);
        let rules = self
            .rules
            .render(rule_tokens.saturating_sub(HEAD_FRAME_TOKENS) * CHARS_PER_TOKEN, is_always);
        let ledger_tokens = ledger_tokens.saturating_sub(tokens::estimate(&rules.text));
        // Also the names that a rule has: in a compaction they stay facts only in the list.
        let withdrawn = self.rules.withdrawn_names();
        let mut shown = self.index.shown_names(transcript, layout);
        let nothing = RankedSlices::default();
        let names = self.index.render_names(&shown, withdrawn, &nothing, ledger_tokens);
        if !rules.text.is_empty() || !names.text.is_empty() {
            layout.append_head(HEAD_TITLE, []);
        }
        shown.extend(rules.names.iter().chain(&names.names).copied());
        // A list of names has no secrets.
        layout.append_head(&redact(&rules.text), rules.names);
        layout.append_head(&names.text, names.names);
        shown
    }

    /// Adds the plan, and names that are not in `shown`.
    pub(crate) fn add_newer(
        &self,
        transcript: &Transcript,
        allowed_tokens: u64,
        split: &BudgetSplit,
        shown: &NameSet,
        layout: &mut RequestLayout,
    ) {
        let plan = self.index.render_plan(transcript, allowed_tokens, layout);
        layout.append_newer(&plan, self.index.names.name_numbers(&plan));
        let (withdrawn, nothing) = (self.rules.withdrawn_names(), RankedSlices::default());
        let names = self.index.render_names(shown, withdrawn, &nothing, split.newer_tokens);
        layout.append_newer(&names.text, names.names);
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
}

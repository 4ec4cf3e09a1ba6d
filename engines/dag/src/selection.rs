//! Chooses what the model sees: a new layout when the window moves, and a note for a new prompt.

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::transcript::tokens::CHARS_PER_TOKEN;
use ctxhost_engine_kit::name_ledger::{NameList, NameSet};
use ctxhost_engine_kit::requests::{LONG_SLACK_PART, RequestRoom};
use ctxhost_engine_kit::retrieval::{
    NEWER_SHARE, NoteShares, PromptRanking, RankedSlices, RequestLayout, SliceFinder,
};
use ctxhost_engine_kit::rules::RuleList;
use ctxhost_engine_kit::settings::share_of;
use ctxhost_text::redact::redact;

use crate::STYLE;
use crate::node::NodeId;
use crate::outline::HistoryOutline;
use crate::session::DagSession;
use crate::settings::Settings;
use crate::shown_requests::ShownRequests;

/// Share of the room for parts of calls and results.
const EXCERPT_SHARE: f64 = 0.12;
/// Share of the budget for the user's rules that are not in view: about fifteen at 8,000 tokens.
const RULE_SHARE: f64 = 0.04;
/// Rounds of making a layout smaller. Own texts are estimated before they are rendered.
const ROUNDS: u32 = 4;

/// Sizes of the parts of a layout, in tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetSplit {
    target: u64,
    pub(crate) tail: u64,
    pub(crate) requests: u64,
    long_requests: u64,
    pub(crate) outline: u64,
    pub(crate) names: u64,
    excerpt: u64,
    pub(crate) has_short_moves: bool,
}

impl DagSession {
    /// A layout for `budget_tokens` that leaves the slack free, if the protected entries allow it.
    pub(crate) fn new_layout(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
    ) -> RequestLayout {
        if let Some(layout) = self.whole_layout(transcript, budget_tokens, ranking, settings) {
            return layout;
        }
        let mut allowed_tokens = budget_tokens;
        for _ in 0..ROUNDS {
            let layout = self.layout_within(transcript, allowed_tokens, ranking, settings);
            let tokens = layout.tokens(transcript, &STYLE);
            if tokens <= budget_tokens {
                return RequestLayout { budget_tokens, ..layout };
            }
            allowed_tokens =
                allowed_tokens.saturating_sub((tokens - budget_tokens) * 2 + budget_tokens / 16);
        }
        RequestLayout { budget_tokens, ..self.layout_within(transcript, 0, ranking, settings) }
    }

    /// All live entries and the outline of the folded ones, if that fits.
    fn whole_layout(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
    ) -> Option<RequestLayout> {
        let replaced_rules = self.rules.replaced_count();
        let mut layout =
            RequestLayout { budget_tokens, replaced_rules, ..RequestLayout::default() };
        self.index.place_all(transcript, self.live_start, &mut layout);
        let free_tokens = budget_tokens.checked_sub(layout.tokens(transcript, &STYLE))?;
        let split = self.split(transcript, budget_tokens, settings);
        let tokens = split.requests.min(free_tokens);
        let requests = RequestRoom { tokens, long_tokens: 0, may_shorten: true };
        self.index.place_requests(transcript, &self.rules, requests, 0, &mut layout);
        let free_tokens = budget_tokens.saturating_sub(layout.tokens(transcript, &STYLE));
        let outline_tokens = (split.outline + split.names).min(free_tokens);
        self.add_rules(budget_tokens, &mut layout);
        let outline_tokens = outline_tokens.saturating_sub(layout.own_tokens());
        self.add_outline(transcript, ranking, outline_tokens, settings, &mut layout);
        let left_tokens = budget_tokens.saturating_sub(layout.tokens(transcript, &STYLE));
        self.add_names(transcript, split.names.min(left_tokens), &mut layout);
        (layout.tokens(transcript, &STYLE) <= budget_tokens).then_some(layout)
    }

    fn layout_within(
        &self,
        transcript: &Transcript,
        allowed_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
    ) -> RequestLayout {
        let mut split = self.split(transcript, allowed_tokens, settings);
        let replaced_rules = self.rules.replaced_count();
        let mut layout = RequestLayout { replaced_rules, ..RequestLayout::default() };
        self.place_tail(transcript, (split.tail, allowed_tokens), 0, settings, &mut layout);
        // Only the user can repeat them, so they take nothing from what is found, but a part of the slack.
        let long_tokens = split.long_requests;
        let may_shorten = self.index.uses_tools(transcript);
        let requests = RequestRoom { tokens: split.requests, long_tokens, may_shorten };
        split.target +=
            self.index.place_requests(transcript, &self.rules, requests, 0, &mut layout);
        self.add_rules(allowed_tokens, &mut layout);
        let free = |layout: &RequestLayout, own_tokens: u64| {
            split.target.saturating_sub(layout.tokens(transcript, &STYLE) + own_tokens)
        };
        if split.target > 0 {
            let own_tokens = split.outline + split.names;
            let finder = self.finder(transcript, &ranking.slices);
            finder.add_excerpt(split.excerpt.min(free(&layout, own_tokens) / 3), &mut layout);
            finder.add_found(free(&layout, own_tokens), &mut layout);
            let left_tokens = free(&layout, own_tokens);
            if left_tokens > split.target / 16 {
                // Little was found: the newest entries get the rest.
                let tail_tokens = split.tail + left_tokens;
                self.place_tail(
                    transcript,
                    (tail_tokens, allowed_tokens),
                    0,
                    settings,
                    &mut layout,
                );
                // What is still free is for the ends of a long request in which nothing was found.
                let tokens = free(&layout, own_tokens);
                let room = RequestRoom { tokens, long_tokens: 0, may_shorten: true };
                self.index.place_requests(transcript, &self.rules, room, 0, &mut layout);
            }
        }
        let outline_tokens = split.outline.min(free(&layout, 0));
        self.add_outline(transcript, ranking, outline_tokens, settings, &mut layout);
        let plan = self.index.render_plan(transcript, allowed_tokens, &layout);
        layout.append_newer(&plan, self.index.names.name_numbers(&plan));
        let name_tokens = split.names.min(free(&layout, 0));
        let newer_tokens =
            if split.has_short_moves { share_of(name_tokens, NEWER_SHARE) } else { 0 };
        let shown = self.add_names(transcript, name_tokens - newer_tokens, &mut layout);
        self.add_newer_names(&shown, newer_tokens, &mut layout);
        layout
    }

    /// A finder of the best slices.
    fn finder<'a>(
        &'a self,
        transcript: &'a Transcript,
        ranked: &'a RankedSlices,
    ) -> SliceFinder<'a> {
        SliceFinder { index: &self.index, rules: &self.rules, transcript, ranked }
    }

    /// Begins the head with the rules that the layout does not show.
    fn add_rules(&self, budget_tokens: u64, layout: &mut RequestLayout) {
        let rules = self.render_rules(budget_tokens, layout);
        layout.append_head(&rules.text, rules.names);
    }

    /// The valid rules of the user that a layout does not show, in their share of a budget.
    pub(crate) fn render_rules(&self, budget_tokens: u64, layout: &RequestLayout) -> RuleList {
        let is_shown = |seq: u64, rule: &str| seq >= layout.cut || layout.keeps_part(seq, rule);
        let most_chars = share_of(budget_tokens, RULE_SHARE) * CHARS_PER_TOKEN;
        let rules = self.rules.render(most_chars, is_shown);
        RuleList { text: redact(&rules.text).into_owned(), ..rules }
    }

    /// Adds the outline of what a layout does not show.
    fn add_outline(
        &self,
        transcript: &Transcript,
        ranking: &PromptRanking,
        room_tokens: u64,
        settings: &Settings,
        layout: &mut RequestLayout,
    ) {
        let shown = ShownRequests::new(transcript, layout, settings);
        let outline = self.outline_before(layout, ranking, shown, room_tokens, settings).text;
        layout.append_head(&outline, self.names_of_lines(&outline));
    }

    /// The names in the lines of an outline. From move to move most lines are the same, and they are not read again: a name
    /// that became known since may be listed beside its line.
    fn names_of_lines(&self, outline: &str) -> Vec<u32> {
        let mut known = self.line_names.borrow_mut();
        let names = outline.lines().flat_map(|line| known.read(line, &self.index.names).to_vec());
        let names = names.collect();
        known.retain(outline.lines());
        names
    }

    /// The outline of everything that a layout does not show.
    pub(crate) fn outline_before(
        &self,
        layout: &RequestLayout,
        ranking: &PromptRanking,
        shown: ShownRequests,
        room_tokens: u64,
        settings: &Settings,
    ) -> HistoryOutline {
        // An entry of which a part is shown still counts as hidden.
        let whole = layout.kept.values().filter(|text| text.is_none()).count() as u64;
        let hidden = layout.cut.saturating_sub(whole) + self.folded_entries();
        if hidden == 0 {
            return HistoryOutline::default();
        }
        let range = self.range_before(layout.cut, hidden, shown, settings);
        self.outline(&range, &ranking.groups, room_tokens, settings)
    }

    /// Adds names that a layout does not show to its head, and returns all that it shows then.
    fn add_names(
        &self,
        transcript: &Transcript,
        room_tokens: u64,
        layout: &mut RequestLayout,
    ) -> NameSet {
        let mut shown = self.index.shown_and_own_names(transcript, layout);
        let names = self.render_names(&shown, room_tokens);
        shown.extend(names.names.iter().copied());
        layout.append_head(&names.text, names.names);
        shown
    }

    /// Adds names that are not in `shown` to what each move of a layout chooses again.
    pub(crate) fn add_newer_names(
        &self,
        shown: &NameSet,
        room_tokens: u64,
        layout: &mut RequestLayout,
    ) {
        let names = self.render_names(shown, room_tokens);
        layout.append_newer(&names.text, names.names);
    }

    /// The heaviest names that are not in `shown`.
    pub(crate) fn render_names(&self, shown: &NameSet, room_tokens: u64) -> NameList {
        // Rules of folded entries were read before the names of the live ones.
        let withdrawn = self.rules.withdrawn_texts().iter();
        let withdrawn = withdrawn.filter_map(|name| self.index.names.find_number(name));
        let withdrawn = withdrawn.chain(self.rules.withdrawn_names());
        self.index.render_names(shown, withdrawn, &RankedSlices::default(), room_tokens)
    }

    fn folded_entries(&self) -> u64 {
        let leaves = self.tree.levels().first().map_or(&[][..], Vec::as_slice);
        leaves.iter().take(self.folded).map(|leaf| leaf.entries).sum()
    }

    pub(crate) fn split(
        &self,
        transcript: &Transcript,
        allowed_tokens: u64,
        settings: &Settings,
    ) -> BudgetSplit {
        let target = share_of(allowed_tokens, 1.0 - settings.slack_share);
        let is_agent = self.index.uses_tools(transcript);
        let (tail_share, outline_share, name_share) = if is_agent {
            (settings.agent_tail_share, settings.agent_node_share, settings.name_share)
        } else {
            // Chats come back to facts, not to names: what the user stated fits a quarter.
            let has_facts = self.index.names.has_facts();
            let name_share = if has_facts { settings.name_share / 4.0 } else { 0.0 };
            (settings.chat_tail_share, settings.chat_node_share, name_share)
        };
        let free_tokens = target.saturating_sub(self.index.protected_tokens(transcript));
        let share = |share| share_of(allowed_tokens, share).min(settings.node_tokens);
        let outline = share(outline_share).min(free_tokens / 2);
        let names = share(name_share).min(free_tokens / 3);
        BudgetSplit {
            target,
            outline,
            names,
            tail: share_of(free_tokens, tail_share),
            requests: share_of(allowed_tokens, settings.request_share).min(free_tokens / 4),
            // A chat comes back to what its prompt finds, also in a long request.
            long_requests: if is_agent {
                share_of(allowed_tokens, settings.slack_share).min(free_tokens) / LONG_SLACK_PART
            } else {
                0
            },
            excerpt: share_of(free_tokens, EXCERPT_SHARE),
            has_short_moves: is_agent && settings.slack_share > 0.0,
        }
    }

    /// Places the newest entries from `first` on that fit. Before the live ones is only the summary whose contents the
    /// tree has.
    pub(crate) fn place_tail(
        &self,
        transcript: &Transcript,
        rooms: (u64, u64),
        first: u64,
        settings: &Settings,
        layout: &mut RequestLayout,
    ) {
        let first = first.max(self.live_start);
        self.index.place_tail(transcript, rooms, settings.full_share, first, layout);
    }

    /// Adds the note for a new prompt, as far as there is room.
    pub(crate) fn add_note(
        &self,
        transcript: &Transcript,
        newest: u64,
        budget_tokens: u64,
        ranking: &PromptRanking,
        settings: &Settings,
        layout: &mut RequestLayout,
    ) {
        let shares = if self.index.uses_tools(transcript) {
            NoteShares { found: settings.agent_note_share, names: settings.name_note_share }
        } else {
            NoteShares { found: settings.chat_note_share, names: 0.0 }
        };
        // Folded entries are not live; their leaves are what can be shown.
        let folded = |room_tokens: u64, layout: &RequestLayout| {
            let is_hidden =
                |leaf: &usize| !layout.head.contains(&format!("[{},", NodeId::leaf(*leaf)));
            let leaves = self.folded_hits(ranking).into_iter().filter(is_hidden);
            self.render_leaves(leaves, room_tokens)
        };
        let finder = self.finder(transcript, &ranking.slices);
        let withdrawn = self.rules.withdrawn_names();
        finder.add_note(newest, budget_tokens, shares, withdrawn, &STYLE, folded, layout);
    }

    /// The folded leaves that a prompt finds, best first.
    pub(crate) fn folded_hits(&self, ranking: &PromptRanking) -> Vec<usize> {
        let leaves = ranking.groups.iter().map(|(leaf, score)| (*leaf as usize, *score));
        let mut folded: Vec<(usize, f32)> =
            leaves.filter(|(leaf, score)| *leaf < self.folded && *score > 0.0).collect();
        folded.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        folded.into_iter().map(|(leaf, _)| leaf).collect()
    }
}

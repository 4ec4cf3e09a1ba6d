//! Chooses the middle to summarise: after the head, before the tail, around protected entries.

use ctxhost_engine_api::transcript::tokens::CHARS_PER_TOKEN;
use ctxhost_engine_api::{EntryKind, Flags, Role, Transcript};
use ctxhost_engine_kit::budget::{RequestBudget, filled_tokens, turn_floor_tokens};
use ctxhost_engine_kit::cuts;
use ctxhost_engine_kit::exchange::NewestExchange;
use ctxhost_engine_kit::history_fold::HistoryFold;
use ctxhost_engine_kit::ledger::{LedgerLimits, LedgerReader, SummaryLedger};
use ctxhost_engine_kit::replacement::ReplacementMap;
use ctxhost_engine_kit::settings::share_of;

use crate::settings::Settings;

/// Minimum tokens of new entries that are worth a summary.
const LEAST_MIDDLE_TOKENS: u64 = 500;
/// Part of the trigger that stays free after a compaction, so that the next one is some turns away. A larger one would hide names of
/// the newest steps where the trigger is the whole budget.
const FREE_PART: u64 = 8;
/// Halvings of the tail before only its newest frame is left.
const TAIL_HALVINGS: u32 = 2;

/// A chosen middle and the room for its summary.
#[derive(Clone, Debug)]
pub(crate) struct MiddleCut {
    /// The history to summarise; may be empty. The summary is inserted in its last gap, because it
    /// may refer to the newest request.
    pub(crate) middle: HistoryFold,
    /// The answer before the newest request, if it is before the tail.
    pub(crate) exchange: Option<NewestExchange>,
    /// Size of the kept entries, in tokens.
    pub(crate) kept_tokens: u64,
    /// Target size of the summary with envelope and without ledger, in tokens.
    pub(crate) summary_tokens: u64,
    /// Ledger of the summary, and its limits before a summary leaves it less.
    pub(crate) ledger: SummaryLedger,
    pub(crate) ledger_limits: LedgerLimits,
    /// Room of the ledger beside a summary of the target size, and what it takes of it, in tokens.
    ledger_room_tokens: u64,
    pub(crate) ledger_tokens: u64,
    /// Size of the result up to which free room is filled, in tokens.
    filled_tokens: u64,
}

impl MiddleCut {
    fn at(
        transcript: &Transcript,
        ledgers: &mut LedgerReader<'_>,
        tail: u64,
        exchange: Option<&NewestExchange>,
        goal: &CutGoal<'_>,
    ) -> MiddleCut {
        // In the tail it is whole.
        let exchange = exchange.filter(|exchange| exchange.answer().end <= tail).cloned();
        let answer = exchange.as_ref().map_or(0..0, NewestExchange::answer);
        let mut kept = cuts::protected_before(transcript, tail, answer);
        let head = head_end(transcript, goal);
        // Ranges inside the head would overlap it.
        kept.retain(|range| range.end > head);
        kept.insert(0, 0..head.min(tail));
        let mut middle = HistoryFold::anchored_at_last(transcript, cuts::gaps(&kept, tail));
        // Rewriting an earlier summary for a few new entries is not worth it.
        if middle.new_tokens(transcript) < LEAST_MIDDLE_TOKENS {
            middle = HistoryFold::default();
        }
        let shown_less = exchange.as_ref().map_or(0, |exchange| {
            transcript.tokens(exchange.answer()).saturating_sub(exchange.tokens())
        });
        let whole_tokens = transcript.total_tokens();
        let kept_tokens = whole_tokens - middle.tokens() - shown_less;
        let ledger = ledgers.read(middle.gaps());
        let ledger_limits = LedgerLimits::new(goal.budget_tokens, &goal.settings.room);
        // Earlier summaries may be replaced by the same size, new entries by less than half, so
        // that every compaction shrinks the transcript.
        let carried_tokens = middle.tokens() - middle.new_tokens(transcript);
        // Also where the kept entries leave less: then a shorter tail is tried, and in the end the kept results are cut.
        let room_tokens = (middle.tokens() + carried_tokens) / 2;
        let summary_tokens = goal.summary_tokens(middle.tokens());
        // The minimum of a summary would leave nothing of a short middle to the user's requests,
        // which are nowhere else.
        let ledger_room_tokens = room_tokens.saturating_sub(summary_tokens).max(room_tokens / 2);
        let limits = ledger.fit_limits(ledger_limits, ledger_room_tokens * CHARS_PER_TOKEN);
        let ledger_tokens = ledger.chars(limits).div_ceil(CHARS_PER_TOKEN);
        let summary_tokens = summary_tokens.min(room_tokens.saturating_sub(ledger_tokens));
        let after_tokens = kept_tokens + ledger_tokens + summary_tokens;
        MiddleCut {
            middle,
            exchange,
            kept_tokens,
            summary_tokens,
            ledger,
            ledger_limits,
            ledger_room_tokens,
            ledger_tokens,
            // The compaction must shrink the transcript.
            filled_tokens: goal
                .filled_tokens
                .min(after_tokens + whole_tokens.saturating_sub(after_tokens) / 2),
        }
    }

    /// Whether anything is replaced or cut.
    fn is_smaller(&self) -> bool {
        !self.middle.is_empty() || self.exchange.as_ref().is_some_and(NewestExchange::is_cut)
    }

    /// Size of the kept entries and the ledger, in tokens. The summary may turn out short.
    fn used_tokens(&self) -> u64 {
        self.kept_tokens + self.ledger_tokens
    }

    /// Size of the transcript afterwards if the summary meets its target, in tokens.
    pub(crate) fn after_tokens(&self) -> u64 {
        self.used_tokens() + self.summary_tokens
    }

    /// Whether a compaction may end with this cut.
    fn is_settled(&self, goal: &CutGoal<'_>) -> bool {
        !self.middle.is_empty() && self.after_tokens() <= goal.aim_tokens
    }

    /// Limits of the ledger beside a written summary of `summary_chars` weighted characters with its
    /// envelope: what a short one leaves, in at most `most_chars` for both. Requests that are not listed get free room.
    pub(crate) fn limits_beside(&self, summary_chars: u64, most_chars: u64) -> LedgerLimits {
        let planned_chars = (self.summary_tokens + self.ledger_tokens) * CHARS_PER_TOKEN;
        // A model may write more than the target where everything still fits.
        let room_chars = self.ledger_room_tokens * CHARS_PER_TOKEN;
        let left_chars = planned_chars.saturating_sub(summary_chars).max(room_chars);
        let left_chars = left_chars.min(most_chars.saturating_sub(summary_chars));
        let limits = self.ledger.fit_limits(self.ledger_limits, left_chars);
        let free_chars = self.filled_chars(most_chars).saturating_sub(summary_chars);
        self.ledger.widen_requests(limits, free_chars)
    }

    /// What a summary without a model may take beside a ledger that lists all requests, in weighted characters.
    pub(crate) fn section_chars(&self, most_chars: u64) -> u64 {
        let summary_chars = self.summary_tokens * CHARS_PER_TOKEN;
        let filled_chars = self.filled_chars(most_chars);
        let room_chars = self.ledger_room_tokens * CHARS_PER_TOKEN;
        let limits = self.ledger.fit_limits(self.ledger_limits, room_chars);
        let ledger_chars = filled_chars.saturating_sub(summary_chars);
        let limits = self.ledger.widen_requests(limits, ledger_chars);
        summary_chars.max(filled_chars.saturating_sub(self.ledger.chars(limits)))
    }

    /// What summary and ledger take of a filled result, in weighted characters.
    fn filled_chars(&self, most_chars: u64) -> u64 {
        let free_tokens = self.filled_tokens.saturating_sub(self.kept_tokens);
        (free_tokens * CHARS_PER_TOKEN).min(most_chars)
    }
}

/// The limits of a compaction.
struct CutGoal<'a> {
    settings: &'a Settings,
    trigger_tokens: u64,
    budget_tokens: u64,
    /// Size that the result stays below.
    aim_tokens: u64,
    filled_tokens: u64,
}

impl CutGoal<'_> {
    /// Target size of a summary: a share of the middle within limits, and at most half of it.
    fn summary_tokens(&self, middle_tokens: u64) -> u64 {
        let Settings { summary_share, summary_min_tokens, summary_max_tokens, .. } = *self.settings;
        share_of(middle_tokens, summary_share)
            .clamp(summary_min_tokens, summary_max_tokens)
            .min(share_of(self.budget_tokens, self.settings.summary_budget_share))
            .min(middle_tokens / 2)
    }
}

/// Chooses the longest tail with which the transcript falls far enough below the trigger, and below the target. Later
/// attempts start with a shorter tail. `None` if the transcript fits and no middle is worth a
/// summary.
pub(crate) fn choose_cut(
    transcript: &Transcript,
    room: &RequestBudget,
    attempt: u32,
    settings: &Settings,
) -> Option<MiddleCut> {
    let (trigger_tokens, budget_tokens) = (settings.trigger_tokens(room), room.budget_tokens);
    let target_tokens = share_of(budget_tokens, settings.target_share);
    let aim_tokens = target_tokens.min(trigger_tokens - trigger_tokens / FREE_PART);
    // A further attempt means that the last result was too large.
    let filled_tokens = if attempt > 1 { 0 } else { filled_tokens(budget_tokens, trigger_tokens) };
    let goal = CutGoal { settings, trigger_tokens, budget_tokens, aim_tokens, filled_tokens };
    let no_rewrites = ReplacementMap::default();
    let fit = |attempt| NewestExchange::fit(transcript, budget_tokens, attempt, &no_rewrites);
    let exchange = fit(attempt);
    let ledgers = &mut LedgerReader::new(transcript);
    // A repeated attempt means that the last result was too large.
    let first = attempt.saturating_sub(1).min(TAIL_HALVINGS);
    for halving in first..=TAIL_HALVINGS {
        // The minimum of messages holds only while there is room.
        let messages = if halving == 0 { settings.tail_messages } else { 0 };
        let tail = tail_start(transcript, trigger_tokens >> halving, messages, settings);
        let cut = MiddleCut::at(transcript, ledgers, tail, exchange.as_ref(), &goal);
        if cut.is_settled(&goal) {
            let floor_tokens =
                turn_floor_tokens(budget_tokens, settings.floor_share, transcript.total_tokens());
            let missing_tokens = (floor_tokens >> first).saturating_sub(cut.used_tokens());
            let longer = longer_tails(transcript, tail, missing_tokens)
                .take_while(|_| missing_tokens > 0)
                .map(|tail| MiddleCut::at(transcript, ledgers, tail, exchange.as_ref(), &goal))
                .find(|cut| cut.is_settled(&goal));
            return Some(longer.unwrap_or(cut));
        }
    }
    if transcript.total_tokens() <= target_tokens.min(trigger_tokens) {
        return None;
    }
    // Only the newest frame is kept, with the answer that it refers to while that fits.
    let tail = cuts::trailing_frame(transcript);
    let cut = MiddleCut::at(transcript, ledgers, tail, exchange.as_ref(), &goal);
    if cut.is_settled(&goal) {
        return Some(cut);
    }
    let goal = CutGoal { aim_tokens: target_tokens, ..goal };
    for exchange in [exchange, fit(attempt + 1)].into_iter().flatten() {
        let cut = MiddleCut::at(transcript, ledgers, tail, Some(&exchange), &goal);
        if cut.is_smaller() && cut.after_tokens() <= target_tokens {
            return Some(cut);
        }
    }
    let cut = MiddleCut::at(transcript, ledgers, tail, None, &goal);
    (!cut.middle.is_empty() || cut.kept_tokens > target_tokens).then_some(cut)
}

/// Start of the tail: its share of the trigger, extended to a whole frame, to a nearby newest
/// request, and to at least `messages`.
pub(crate) fn tail_start(
    transcript: &Transcript,
    trigger_tokens: u64,
    messages: u64,
    settings: &Settings,
) -> u64 {
    let tail_tokens = share_of(trigger_tokens, settings.tail_share);
    // The tail may grow to end at a whole frame, but not without limit.
    let overrun_tokens = share_of(tail_tokens, settings.tail_overrun);
    let earliest = cuts::tail_start(transcript, overrun_tokens);
    let within = cuts::tail_start(transcript, tail_tokens);
    let whole = within.checked_sub(1).map_or(0, |seq| transcript.cut_at_or_before(seq));
    let tail = whole.max(earliest);
    let newest = transcript.newest_user_message().map_or(tail, |entry| entry.frame());
    // A tail that starts just behind the newest request would lose what it answers.
    let tail = if newest >= earliest { tail.min(newest) } else { tail };
    let few = (transcript.len() as u64).saturating_sub(messages);
    tail.min(transcript.cut_at_or_before(few))
}

/// Starts of tails that are longer than the one from `tail` on by `missing_tokens`, rounded up and down to whole frames.
fn longer_tails(
    transcript: &Transcript,
    tail: u64,
    missing_tokens: u64,
) -> impl Iterator<Item = u64> {
    let keep_tokens = transcript.tokens(tail..transcript.len() as u64) + missing_tokens;
    let within = cuts::tail_start(transcript, keep_tokens);
    let whole = within.checked_sub(1).map_or(0, |seq| transcript.cut_at_or_before(seq));
    [whole, within].into_iter().filter(move |start| *start < tail)
}

/// End of the head: the first messages that fit their share, before any compaction.
fn head_end(transcript: &Transcript, goal: &CutGoal<'_>) -> u64 {
    // Kept permanently, the first steps would outlive the decisions that replaced them.
    if transcript.iter().any(|entry| entry.kind() == EntryKind::CompactionSummary) {
        return 0;
    }
    let limit_tokens = share_of(goal.trigger_tokens, goal.settings.head_share);
    let (mut end, mut messages, mut spent_tokens) = (0, 0, 0);
    while messages < goal.settings.head_messages && end < transcript.len() as u64 {
        let next = transcript.cut_at_or_after(end + 1);
        for entry in transcript.range(end..next) {
            messages += u64::from(entry.role() != Role::System);
            // Pinned entries stay in any case, so they do not use up the share.
            spent_tokens += if entry.has(Flags::PINNED) { 0 } else { entry.tokens() };
        }
        if spent_tokens > limit_tokens {
            break;
        }
        end = next;
    }
    end
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    const WORDS: &str = "word ";

    /// A task, its first answer, then rounds of a call and 1,000 tokens of result.
    fn session(rounds: usize) -> TranscriptBuilder {
        let mut talk = TranscriptBuilder::new();
        talk.system("be careful").user("task").assistant("plan");
        for round in 0..rounds {
            let id = format!("c{round}");
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &WORDS.repeat(800));
        }
        talk
    }

    fn chosen(talk: &TranscriptBuilder, trigger: u64, attempt: u32) -> Option<MiddleCut> {
        let settings = Settings {
            threshold_share: 0.5,
            threshold_min_tokens: 0,
            floor_share: 0.0,
            ..Settings::default()
        };
        let room = RequestBudget { budget_tokens: trigger * 2, ..RequestBudget::default() };
        choose_cut(&talk.transcript(), &room, attempt, &settings)
    }

    #[test]
    fn the_middle_is_between_head_and_tail() {
        let cut = chosen(&session(40), 20_000, 1).unwrap();
        // Head: system, task, plan, and the first round to make three messages. Tail: 4,000 tokens
        // and the frame they begin in.
        assert_eq!(cut.middle.gaps(), [5..75]);
        assert!(cut.after_tokens() <= 20_000);
    }

    #[test]
    fn after_the_first_compaction_the_head_is_history() {
        let mut talk = TranscriptBuilder::new();
        talk.user("task").summary("## Decisions\n- one").assistant("plan");
        for round in 0..40 {
            let id = format!("c{round}");
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &WORDS.repeat(800));
        }
        assert_eq!(chosen(&talk, 20_000, 1).unwrap().middle.gaps()[0].start, 1);
    }

    #[test]
    fn each_try_keeps_a_shorter_tail_and_the_last_only_the_newest_frame() {
        let talk = session(40);
        let ends =
            [1, 2, 3].map(|attempt| chosen(&talk, 40_000, attempt).unwrap().middle.gaps()[0].end);
        assert!(ends[0] < ends[1] && ends[1] <= ends[2], "{ends:?}");
        assert_eq!(chosen(&talk, 1_500, 1).unwrap().middle.gaps()[0].end, talk.len() - 2);
    }

    #[test]
    fn nothing_is_cut_where_nothing_presses() {
        assert!(chosen(&session(2), 100_000, 1).is_none());
        assert!(chosen(&TranscriptBuilder::new(), 100, 1).is_none());
    }

    #[test]
    fn the_newest_request_draws_the_tail_back_only_when_it_is_near() {
        let mut near = session(40);
        near.user("and now?").calls(&[("n", "read", "{}")]).result(
            "n",
            "read",
            &WORDS.repeat(4_000),
        );
        let tail = tail_start(&near.transcript(), 25_000, 8, &Settings::default());
        assert!(near.transcript().get(tail).unwrap().seq() <= 83);
        let far = session(40);
        assert!(tail_start(&far.transcript(), 20_000, 8, &Settings::default()) > 60);
    }

    /// Chapters of 3,700 tokens and requests about them, from the first compaction on.
    #[test]
    fn the_answer_that_the_newest_request_is_about_stays_whole() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Write chapter by chapter.");
        for chapter in 0..4 {
            talk.assistant(&WORDS.repeat(2_960)).user(&format!("Shorten it, add point {chapter}."));
        }
        let cut = chosen(&talk, 8_000, 1).unwrap();
        assert_eq!(cut.middle.gaps().last().unwrap().end, talk.len() - 2);
        assert!(cut.after_tokens() <= 8_000, "{}", cut.after_tokens());
        // Half of the budget has no room for all of it.
        let cut = chosen(&talk, 3_000, 1).unwrap();
        let exchange = cut.exchange.as_ref().unwrap();
        assert!(exchange.is_cut() && (2_800..3_000).contains(&exchange.tokens()));
        assert!(cut.after_tokens() <= 5_400, "{}", cut.after_tokens());
    }

    #[test]
    fn a_tail_of_short_messages_is_lengthened_to_the_floor() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Migrate the parser.");
        for number in 0..60 {
            let id = format!("c{number}");
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &WORDS.repeat(150));
        }
        (0..12).for_each(|_| _ = talk.assistant("Done.").user("go on"));
        let transcript = talk.transcript();
        for budget_tokens in [6_000, 8_000, 10_000] {
            let room = RequestBudget {
                budget_tokens,
                window_tokens: budget_tokens * 3 / 2,
                reserve_tokens: 0,
            };
            let cut = choose_cut(&transcript, &room, 1, &Settings::default()).unwrap();
            let used_tokens = cut.used_tokens();
            assert!(used_tokens >= budget_tokens * 3 / 10, "{used_tokens} of {budget_tokens}");
        }
    }

    #[test]
    fn a_wide_turn_keeps_its_newest_results() {
        let ids: Vec<String> = (0..150).map(|at| format!("c{at}")).collect();
        let mut talk = TranscriptBuilder::new();
        talk.user("run all")
            .calls(&ids.iter().map(|id| (&**id, "check", "{}")).collect::<Vec<_>>());
        ids.iter().for_each(|id| _ = talk.result(id, "check", &WORDS.repeat(180)));
        talk.user("Which failed?");
        let cut = chosen(&talk, 14_000, 1).unwrap();
        assert!(cut.middle.is_empty() && cut.exchange.as_ref().unwrap().is_cut());
        assert!(cut.after_tokens() <= 25_200, "{}", cut.after_tokens());
    }

    #[test]
    fn what_is_folded_has_a_summary_beside_entries_of_any_size() {
        for words in (400..12_000).step_by(400) {
            let mut talk = session(12);
            talk.user("Read the log.").calls(&[("log", "read", "{}")]);
            talk.result("log", "read", &WORDS.repeat(words));
            for attempt in 1..=3 {
                let cut = chosen(&talk, 6_000, attempt).unwrap();
                assert!(cut.middle.is_empty() || cut.summary_tokens >= 1_000, "{words}: {cut:?}");
            }
        }
    }

    #[test]
    fn a_summary_takes_a_fifth_within_its_limits() {
        let settings = Settings::default();
        let goal = CutGoal {
            settings: &settings,
            trigger_tokens: 50_000,
            budget_tokens: 100_000,
            aim_tokens: 50_000,
            filled_tokens: 0,
        };
        for (middle, summary) in [(600, 300), (5_000, 2_000), (30_000, 6_000), (90_000, 12_000)] {
            assert_eq!(goal.summary_tokens(middle), summary);
        }
        let small = CutGoal { budget_tokens: 4_000, ..goal };
        assert_eq!(small.summary_tokens(30_000), 1_000);
    }
}

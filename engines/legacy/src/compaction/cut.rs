//! Chooses where the history ends and the tail begins, and what of the history stays.

use std::ops::Range;

use ctxhost_engine_api::{Entry, Flags, Role, Transcript};
use ctxhost_engine_kit::budget::{filled_tokens, floor_tokens};
use ctxhost_engine_kit::caps::{
    LEAST_RESULT_CHARS, argument_cap_chars, cut_arguments, fair_cap, result_cap_chars,
};
use ctxhost_engine_kit::cuts::{gaps, protected_before, trailing_frame};
use ctxhost_engine_kit::exchange::NewestExchange;
use ctxhost_engine_kit::history_fold::HistoryFold;
use ctxhost_engine_kit::ledger::{LedgerLimits, LedgerReader};
use ctxhost_engine_kit::replacement::{Replacement, ReplacementMap};
use ctxhost_engine_kit::requests::{RequestForm, SizedRequest};
use ctxhost_engine_kit::tail::{self, TranscriptTail};

use super::LAYER;
use super::inputs::LegacyCompaction;
use super::summary_task::{LEAST_SUMMARY_CHARS, SummaryTask};
use crate::settings::{CHARS_PER_TOKEN, Settings, share_of};
use crate::tool_result_guard;

/// Part of the tail that an earlier request may take where it leaves no room for what is before it.
const REQUEST_PART: u64 = 4;
/// Times that a tail is made longer to reach the floor.
const FLOOR_STEPS: u32 = 4;
/// Halvings of the tail before only its newest frame is left.
const TAIL_HALVINGS: u32 = 2;

/// A segment of the transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Kept.
    Keep(Range<u64>),
    /// Replaced by a summary.
    Summarise {
        /// Index of the summary.
        task: usize,
        /// Its positions.
        range: Range<u64>,
    },
}

/// The chosen cut.
#[derive(Clone, Debug)]
pub(crate) struct CompactionCut {
    /// The whole transcript in order.
    pub(crate) segments: Vec<Segment>,
    /// The summaries: of the history, of the prefix of a split turn, or both.
    pub(crate) tasks: Vec<SummaryTask>,
    /// Size of the kept entries with their results cut, in tokens.
    pub(crate) kept_tokens: u64,
    /// Cuts of kept entries.
    pub(crate) caps: ResultCaps,
}

/// Caps of kept results, in weighted characters.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResultCaps {
    /// Every result: the cap of one result for the budget.
    single: u64,
    /// The results of the frame where the tail begins.
    frame: Option<(Range<u64>, u64)>,
    /// Every result, if the newest frame alone does not fit.
    emergency: Option<u64>,
    /// Every argument text of a call, if cut results are not enough either.
    arguments: Option<u64>,
    /// The cut entries of the answer before the newest request, if it does not fit whole.
    answer: ReplacementMap,
    /// Every earlier request, if one of them leaves no room for what is before it.
    requests: Option<RequestLimit>,
}

/// The limit of a request before the newest one.
#[derive(Clone, Copy, Debug)]
struct RequestLimit {
    /// The position of the newest request.
    newest: u64,
    tokens: u64,
}

impl ResultCaps {
    /// The limit of one result; `None` if it is not cut.
    pub(crate) fn limit_for(
        &self,
        inputs: &LegacyCompaction<'_>,
        entry: &Entry<'_>,
    ) -> Option<u64> {
        if entry.role() != Role::Tool || self.answer.get(entry.seq()).is_some() {
            return None;
        }
        let frame = self.frame.as_ref().filter(|(frame, _)| frame.contains(&entry.seq()));
        let frame = frame.map_or(u64::MAX, |(_, chars)| *chars);
        // The cut of the aggregate rule becomes permanent, with the same bytes.
        let request = inputs.request;
        let reduced = inputs.decisions.reduced_limit(&request.session, request.budget, entry.id());
        let reduced = reduced.map_or(u64::MAX, |chars| chars.max(LEAST_RESULT_CHARS));
        let squeezed = self.emergency.unwrap_or(u64::MAX);
        let chars = self.single.min(frame).min(reduced).min(squeezed);
        (entry.tokens() * CHARS_PER_TOKEN > chars).then_some(chars)
    }

    /// A message cut for the newest exchange, a shortened request, or a call with its arguments cut; `None` if it stays.
    pub(crate) fn cut_message(&self, entry: &Entry<'_>) -> Option<Replacement> {
        let answer = self.answer.get(entry.seq()).cloned();
        let request = || self.requests.and_then(|limit| limit.shorten(entry));
        answer.or_else(request).or_else(|| cut_arguments(entry, self.arguments?, LAYER))
    }

    fn tokens(&self, inputs: &LegacyCompaction<'_>, entry: &Entry<'_>) -> u64 {
        if let Some(message) = self.cut_message(entry) {
            return message.tokens();
        }
        // Cutting its text does not remove an image, so such a result is counted in full.
        match self.limit_for(inputs, entry).filter(|_| !entry.has(Flags::IMAGES)) {
            Some(chars) => entry.tokens().min(chars.div_ceil(CHARS_PER_TOKEN)),
            None => entry.tokens(),
        }
    }
}

impl RequestLimit {
    /// A request above the limit without its images or the middle of its text.
    fn shorten(self, entry: &Entry<'_>) -> Option<Replacement> {
        let is_earlier = entry.is_user_message() && entry.seq() < self.newest;
        if !is_earlier || entry.tokens() <= self.tokens || entry.has(Flags::PINNED) {
            return None;
        }
        let is_text_short = SizedRequest::new(entry).text_tokens <= self.tokens;
        let form = if is_text_short { RequestForm::Text } else { RequestForm::Short(self.tokens) };
        Some(Replacement::from_text(form.text(entry)?, LAYER, "a large request, shortened"))
    }
}

/// Chooses the cut, and gives the summary of the history what stays free.
pub(crate) fn choose_cut(inputs: &LegacyCompaction<'_>) -> Option<CompactionCut> {
    let mut cut = choose_tail(inputs)?;
    let (before, after) = (inputs.transcript.total_tokens(), cut.tokens_after());
    // A further attempt means that the last result was too large.
    let budget_tokens = if inputs.request.attempt > 1 { 0 } else { inputs.request.budget };
    let free_tokens = filled_tokens(budget_tokens, budget_tokens).saturating_sub(after);
    // The compaction must shrink the transcript.
    let free_tokens = free_tokens.min(before.saturating_sub(after) / 2);
    let task = cut.tasks.iter_mut().find(|task| !task.is_turn_prefix);
    task.into_iter().for_each(|task| task.free_chars = free_tokens * CHARS_PER_TOKEN);
    Some(cut)
}

/// Chooses the longest tail with which the transcript falls below the target; `None` without
/// history before the cut if the transcript already fits.
fn choose_tail(inputs: &LegacyCompaction<'_>) -> Option<CompactionCut> {
    let ledgers = &mut LedgerReader::new(inputs.transcript);
    let LegacyCompaction { transcript, request, settings, .. } = inputs;
    let window_tokens = request.model.window_tokens;
    let target = CutTarget::for_attempt(request.budget, request.attempt, settings, window_tokens);
    let is_pressed = transcript.total_tokens() > target.target_tokens;
    let no_cuts = ReplacementMap::default();
    let exchange = NewestExchange::fit(transcript, request.budget, request.attempt, &no_cuts);
    // An answer that fits whole is in the tail.
    let exchange = exchange.as_ref().filter(|exchange| exchange.is_cut());
    for halving in 0..=TAIL_HALVINGS {
        let cut = cut_with_floor(inputs, ledgers, &target, target.keep_tokens >> halving, exchange);
        if !is_pressed {
            return Some(cut).filter(|cut| !cut.tasks.is_empty());
        }
        if cut.is_smaller(transcript) && cut.tokens_after() <= target.target_tokens {
            return Some(cut);
        }
    }
    let mut squeezed = |min_fold_tokens| {
        let newest = TranscriptTail { start: trailing_frame(transcript), cut: None };
        let mut cut = at(inputs, ledgers, newest, &CutTarget { min_fold_tokens, ..target }, None);
        cut.shrink(inputs, target.target_tokens);
        cut
    };
    let mut cut = squeezed(target.min_fold_tokens);
    if cut.tokens_after() > target.target_tokens {
        // Rewrites an earlier summary, shorter, although little was added since.
        cut = squeezed(0);
    }
    cut.is_smaller(transcript).then_some(cut)
}

/// The cut with a tail of `keep_tokens`; a longer one, or one with the answer before the newest
/// request, if less than the floor would be in use.
fn cut_with_floor(
    inputs: &LegacyCompaction<'_>,
    ledgers: &mut LedgerReader<'_>,
    target: &CutTarget,
    keep_tokens: u64,
    exchange: Option<&NewestExchange>,
) -> CompactionCut {
    let mut caps = ResultCaps { single: target.result_chars, ..ResultCaps::default() };
    let cost = |entry: &Entry<'_>| caps.tokens(inputs, entry);
    let shortest = tail::newest_within(inputs.transcript, keep_tokens, cost);
    let cut = at(inputs, ledgers, shortest.clone(), target, None);
    let missing = target.missing_tokens(&cut);
    if missing == 0 {
        return cut;
    }
    let fits = |cut: &CompactionCut| cut.tokens_after() <= target.target_tokens;
    let (mut longest, mut tail, mut wanted) = (None, shortest.clone(), keep_tokens + missing);
    // A frame that does not fit the room can be missing, and a longer tail has a shorter ledger.
    for _ in 0..FLOOR_STEPS {
        tail = tail::lengthen(inputs.transcript, &tail, wanted, cost);
        let mut longer = at(inputs, ledgers, tail.clone(), target, None);
        if !fits(&longer) {
            // Calls that write much have no result to cut. Otherwise nothing of them would stay, nor of what is before them.
            longer.shrink(inputs, target.filled_tokens);
        }
        if longer.tasks.is_empty() || !fits(&longer) {
            break;
        }
        let still_missing = target.missing_tokens(&longer);
        longest = Some(longer);
        if still_missing == 0 {
            break;
        }
        wanted += still_missing;
    }
    if let Some(longest) = longest {
        return longest;
    }
    if let Some(exchange) = exchange {
        // The answer before the newest request does not fit whole, so it is cut.
        let with_answer = at(inputs, ledgers, shortest, target, Some(exchange));
        if with_answer.is_smaller(inputs.transcript) && fits(&with_answer) {
            return with_answer;
        }
    }
    // A request with images or pasted text may leave no room for what is before it.
    let newest = inputs.transcript.newest_user_message().map_or(0, |entry| entry.seq());
    caps.requests = Some(RequestLimit { newest, tokens: keep_tokens / REQUEST_PART });
    let target = &CutTarget { requests: caps.requests, ..*target };
    let cost = |entry: &Entry<'_>| caps.tokens(inputs, entry);
    let shortened = tail::newest_within(inputs.transcript, keep_tokens + missing, cost);
    let shortened = at(inputs, ledgers, shortened, target, None);
    let is_better = !shortened.tasks.is_empty() && shortened.kept_tokens > cut.kept_tokens;
    if is_better && fits(&shortened) { shortened } else { cut }
}

/// The sizes that one attempt aims at.
#[derive(Clone, Copy)]
struct CutTarget {
    target_tokens: u64,
    /// The size to which kept entries are cut that do not fit.
    filled_tokens: u64,
    keep_tokens: u64,
    floor_tokens: u64,
    summary_chars: u64,
    ledger: LedgerLimits,
    result_chars: u64,
    min_fold_tokens: u64,
    requests: Option<RequestLimit>,
}

impl CutTarget {
    fn for_attempt(
        budget_tokens: u64,
        attempt: u32,
        settings: &Settings,
        window_tokens: u64,
    ) -> CutTarget {
        let Settings { compaction, room, tool_results, .. } = settings;
        // An unknown window sets no cap; the budget still does.
        let window_tokens = if window_tokens == 0 { u64::MAX } else { window_tokens };
        let share = match attempt {
            0 | 1 => compaction.target_share,
            2 => compaction.retry_target_share,
            _ => compaction.last_target_share,
        };
        // Each further attempt means that the last result was too large: keep half as much.
        let keep = compaction.keep_recent_tokens;
        let keep = keep.min(share_of(budget_tokens, compaction.keep_recent_share));
        let summary = share_of(budget_tokens, compaction.summary_share) * CHARS_PER_TOKEN;
        let summary_chars = compaction.summary_chars.min(summary);
        let summary_tokens = compaction.summary_chars / CHARS_PER_TOKEN;
        let recent_tokens = compaction.keep_recent_tokens;
        let floor_tokens =
            floor_tokens(budget_tokens, compaction.floor_share, recent_tokens, summary_tokens);
        CutTarget {
            target_tokens: share_of(budget_tokens, share),
            filled_tokens: filled_tokens(budget_tokens, share_of(budget_tokens, share)),
            keep_tokens: keep >> attempt.saturating_sub(1).min(u64::BITS - 1),
            floor_tokens: floor_tokens >> attempt.saturating_sub(1).min(u64::BITS - 1),
            summary_chars,
            ledger: LedgerLimits::new(budget_tokens, room),
            result_chars: tool_result_guard::single_cap_chars(
                tool_result_guard::effective_window_tokens(window_tokens, budget_tokens),
                tool_results,
            ),
            min_fold_tokens: compaction.min_fold_tokens,
            requests: None,
        }
    }

    /// What a cut lacks to the floor. The summary itself may turn out short, so only its ledger counts.
    fn missing_tokens(&self, cut: &CompactionCut) -> u64 {
        let ledger_chars: u64 = cut.tasks.iter().map(|task| task.ledger_chars).sum();
        self.floor_tokens.saturating_sub(cut.kept_tokens + ledger_chars / CHARS_PER_TOKEN)
    }
}

fn at(
    inputs: &LegacyCompaction<'_>,
    ledgers: &mut LedgerReader<'_>,
    tail: TranscriptTail,
    target: &CutTarget,
    exchange: Option<&NewestExchange>,
) -> CompactionCut {
    let transcript = inputs.transcript;
    // In the tail it has the cuts of the tail.
    let exchange = exchange.filter(|exchange| exchange.answer().end <= tail.start);
    let answer = exchange.map_or(0..0, NewestExchange::answer);
    let kept = protected_before(transcript, tail.start, answer);
    // Gaps after the newest request belong to a turn that continues in the tail.
    let newest = transcript.newest_user_message().map_or(0, |entry| entry.seq());
    let (history, prefix): (Vec<_>, Vec<_>) =
        gaps(&kept, tail.start).into_iter().partition(|gap| gap.start < newest);
    let mut tasks = Vec::new();
    for (gaps, is_turn_prefix) in [(history, false), (prefix, true)] {
        let history = HistoryFold::anchored_at_largest(transcript, gaps);
        if !history.is_empty() && history.new_tokens(transcript) >= target.min_fold_tokens {
            tasks.push(SummaryTask::new(ledgers, history, target.ledger, is_turn_prefix));
        }
    }
    divide_room(transcript, target, &mut tasks);
    let caps = ResultCaps {
        single: target.result_chars,
        frame: tail.cut,
        requests: target.requests,
        answer: exchange.map_or_else(ReplacementMap::default, |exchange| exchange.cuts().clone()),
        ..ResultCaps::default()
    };
    CompactionCut::new(inputs, tasks, caps)
}

/// Divides the room for summaries in proportion to their histories. A summary takes at most the
/// size of earlier summaries and half of the new entries. The ledger has priority over the sections.
fn divide_room(transcript: &Transcript, target: &CutTarget, tasks: &mut [SummaryTask]) {
    let whole: u64 = tasks.iter().map(|task| task.history.tokens()).sum();
    let count = tasks.len() as u64;
    // Requests have a limit of their own, so only the rest of a ledger shares the room.
    let needs =
        tasks.iter().map(|task| task.ledger_chars.saturating_sub(task.ledger_limits.request_chars));
    let ledger_chars = fair_cap(needs.collect(), target.ledger.ledger_chars);
    let limits = LedgerLimits {
        ledger_chars: ledger_chars.unwrap_or(target.ledger.ledger_chars),
        ..target.ledger
    };
    for task in tasks {
        let tokens = task.history.tokens();
        let new_tokens = task.history.new_tokens(transcript);
        // Each compaction must shrink the transcript, or the same history is summarised for ever.
        let most_chars = (tokens - new_tokens / 2) * CHARS_PER_TOKEN;
        task.limit_ledger(limits, most_chars.saturating_sub(LEAST_SUMMARY_CHARS));
        // Half of the room evenly, half in proportion: a small history still gets a usable summary.
        let part =
            target.summary_chars / (2 * count) + target.summary_chars / 2 * tokens / whole.max(1);
        let left_chars = most_chars.saturating_sub(task.ledger_chars);
        task.limit_chars = part.max(LEAST_SUMMARY_CHARS).min(left_chars);
    }
}

impl CompactionCut {
    fn new(
        inputs: &LegacyCompaction<'_>,
        tasks: Vec<SummaryTask>,
        caps: ResultCaps,
    ) -> CompactionCut {
        let transcript = inputs.transcript;
        let mut segments = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            let gaps = task.history.gaps().iter().cloned();
            segments.extend(gaps.map(|range| Segment::Summarise { task: at, range }));
        }
        let replaced: Vec<Range<u64>> = segments.iter().map(Segment::range).collect();
        segments.extend(gaps(&replaced, transcript.len() as u64).into_iter().map(Segment::Keep));
        segments.sort_by_key(|segment| segment.range().start);
        let mut cut = CompactionCut { segments, tasks, kept_tokens: 0, caps };
        cut.kept_tokens =
            cut.kept_entries(transcript).map(|entry| cut.caps.tokens(inputs, &entry)).sum();
        cut
    }

    /// Maximum size of the transcript after the compaction, in tokens.
    pub(crate) fn tokens_after(&self) -> u64 {
        self.kept_tokens + self.tasks.iter().map(SummaryTask::max_tokens).sum::<u64>()
    }

    /// Cuts results, then arguments in the kept entries, then shrinks the summaries, until the target is met or
    /// nothing can shrink.
    fn shrink(&mut self, inputs: &LegacyCompaction<'_>, target_tokens: u64) {
        if self.tokens_after() <= target_tokens {
            return;
        }
        let transcript = inputs.transcript;
        let kept = self.segments.iter().filter(|segment| matches!(segment, Segment::Keep(_)));
        let kept: Vec<Range<u64>> = kept.map(Segment::range).collect();
        let summary_tokens = self.tokens_after() - self.kept_tokens;
        let limit_tokens = target_tokens.saturating_sub(summary_tokens);
        self.caps.emergency = result_cap_chars(transcript, kept.iter().cloned(), limit_tokens);
        self.caps.arguments = argument_cap_chars(transcript, kept.into_iter(), limit_tokens);
        self.kept_tokens =
            self.kept_entries(transcript).map(|entry| self.caps.tokens(inputs, &entry)).sum();
        // The ledger repeats exact names, so the sections shrink first. The summary of the current
        // turn shrinks before the other one, which has the requests.
        for shed in [SummaryTask::shed_sections, SummaryTask::shed_ledger] {
            for at in (0..self.tasks.len()).rev() {
                let excess_tokens = self.tokens_after().saturating_sub(target_tokens);
                if let Some(task) = self.tasks.get_mut(at) {
                    shed(task, excess_tokens * CHARS_PER_TOKEN);
                }
            }
        }
    }

    /// Whether anything is replaced or cut.
    fn is_smaller(&self, transcript: &Transcript) -> bool {
        !self.tasks.is_empty() || self.kept_tokens < transcript.total_tokens()
    }

    /// The kept entries.
    pub(crate) fn kept_entries<'t>(
        &self,
        transcript: &'t Transcript,
    ) -> impl Iterator<Item = Entry<'t>> {
        let kept = self.segments.iter().filter(|segment| matches!(segment, Segment::Keep(_)));
        kept.flat_map(|segment| transcript.range(segment.range()))
    }
}

impl Segment {
    fn range(&self) -> Range<u64> {
        match self {
            Segment::Keep(range) | Segment::Summarise { range, .. } => range.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_try_aims_lower() {
        let settings = Settings::default();
        let aims = [1, 2, 3].map(|attempt| CutTarget::for_attempt(100_000, attempt, &settings, 0));
        assert_eq!(aims.each_ref().map(|target| target.target_tokens), [90_000, 70_000, 50_000]);
        assert_eq!(aims.each_ref().map(|target| target.keep_tokens), [20_000, 10_000, 5_000]);
        assert_eq!(aims.each_ref().map(|target| target.floor_tokens), [24_000, 12_000, 6_000]);
        assert_eq!(CutTarget::for_attempt(20_000, 1, &settings, 0).keep_tokens, 5_000);
        assert_eq!(CutTarget::for_attempt(20_000, 1, &settings, 0).floor_tokens, 6_000);
    }
}

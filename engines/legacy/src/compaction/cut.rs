//! Where the history ends and the tail begins, and what of the history has to stay.

use std::ops::Range;

use ctxhost_engine_api::{Entry, Role, Transcript};
use ctxhost_engine_kit::caps::result_cap_chars;
use ctxhost_engine_kit::cuts::{gaps, protected_before, tail_start, trailing_frame};
use ctxhost_engine_kit::fold::Fold as History;

use super::Desk;
use crate::settings::{CHARS_PER_TOKEN, CompactionSettings, share_of};

/// No summary is squeezed below this, in weighted characters: five headings, an envelope and a few
/// lines.
const LEAST_SUMMARY_CHARS: u64 = 1_000;
/// How often the tail is halved before only its newest frame is left.
const TAIL_HALVINGS: u32 = 2;

/// What one summary tells, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// What it tells.
    pub(crate) history: History,
    /// What its summary may take with its envelope, in weighted characters.
    pub(crate) limit_chars: u64,
    /// Whether it is the beginning of the turn that goes on in the tail: its request is kept.
    pub(crate) is_turn_prefix: bool,
}

/// A stretch of the transcript and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Stays.
    Keep(Range<u64>),
    /// Is told by the summary of a fold.
    Fold {
        /// Which.
        fold: usize,
        /// Its positions.
        range: Range<u64>,
    },
}

/// A decision.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// The whole transcript in order.
    pub(crate) segments: Vec<Segment>,
    /// What is folded: the history, the prefix of the split turn, or both.
    pub(crate) folds: Vec<Fold>,
    /// What stays, in tokens.
    pub(crate) kept_tokens: u64,
    /// Results in what stays are cut to so many weighted characters.
    pub(crate) result_cap_chars: Option<u64>,
}

/// Chooses the cut: the longest tail with which everything falls below the target.
///
/// `None` where no history lies before the cut and nothing presses.
pub(crate) fn choose(desk: &Desk<'_>) -> Option<Cut> {
    let Desk { transcript, request, settings, .. } = desk;
    let settings = &settings.compaction;
    let aim = Aim::of(request.budget, request.attempt, settings);
    let is_pressed = transcript.total_tokens() > aim.target_tokens;
    for halving in 0..=TAIL_HALVINGS {
        let cut =
            at(transcript, tail_start(transcript, aim.keep_tokens >> halving), &aim, settings);
        if !is_pressed {
            return Some(cut).filter(|cut| !cut.folds.is_empty());
        }
        if !cut.folds.is_empty() && cut.tokens_after() <= aim.target_tokens {
            return Some(cut);
        }
    }
    let mut cut = at(transcript, trailing_frame(transcript), &aim, settings);
    cut.squeeze(transcript, aim.target_tokens);
    (!cut.folds.is_empty() || cut.result_cap_chars.is_some()).then_some(cut)
}

/// What a try aims at.
struct Aim {
    target_tokens: u64,
    keep_tokens: u64,
    summary_chars: u64,
}

impl Aim {
    fn of(budget_tokens: u64, attempt: u32, settings: &CompactionSettings) -> Aim {
        let share = match attempt {
            0 | 1 => settings.target_share,
            2 => settings.retry_target_share,
            _ => settings.last_target_share,
        };
        let keep = settings.keep_recent_tokens;
        let keep = keep.min(share_of(budget_tokens, settings.keep_recent_share));
        let summary = share_of(budget_tokens, settings.summary_share) * CHARS_PER_TOKEN;
        Aim {
            target_tokens: share_of(budget_tokens, share),
            keep_tokens: keep >> attempt.saturating_sub(1).min(u64::BITS - 1),
            summary_chars: settings.summary_chars.min(summary),
        }
    }
}

fn at(transcript: &Transcript, tail: u64, aim: &Aim, settings: &CompactionSettings) -> Cut {
    let kept = protected_before(transcript, tail);
    let newest = transcript.newest_user_message().map_or(0, |entry| entry.seq());
    let (history, prefix): (Vec<_>, Vec<_>) =
        gaps(&kept, tail).into_iter().partition(|gap| gap.start < newest);
    let mut folds = Vec::new();
    for (gaps, is_turn_prefix) in [(history, false), (prefix, true)] {
        let history = History::at_largest(transcript, gaps);
        if !history.is_empty() && history.new_tokens(transcript) >= settings.min_fold_tokens {
            folds.push(Fold { history, limit_chars: 0, is_turn_prefix });
        }
    }
    share_out(aim.summary_chars, &mut folds);
    Cut::new(transcript, folds)
}

/// Divides the room for summaries by what each stands for. No summary takes over half of its fold,
/// so that each makes the transcript smaller.
fn share_out(summary_chars: u64, folds: &mut [Fold]) {
    let whole: u64 = folds.iter().map(|fold| fold.history.tokens()).sum();
    let count = folds.len() as u64;
    for fold in folds {
        let even = summary_chars / (2 * count);
        let by_size = summary_chars / 2 * fold.history.tokens() / whole.max(1);
        let half_of_fold = fold.history.tokens() * CHARS_PER_TOKEN / 2;
        fold.limit_chars = (even + by_size).max(LEAST_SUMMARY_CHARS).min(half_of_fold);
    }
}

impl Cut {
    fn new(transcript: &Transcript, folds: Vec<Fold>) -> Cut {
        let mut segments: Vec<Segment> = folds
            .iter()
            .enumerate()
            .flat_map(|(fold, f)| f.history.gaps().iter().map(move |gap| (fold, gap.clone())))
            .map(|(fold, range)| Segment::Fold { fold, range })
            .collect();
        let folded: Vec<Range<u64>> = segments.iter().map(Segment::range).collect();
        segments.extend(gaps(&folded, transcript.len() as u64).into_iter().map(Segment::Keep));
        segments.sort_by_key(|segment| segment.range().start);
        let folded_tokens: u64 = folds.iter().map(|fold| fold.history.tokens()).sum();
        let kept_tokens = transcript.total_tokens() - folded_tokens;
        Cut { segments, folds, kept_tokens, result_cap_chars: None }
    }

    /// What the live transcript will cost at most, in tokens.
    pub(crate) fn tokens_after(&self) -> u64 {
        self.kept_tokens
            + self.folds.iter().map(|f| f.limit_chars.div_ceil(CHARS_PER_TOKEN)).sum::<u64>()
    }

    /// The last resort: results in what stays are cut, then summaries get less room, until the
    /// target holds or nothing more can give way.
    fn squeeze(&mut self, transcript: &Transcript, target_tokens: u64) {
        if self.tokens_after() <= target_tokens {
            return;
        }
        let kept = self.segments.iter().filter(|segment| matches!(segment, Segment::Keep(_)));
        let kept = kept.map(Segment::range);
        let summary_tokens = self.tokens_after() - self.kept_tokens;
        let limit_tokens = target_tokens.saturating_sub(summary_tokens);
        self.result_cap_chars = result_cap_chars(transcript, kept, limit_tokens);
        let result_tokens: u64 = self.kept_results(transcript).map(|entry| entry.tokens()).sum();
        let rest_tokens = self.tokens_after() - result_tokens;
        if rest_tokens > target_tokens {
            for fold in &mut self.folds {
                fold.limit_chars = fold.limit_chars.min(LEAST_SUMMARY_CHARS);
            }
        }
    }

    /// The tool results that stay.
    pub(crate) fn kept_results<'t>(
        &self,
        transcript: &'t Transcript,
    ) -> impl Iterator<Item = Entry<'t>> {
        let kept = self.segments.iter().filter(|segment| matches!(segment, Segment::Keep(_)));
        let entries = kept.flat_map(|segment| transcript.range(segment.range()));
        entries.filter(|entry| entry.role() == Role::Tool)
    }
}

impl Segment {
    fn range(&self) -> Range<u64> {
        match self {
            Segment::Keep(range) | Segment::Fold { range, .. } => range.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_try_aims_lower() {
        let settings = CompactionSettings::default();
        let aims = [1, 2, 3].map(|attempt| Aim::of(100_000, attempt, &settings));
        assert_eq!(aims.each_ref().map(|aim| aim.target_tokens), [90_000, 70_000, 50_000]);
        assert_eq!(aims.each_ref().map(|aim| aim.keep_tokens), [20_000, 10_000, 5_000]);
        assert_eq!(Aim::of(20_000, 1, &settings).keep_tokens, 10_000);
    }
}

//! Tracks compactions of a session: a circuit breaker for failures, and detection of thrashing.

use ctxhost_engine_api::{Entry, EntryKind, Role, Transcript};
use ctxhost_engine_kit::circuit_breaker::CircuitBreaker;

/// A window that is full again after at most this many answers was not helped.
// 3 is the published value of the agent that this engine follows.
const THRASH_ANSWERS: u64 = 3;
/// Repetitions that count as thrashing. 3 is the published value.
const THRASH_TIMES: u32 = 3;

/// The compactions tried in one session.
#[derive(Debug, Default)]
pub(crate) struct CompactionAttempts {
    circuit: CircuitBreaker,
    /// Epoch of a plan whose outcome is unknown.
    tried_epoch: Option<u64>,
    /// Number of answers that the newest plan kept.
    kept_answers: Option<u64>,
    refills: u32,
}

impl CompactionAttempts {
    /// Records the outcome of the newest plan: a new epoch means that the host applied it.
    pub(crate) fn record_outcome(&mut self, transcript: &Transcript) {
        match self.tried_epoch.take() {
            // The host does not report the outcome, so the epoch is the only evidence.
            Some(epoch) if transcript.epoch() > epoch => self.circuit.record_success(),
            Some(_) => self.record_failure(),
            None => {}
        }
    }

    /// Records a plan that the host may still refuse.
    pub(crate) fn record_plan(&mut self, transcript: &Transcript, kept_answers: u64) {
        self.tried_epoch = Some(transcript.epoch());
        self.kept_answers = Some(kept_answers);
    }

    /// Records a compaction that failed.
    pub(crate) fn record_failure(&mut self) {
        // The breaker has no cooldown, so the time does not matter.
        self.circuit.record_failure(0);
    }

    /// The reason not to compact; `None` while the breaker is closed.
    pub(crate) fn open_reason(&self, limit: u32) -> Option<String> {
        // Only a success closes the breaker, never time.
        self.circuit.open_ms(0, limit, u64::MAX)?;
        let failures = self.circuit.failures();
        Some(format!(
            "{failures} compactions failed in a row (breaker_failures); a successful manual compaction closes the breaker"
        ))
    }

    /// Whether the window filled up again soon after each of the last compactions. Call once per
    /// compaction, after [`record_outcome`](Self::record_outcome).
    pub(crate) fn is_thrashing(&mut self, transcript: &Transcript) -> bool {
        // After a failed compaction the window is full for another reason.
        let Some(kept) = self.kept_answers.take().filter(|_| self.circuit.failures() == 0) else {
            return false;
        };
        let new_answers = count_answers(transcript, 0).saturating_sub(kept);
        self.refills = if new_answers <= THRASH_ANSWERS { self.refills + 1 } else { 0 };
        self.refills >= THRASH_TIMES
    }
}

/// Counts the model's messages from a position on.
pub(crate) fn count_answers(transcript: &Transcript, from: u64) -> u64 {
    let entries = transcript.range(from..transcript.len() as u64);
    let is_answer =
        |entry: &Entry<'_>| entry.role() == Role::Assistant && entry.kind() == EntryKind::Message;
    entries.filter(is_answer).count() as u64
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn epoch(number: u64, answers: u64) -> Transcript {
        let mut talk = TranscriptBuilder::with_epoch(number);
        talk.user("go");
        (0..answers).for_each(|_| _ = talk.assistant("done"));
        talk.transcript()
    }

    #[test]
    fn three_plans_that_were_not_applied_open_it_and_one_that_was_closes_it() {
        let mut attempts = CompactionAttempts::default();
        for _ in 0..3 {
            assert_eq!(attempts.open_reason(3), None);
            attempts.record_plan(&epoch(0, 1), 0);
            attempts.record_outcome(&epoch(0, 1));
        }
        assert!(attempts.open_reason(3).unwrap().contains("3 compactions failed"));
        attempts.record_plan(&epoch(0, 1), 0);
        attempts.record_outcome(&epoch(1, 1));
        assert_eq!(attempts.open_reason(3), None);
    }

    #[test]
    fn errors_count_as_failures() {
        let mut attempts = CompactionAttempts::default();
        (0..2).for_each(|_| attempts.record_failure());
        attempts.record_outcome(&epoch(0, 0));
        assert_eq!((attempts.open_reason(3), attempts.open_reason(2).is_some()), (None, true));
    }

    #[test]
    fn thrashing_is_three_quick_refills_in_a_row() {
        let mut attempts = CompactionAttempts::default();
        let mut refill = |at: u64, answers: u64| {
            attempts.record_outcome(&epoch(at, 1 + answers));
            let is_thrashing = attempts.is_thrashing(&epoch(at, 1 + answers));
            attempts.record_plan(&epoch(at, 1), 1);
            is_thrashing
        };
        let seen = [(0, 9), (1, 3), (2, 0), (3, 9), (4, 3), (5, 2), (6, 1), (7, 9)]
            .map(|(at, answers)| refill(at, answers));
        assert_eq!(seen, [false, false, false, false, false, false, true, false]);
    }
}

//! What becomes of compactions in a row: the breaker that stops them, and the sign of thrashing.

use ctxhost_engine_api::{Entry, EntryKind, Role, Transcript};
use ctxhost_engine_kit::circuit_breaker::CircuitBreaker;

/// A window that is full again after so few answers was not helped. 3, the published figure.
const THRASH_ANSWERS: u64 = 3;
/// So many times in a row make a pattern. 3, the published figure.
const THRASH_TIMES: u32 = 3;

/// The compactions that were tried in one session.
#[derive(Debug, Default)]
pub(crate) struct CompactionAttempts {
    circuit: CircuitBreaker,
    /// The epoch for which a plan was made whose fate is not known yet.
    tried_epoch: Option<u64>,
    /// Answers of the model that the newest plan kept.
    kept_answers: Option<u64>,
    refills: u32,
}

impl CompactionAttempts {
    /// Looks at what became of the newest plan: a new epoch says that it was applied.
    pub(crate) fn record_outcome(&mut self, transcript: &Transcript) {
        match self.tried_epoch.take() {
            Some(epoch) if transcript.epoch() > epoch => self.circuit.record_success(),
            Some(_) => self.record_failure(),
            None => {}
        }
    }

    /// A plan goes to the host, which may still refuse it.
    pub(crate) fn record_plan(&mut self, transcript: &Transcript, kept_answers: u64) {
        self.tried_epoch = Some(transcript.epoch());
        self.kept_answers = Some(kept_answers);
    }

    /// A compaction ended in an error.
    pub(crate) fn record_failure(&mut self) {
        self.circuit.record_failure(0);
    }

    /// Why no compaction is made; `None` while the breaker is closed.
    pub(crate) fn open_reason(&self, limit: u32) -> Option<String> {
        // No time closes it.
        self.circuit.open_ms(0, limit, u64::MAX)?;
        let failures = self.circuit.failures();
        Some(format!(
            "{failures} compactions failed in a row; one by hand that works closes the breaker"
        ))
    }

    /// Whether the window has been full again soon after each of the last compactions; to be asked
    /// once before each, after [`record_outcome`](Self::settle).
    pub(crate) fn is_thrashing(&mut self, transcript: &Transcript) -> bool {
        let Some(kept) = self.kept_answers.take().filter(|_| self.circuit.failures() == 0) else {
            return false;
        };
        let new_answers = count_answers(transcript, 0).saturating_sub(kept);
        self.refills = if new_answers <= THRASH_ANSWERS { self.refills + 1 } else { 0 };
        self.refills >= THRASH_TIMES
    }
}

/// The model's own messages from a position on.
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

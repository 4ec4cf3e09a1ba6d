//! One summary to write, with its limits.

use ctxhost_engine_kit::history_fold::HistoryFold;
use ctxhost_engine_kit::ledger::{LedgerLimits, LedgerReader, SummaryLedger};

use crate::settings::CHARS_PER_TOKEN;

/// Lower bound of a summary, in weighted characters: five headings, an envelope and a few lines.
pub(super) const LEAST_SUMMARY_CHARS: u64 = 1_000;

/// One summary to write, with its limits.
#[derive(Clone, Debug)]
pub(crate) struct SummaryTask {
    /// The history it replaces.
    pub(crate) history: HistoryFold,
    /// Limit with envelope and without ledger, in weighted characters.
    pub(crate) limit_chars: u64,
    /// Its ledger.
    pub(crate) ledger: SummaryLedger,
    /// Limits of the ledger.
    pub(crate) ledger_limits: LedgerLimits,
    /// Maximum size of the ledger, in weighted characters.
    pub(super) ledger_chars: u64,
    /// Free room for requests that the ledger does not list and for older reports, in weighted characters.
    pub(super) free_chars: u64,
    /// Whether it covers the beginning of a turn that continues in the tail; the request itself is
    /// kept.
    pub(crate) is_turn_prefix: bool,
}

impl SummaryTask {
    pub(super) fn new(
        ledgers: &mut LedgerReader<'_>,
        history: HistoryFold,
        limits: LedgerLimits,
        is_turn_prefix: bool,
    ) -> SummaryTask {
        let ledger = ledgers.read(history.gaps());
        let mut task = SummaryTask {
            history,
            limit_chars: 0,
            ledger,
            ledger_limits: limits,
            ledger_chars: 0,
            free_chars: 0,
            is_turn_prefix,
        };
        task.limit_ledger(limits, u64::MAX);
        task
    }

    pub(super) fn limit_ledger(&mut self, limits: LedgerLimits, most_chars: u64) {
        self.ledger_limits = self.ledger.fit_limits(limits, most_chars);
        self.ledger_chars = self.ledger.chars(self.ledger_limits);
    }

    /// The limits of the ledger beside `shown_chars` of sections and appendix: requests that are not listed get the
    /// free room.
    pub(crate) fn limits_beside(&self, shown_chars: u64) -> LedgerLimits {
        let all_chars = self.limit_chars + self.ledger_chars + self.free_chars;
        self.ledger.widen_requests(self.ledger_limits, all_chars.saturating_sub(shown_chars))
    }

    /// What sections and appendix may take beside a ledger that lists all requests, in weighted characters.
    pub(crate) fn section_chars(&self) -> u64 {
        let ledger_room = self.ledger_chars + self.free_chars;
        let limits = self.ledger.widen_requests(self.ledger_limits, ledger_room);
        self.limit_chars + ledger_room.saturating_sub(self.ledger.chars(limits))
    }

    pub(super) fn max_tokens(&self) -> u64 {
        (self.limit_chars + self.ledger_chars).div_ceil(CHARS_PER_TOKEN)
    }

    pub(super) fn shed_sections(&mut self, excess_chars: u64) {
        let least_chars = self.limit_chars.min(LEAST_SUMMARY_CHARS);
        self.limit_chars = self.limit_chars.saturating_sub(excess_chars).max(least_chars);
    }

    pub(super) fn shed_ledger(&mut self, excess_chars: u64) {
        let left_chars = self.ledger_chars.saturating_sub(excess_chars);
        self.limit_ledger(self.ledger_limits, left_chars);
    }
}

//! The masked tool results of a session.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Role, Transcript};
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::cuts::trailing_frame;
use ctxhost_engine_kit::masks::render_masked_result;
use ctxhost_engine_kit::name_ledger::NameLedger;

use crate::{LAYER, Settings};

/// The results of a session, oldest first. The first [`masked_count`](Self::masked_count) are
/// masked.
#[derive(Debug, Default)]
pub(crate) struct ResultMasks {
    cursor: TranscriptCursor,
    pub(crate) names: NameLedger,
    seqs: Vec<u64>,
    /// One per result, written when an entry follows that is no result, and never changed.
    // What the model names right after a result counts, and a restart writes the same lines.
    lines: Vec<MaskLine>,
    /// Number of results before the newest frame; results of the live round are never masked.
    before_newest: usize,
    masked: usize,
}

#[derive(Debug)]
struct MaskLine {
    /// `None` if the result is not longer than its line.
    text: Option<String>,
    /// Original length, in characters.
    before_chars: usize,
    /// Tokens saved by this line and all lines before it.
    saved_tokens: u64,
}

impl ResultMasks {
    /// Reads new entries; starts over if the transcript is another one, and returns whether it did.
    pub(crate) fn follow(&mut self, transcript: &Transcript, settings: &Settings) -> bool {
        let new = self.cursor.advance(transcript);
        let is_another = new.start == 0;
        if is_another {
            let cursor = std::mem::take(&mut self.cursor);
            *self = ResultMasks { cursor, ..ResultMasks::default() };
        }
        for entry in transcript.range(new) {
            self.names.read_entry(&entry);
            // Not the frame: a late result changes the frames of the entries before it.
            if entry.role() == Role::Tool {
                self.seqs.push(entry.seq());
            } else {
                self.write_lines(transcript, settings.name_chars);
            }
        }
        let newest_frame = trailing_frame(transcript);
        self.before_newest = self.seqs.partition_point(|&seq| seq < newest_frame);
        is_another
    }

    /// Writes the lines of all results so far.
    fn write_lines(&mut self, transcript: &Transcript, name_chars: u64) {
        let seqs = self.seqs.get(self.lines.len()..).unwrap_or_default();
        for entry in seqs.iter().filter_map(|&seq| transcript.get(seq)) {
            let line = render_masked_result(transcript, &entry, &self.names, name_chars);
            // A line longer than the result is not used.
            let saving = entry.tokens().checked_sub(tokens::estimate(&line)).filter(|&n| n > 0);
            let saved_before = self.lines.last().map_or(0, |line| line.saved_tokens);
            self.lines.push(MaskLine {
                text: saving.map(|_| line),
                before_chars: entry.text().chars().count(),
                saved_tokens: saved_before + saving.unwrap_or(0),
            });
        }
    }

    /// Number of masked results.
    pub(crate) fn masked_count(&self) -> usize {
        self.masked
    }

    /// Whether an entry is a masked result.
    pub(crate) fn is_masked(&self, seq: u64) -> bool {
        let at = self.seqs.get(..self.masked).unwrap_or(&[]).binary_search(&seq);
        at.ok().and_then(|at| self.lines.get(at)).is_some_and(|line| line.text.is_some())
    }

    /// Position of the newest masked result.
    pub(crate) fn last_masked(&self) -> Option<u64> {
        self.seqs.get(self.masked.checked_sub(1)?).copied()
    }

    /// Maximum number of masked results if the newest `keep` stay.
    pub(crate) fn maskable_count(&self, keep: usize) -> usize {
        self.seqs.len().saturating_sub(keep).min(self.before_newest)
    }

    /// Number of results to mask without pressure: whole batches.
    pub(crate) fn due_count(&self, settings: &Settings) -> usize {
        let old = self.maskable_count(settings.keep_results);
        // Whole batches, so that the cached prefix is stable in between.
        old - old % settings.batch_results.max(1)
    }

    /// Masks no result, before those of another budget are masked.
    pub(crate) fn unmask(&mut self) {
        self.masked = 0;
    }

    /// Masks the first `count` results; never unmasks.
    pub(crate) fn mask_until(&mut self, count: usize) {
        self.masked = self.masked.max(count.min(self.lines.len()));
    }

    /// Size of a range with its masks, in tokens.
    pub(crate) fn tokens(&self, transcript: &Transcript, range: Range<u64>) -> u64 {
        let lines = self.lines_in(&range);
        // Prefix sums: the cost of a range is a subtraction.
        let saved_until = |at: usize| {
            at.checked_sub(1).and_then(|at| self.lines.get(at)).map_or(0, |line| line.saved_tokens)
        };
        let saved = saved_until(lines.end) - saved_until(lines.start);
        transcript.tokens(range).saturating_sub(saved)
    }

    /// Keeps a range with its masks.
    pub(crate) fn keep_range(&self, plan: &mut Plan, range: Range<u64>) {
        let mut from = range.start;
        for at in self.lines_in(&range) {
            let (Some(&seq), Some(line)) = (self.seqs.get(at), self.lines.get(at)) else {
                continue;
            };
            let Some(text) = &line.text else { continue };
            plan.keep(from..seq).replace_text(seq, text.as_str());
            plan.note(LAYER, format!("{} → {} chars", line.before_chars, text.chars().count()));
            from = seq + 1;
        }
        plan.keep(from..range.end);
    }

    /// Indices of the masked results in a range.
    fn lines_in(&self, range: &Range<u64>) -> Range<usize> {
        let masked = self.seqs.get(..self.masked).unwrap_or(&[]);
        let at = |position: u64| masked.partition_point(|&seq| seq < position);
        at(range.start)..at(range.end)
    }
}

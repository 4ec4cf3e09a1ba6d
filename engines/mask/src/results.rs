//! The masked tool results of a session.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, Flags, Plan, Role, Transcript};
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::cuts::trailing_frame;

use crate::{LAYER, Settings};

/// Length of the arguments in a line, in characters.
// Enough for a path or a command.
const ARGUMENTS_CHARS: usize = 80;

/// The results of a session, oldest first. The first [`masked_count`](Self::masked_count) are
/// masked.
#[derive(Debug, Default)]
pub(crate) struct ResultMasks {
    cursor: TranscriptCursor,
    seqs: Vec<u64>,
    /// One per masked result, never changed.
    lines: Vec<MaskLine>,
    /// Number of results before the newest frame; results of the live round are never masked.
    before_newest: usize,
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
    /// Reads new entries; starts over if the transcript is another one.
    pub(crate) fn follow(&mut self, transcript: &Transcript) {
        let new = self.cursor.advance(transcript);
        if new.start == 0 {
            self.seqs.clear();
            self.lines.clear();
        }
        let results = transcript.range(new).filter(|entry| entry.role() == Role::Tool);
        self.seqs.extend(results.map(|entry| entry.seq()));
        let newest_frame = trailing_frame(transcript);
        self.before_newest = self.seqs.partition_point(|&seq| seq < newest_frame);
    }

    /// Number of masked results.
    pub(crate) fn masked_count(&self) -> usize {
        self.lines.len()
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

    /// Masks the first `count` results; never unmasks.
    pub(crate) fn mask_until(&mut self, transcript: &Transcript, count: usize) {
        let seqs = self.seqs.get(self.lines.len()..count.min(self.seqs.len())).unwrap_or(&[]);
        for entry in seqs.iter().filter_map(|&seq| transcript.get(seq)) {
            let before_chars = entry.text().chars().count();
            let line = line_of(transcript, &entry, before_chars);
            // A line longer than the result is not used.
            let saving = entry.tokens().checked_sub(tokens::estimate(&line)).filter(|&n| n > 0);
            let saved_before = self.lines.last().map_or(0, |line| line.saved_tokens);
            self.lines.push(MaskLine {
                text: saving.map(|_| line),
                before_chars,
                saved_tokens: saved_before + saving.unwrap_or(0),
            });
        }
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
        let masked = self.seqs.get(..self.lines.len()).unwrap_or(&[]);
        let at = |position: u64| masked.partition_point(|&seq| seq < position);
        at(range.start)..at(range.end)
    }
}

/// The line of a result: `[result left out: read {"path":"src/main.rs"}, ok, 12408 chars]`.
fn line_of(transcript: &Transcript, entry: &Entry<'_>, chars: usize) -> String {
    let Some(result) = entry.tool_result() else {
        return format!("[result left out: {chars} chars]");
    };
    let failed = result.is_error || entry.has(Flags::ERROR);
    let status = if failed { "error" } else { "ok" };
    let call = transcript
        .range(entry.frame()..entry.seq())
        .rev()
        .flat_map(|earlier| earlier.tool_calls())
        .find(|call| call.id == result.call_id);
    let (tool, arguments) = match &call {
        Some(call) => (call.name.as_ref(), excerpt(&call.arguments)),
        None => (result.tool.as_ref(), String::new()),
    };
    let space = if arguments.is_empty() { "" } else { " " };
    format!("[result left out: {tool}{space}{arguments}, {status}, {chars} chars]")
}

/// The beginning of a call's arguments, on one line.
fn excerpt(arguments: &str) -> String {
    if arguments == "{}" {
        return String::new();
    }
    let one_line = arguments.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut excerpt: String = one_line.take(ARGUMENTS_CHARS).collect();
    if arguments.chars().nth(ARGUMENTS_CHARS).is_some() {
        excerpt.pop();
        excerpt.push('…');
    }
    excerpt
}

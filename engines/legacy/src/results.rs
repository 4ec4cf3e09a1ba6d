//! The tool results of a transcript and their replacements.

use std::collections::BTreeMap;

use ctxhost_engine_api::{Entry, Flags, Plan, Role, Transcript};
use ctxhost_engine_kit::history_fold::plan_tokens;
use ctxhost_engine_kit::replacement::keep_with_replacements;
pub(crate) use ctxhost_engine_kit::replacement::{Replacement, ReplacementBody};

use crate::settings::CHARS_PER_TOKEN;

/// One tool result.
#[derive(Clone, Debug)]
pub(crate) struct ToolRow {
    /// Position in the transcript.
    pub(crate) seq: u64,
    /// Size in the next request, in weighted characters.
    pub(crate) chars: u64,
    /// Its replacement, if any.
    pub(crate) replacement: Option<Replacement>,
}

impl ToolRow {
    /// Sets the replacement.
    pub(crate) fn replace(&mut self, replacement: Replacement) {
        self.chars = replacement.chars();
        self.replacement = Some(replacement);
    }
}

/// All tool results, oldest first, and replacements of other entries.
#[derive(Debug)]
pub(crate) struct ToolResults<'a> {
    transcript: &'a Transcript,
    /// The results.
    pub(crate) rows: Vec<ToolRow>,
    /// Start of the trailing batch: results that the model has not answered yet.
    pub(crate) trailing_from: u64,
    /// Positions of entries with images.
    pub(crate) image_seqs: Vec<u64>,
    /// Replacements of other entries.
    other_replacements: BTreeMap<u64, Replacement>,
}

impl<'a> ToolResults<'a> {
    /// Collects the results. Each counts at most `cap_chars`, because the tool-result guard cuts it
    /// there.
    pub(crate) fn from_transcript(transcript: &'a Transcript, cap_chars: u64) -> Self {
        let mut results = ToolResults {
            transcript,
            rows: Vec::new(),
            trailing_from: 0,
            image_seqs: Vec::new(),
            other_replacements: BTreeMap::new(),
        };
        for entry in transcript.iter() {
            match entry.role() {
                Role::Tool if !entry.has(Flags::ORPHAN) => {
                    // The tool-result guard cuts it there, so pruning must not count more.
                    let chars = raw_chars(&entry).min(cap_chars);
                    results.rows.push(ToolRow { seq: entry.seq(), chars, replacement: None });
                }
                // The results after the last answer are the ones that the model has not read.
                Role::Assistant => results.trailing_from = entry.seq() + 1,
                _ => {}
            }
            results.image_seqs.extend(entry.has(Flags::IMAGES).then_some(entry.seq()));
        }
        results
    }

    /// The result at a position.
    pub(crate) fn row_at(&mut self, seq: u64) -> Option<&mut ToolRow> {
        let at = self.rows.binary_search_by_key(&seq, |row| row.seq).ok()?;
        self.rows.get_mut(at)
    }

    /// Replaces an entry that is not a result.
    pub(crate) fn replace_entry(&mut self, seq: u64, replacement: Replacement) {
        self.other_replacements.insert(seq, replacement);
    }

    /// Size of the whole request with all replacements, in weighted characters.
    pub(crate) fn context_chars(&self) -> u64 {
        let raw = |seq| self.transcript.get(seq).map_or(0, |entry| raw_chars(&entry));
        let results: u64 = self.rows.iter().map(|row| raw(row.seq)).sum();
        let asides: u64 = self.other_replacements.keys().map(|seq| raw(*seq)).sum();
        let asides_now: u64 = self.other_replacements.values().map(Replacement::chars).sum();
        // From sums, without walking the entries that no layer replaced.
        let whole = self.transcript.total_tokens() * CHARS_PER_TOKEN;
        whole.saturating_sub(results + asides) + self.result_chars() + asides_now
    }

    /// Whether the whole request is over `budget_tokens`, so that the host would compact.
    pub(crate) fn exceeds(&self, budget_tokens: u64) -> bool {
        self.context_chars() > budget_tokens.saturating_mul(CHARS_PER_TOKEN)
    }

    /// Size of an entry in the next request, in tokens.
    pub(crate) fn shown_tokens(&self, entry: &Entry<'_>) -> u64 {
        let seq = entry.seq();
        if let Some(other) = self.other_replacements.get(&seq) {
            return other.tokens();
        }
        match self
            .rows
            .binary_search_by_key(&seq, |row| row.seq)
            .ok()
            .and_then(|at| self.rows.get(at))
        {
            Some(row) => row.chars.div_ceil(CHARS_PER_TOKEN),
            None => entry.tokens(),
        }
    }

    /// Size of all results with their replacements, in weighted characters.
    pub(crate) fn result_chars(&self) -> u64 {
        self.rows.iter().map(|row| row.chars).sum()
    }

    /// The plan with all replacements.
    pub(crate) fn into_plan(self) -> Plan {
        // A notice longer than a short result gains nothing, and the host limits the text that
        // engines insert.
        let is_shorter = |seq: u64, replacement: &Replacement| {
            self.transcript.get(seq).is_none_or(|entry| replacement.chars() < raw_chars(&entry))
        };
        let replacement = self.rows.into_iter().filter_map(|row| Some((row.seq, row.replacement?)));
        let mut replaced = self.other_replacements;
        replaced.extend(replacement.filter(|(seq, replacement)| is_shorter(*seq, replacement)));
        let mut plan = Plan::default();
        let whole = 0..self.transcript.len() as u64;
        let by_position = replaced.iter().map(|(seq, replacement)| (*seq, replacement));
        keep_with_replacements(&mut plan, whole, by_position);
        // The common case of an unchanged transcript needs no walk over its entries.
        plan.estimated_tokens = if replaced.is_empty() {
            self.transcript.total_tokens()
        } else {
            plan_tokens(&plan, self.transcript)
        };
        plan
    }
}

/// Size of an entry in the session, in weighted characters.
fn raw_chars(entry: &Entry<'_>) -> u64 {
    entry.tokens() * CHARS_PER_TOKEN
}

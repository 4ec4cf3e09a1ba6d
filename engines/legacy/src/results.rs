//! The tool results of a transcript: what each costs, and what a layer made of it.

use ctxhost_engine_api::{Entry, Flags, Plan, Role, Transcript};

use crate::settings::CHARS_PER_TOKEN;

/// What the model sees in place of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The text.
    pub(crate) text: String,
    /// Which layer decided it.
    pub(crate) layer: &'static str,
    /// What it did, for people.
    pub(crate) detail: String,
}

/// One tool result.
#[derive(Clone, Debug)]
pub(crate) struct ToolRow {
    /// Position in the transcript.
    pub(crate) seq: u64,
    /// What it costs in the next request, in weighted characters.
    pub(crate) chars: u64,
    /// The replacement, if a layer made one.
    pub(crate) shown: Option<Shown>,
}

/// All tool results, oldest first.
#[derive(Debug)]
pub(crate) struct ToolResults<'a> {
    transcript: &'a Transcript,
    /// The results.
    pub(crate) rows: Vec<ToolRow>,
    /// Where the trailing batch begins: the results that the model has not answered yet.
    pub(crate) trailing_from: u64,
}

impl<'a> ToolResults<'a> {
    /// Walks the transcript once. A result is never counted above `cap_chars`, because the
    /// tool-result guard cuts it there.
    pub(crate) fn of(transcript: &'a Transcript, cap_chars: u64) -> Self {
        let mut results = ToolResults { transcript, rows: Vec::new(), trailing_from: 0 };
        for entry in transcript.iter() {
            match entry.role() {
                Role::Tool if !entry.has(Flags::ORPHAN) => {
                    let chars = raw_chars(&entry).min(cap_chars);
                    results.rows.push(ToolRow { seq: entry.seq(), chars, shown: None });
                }
                Role::Assistant => results.trailing_from = entry.seq() + 1,
                _ => {}
            }
        }
        results
    }

    /// What the whole request costs with everything that was decided so far, in weighted characters.
    pub(crate) fn context_chars(&self) -> u64 {
        let raw = self.rows.iter().filter_map(|row| self.entry(row.seq));
        let raw_results: u64 = raw.map(|entry| raw_chars(&entry)).sum();
        let whole = self.transcript.total_tokens() * CHARS_PER_TOKEN;
        whole.saturating_sub(raw_results) + self.result_chars()
    }

    /// What all results cost with everything that was decided so far, in weighted characters.
    pub(crate) fn result_chars(&self) -> u64 {
        self.rows.iter().map(|row| row.chars).sum()
    }

    /// The plan that keeps everything but what was replaced.
    pub(crate) fn into_plan(self) -> Plan {
        let mut plan = Plan::default();
        let mut kept = 0;
        for row in self.rows {
            let Some(shown) = row.shown else { continue };
            plan.keep(kept..row.seq);
            plan.replace_text(row.seq, shown.text).note(shown.layer, shown.detail);
            kept = row.seq + 1;
        }
        plan.keep(kept..self.transcript.len() as u64);
        let items = plan.ops.len() > 1;
        plan.estimated_tokens = if items {
            plan.project(self.transcript).iter().map(|item| item.tokens()).sum()
        } else {
            self.transcript.total_tokens()
        };
        plan
    }

    fn entry(&self, seq: u64) -> Option<Entry<'a>> {
        self.transcript.get(seq)
    }
}

/// What an entry costs as the session has it, in weighted characters.
fn raw_chars(entry: &Entry<'_>) -> u64 {
    entry.tokens() * CHARS_PER_TOKEN
}

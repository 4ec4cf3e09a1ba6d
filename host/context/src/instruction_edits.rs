//! Instructions within the history whose texts the client has changed.
//!
//! An edit lands on an entry. Where a summary or a window has replaced that entry, the model would see the old text or none, so
//! the prompt repeats the new one.

use std::borrow::Cow;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, EntryKind, Op, Plan, Role, Transcript};
use ctxhost_invariants::EnforcedPlan;
use ctxhost_session::{Record, RecordKind, Session, parse_context_edit};
use serde_json::Value;

/// The part of the budget that changed instructions may have: 1 of so many. The newest edits come first.
const BUDGET_PART: u64 = 4;

/// What precedes a text that is repeated.
const PREFIX: &str =
    "[ctxhost: the client has changed an earlier instruction; this is its present text]\n";

/// The edited instructions of a session.
#[derive(Debug, Default)]
pub(crate) struct InstructionEdits {
    /// The records of the branch that were read, and the id of the last one.
    seen: usize,
    last_id: String,
    /// Entry ids and texts; the newest edit is last.
    texts: Vec<(String, String)>,
}

impl InstructionEdits {
    /// Updates to a session. Each record is read once, unless the branch is another one.
    pub(crate) fn update(&mut self, session: &Session) {
        let branch = session.branch();
        let last = self.seen.checked_sub(1).and_then(|at| branch.get(at));
        if last.is_none_or(|record| record.id() != self.last_id) {
            *self = InstructionEdits::default();
        }
        for record in branch.get(self.seen..).unwrap_or_default() {
            let is_edit = *record.kind() == RecordKind::ContextEdit;
            let edit = is_edit.then(|| parse_context_edit(record)).flatten();
            let Some((id, content)) = edit else { continue };
            self.texts.retain(|(known, _)| *known != id);
            let text = content.and_then(|content| text_of(&content));
            if let Some(text) = text.filter(|_| is_instruction(session, &id)) {
                self.texts.push((id, text));
            }
        }
        self.seen = branch.len();
        self.last_id = branch.last().map(|record| record.id().to_owned()).unwrap_or_default();
    }

    /// The edited instructions that a prompt from `view` may have to repeat.
    pub(crate) fn in_view(&self, view: &Transcript, budget_tokens: u64) -> EditedInstructions {
        let mut room_tokens = budget_tokens / BUDGET_PART;
        let mut texts = Vec::new();
        for (id, text) in self.texts.iter().rev() {
            let text = format!("{PREFIX}{text}");
            let Some(rest) = room_tokens.checked_sub(tokens::estimate(&text)) else { continue };
            room_tokens = rest;
            let entry = view.iter().find(|entry| entry.id() == id);
            texts.push(EditedInstruction { seq: entry.map(|entry| entry.seq()), text });
        }
        texts.reverse();
        EditedInstructions(texts)
    }
}

/// Edited instructions, by the time of their edits.
#[derive(Debug)]
pub(crate) struct EditedInstructions(Vec<EditedInstruction>);

#[derive(Debug)]
struct EditedInstruction {
    /// Its entry; `None` if a compaction has replaced it.
    seq: Option<u64>,
    text: String,
}

impl EditedInstructions {
    /// The size of those whose entries a compaction has replaced, in estimated tokens.
    pub(crate) fn folded_tokens(&self) -> u64 {
        self.tokens_where(|it| it.seq.is_none())
    }

    /// The size of those that a plan does not keep, in estimated tokens.
    pub(crate) fn missing_tokens(&self, plan: &Plan) -> u64 {
        self.tokens_where(|it| !it.is_kept(plan))
    }

    fn tokens_where(&self, is_meant: impl Fn(&EditedInstruction) -> bool) -> u64 {
        let meant = self.0.iter().filter(|it| is_meant(it));
        meant.map(|it| tokens::estimate(&it.text)).sum()
    }

    /// Adds those that a plan does not keep, before what it keeps of the history: a later change then costs the cache of
    /// the provider no more than one of the entry would.
    pub(crate) fn add_missing(&self, mut checked: EnforcedPlan, view: &Transcript) -> EnforcedPlan {
        let missing = self.0.iter().filter(|it| !it.is_kept(&checked.plan));
        let texts: Vec<&str> = missing.map(|it| it.text.as_str()).collect();
        if texts.is_empty() {
            return checked;
        }
        let is_summary = |entry: &Entry<'_>| entry.kind() == EntryKind::CompactionSummary;
        let place = view.iter().take_while(is_summary).count() as u64;
        checked.tokens += self.missing_tokens(&checked.plan);
        checked.plan.ops = with_insert(checked.plan.ops, place, &texts.join("\n\n"));
        checked
    }
}

impl EditedInstruction {
    fn is_kept(&self, plan: &Plan) -> bool {
        let is_in = |op: &Op| match &op.action {
            Action::Keep(range) => self.seq.is_some_and(|seq| range.contains(&seq)),
            Action::ReplaceText { seq, .. } | Action::ReplaceRaw { seq, .. } => {
                Some(*seq) == self.seq
            }
            _ => false,
        };
        plan.ops.iter().any(is_in)
    }
}

/// The operations with a message of the user at a place, or behind the operation that covers it.
fn with_insert(ops: Vec<Op>, place: u64, text: &str) -> Vec<Op> {
    let insert = |at: u64| Op {
        action: Action::Insert { role: Role::User, text: text.to_owned(), covers: at..at },
        note: None,
    };
    let (mut all, mut is_added) = (Vec::with_capacity(ops.len() + 2), false);
    for op in ops {
        let range = op.action.range();
        match &op.action {
            _ if is_added => all.push(op),
            _ if range.start >= place => {
                all.extend([insert(range.start), op]);
                is_added = true;
            }
            Action::Keep(_) if range.end > place => {
                let part = |range| Op { action: Action::Keep(range), note: op.note.clone() };
                all.extend([part(range.start..place), insert(place), part(place..range.end)]);
                is_added = true;
            }
            _ => all.push(op),
        }
    }
    all
}

/// Whether a record is an instruction of the client within the history.
fn is_instruction(session: &Session, id: &str) -> bool {
    let entry = session.record(id).and_then(Record::to_entry);
    let note = entry.and_then(|entry| serde_json::from_str::<Value>(&entry.raw).ok());
    note.is_some_and(|note| {
        note.get("customType").and_then(Value::as_str) == Some(Entry::INSTRUCTION_TYPE)
    })
}

/// The text of the JSON content of an instruction.
fn text_of(content: &str) -> Option<String> {
    let text = |block: &Value| block.get("text").and_then(Value::as_str).map(str::to_owned);
    let content = serde_json::from_str::<Value>(content).ok()?;
    let found = match &content {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Array(blocks) => {
            Cow::Owned(blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n"))
        }
        _ => return None,
    };
    (!found.trim().is_empty()).then(|| found.into_owned())
}

#[cfg(test)]
mod tests {
    use ctxhost_session::{RecordBody, SessionHeader};

    use super::*;

    #[test]
    fn a_text_is_added_before_what_is_kept_of_the_history() {
        let keep = |range| {
            let mut plan = Plan::default();
            plan.keep(range);
            plan.ops
        };
        let places = |ops: Vec<Op>, place| -> Vec<(u64, u64)> {
            let ranges = with_insert(ops, place, "new").into_iter().map(|op| op.action.range());
            ranges.map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(places(keep(0..9), 1), [(0, 1), (1, 1), (1, 9)]);
        assert_eq!(places(keep(0..9), 0), [(0, 0), (0, 9)]);
        assert_eq!(places(keep(4..9), 1), [(4, 4), (4, 9)]);
    }

    #[test]
    fn the_newest_text_of_an_instruction_counts() {
        let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
        let note = RecordBody::custom_message(Entry::INSTRUCTION_TYPE, "one", true);
        let note = session.append_at(note, 0).unwrap();
        let other = RecordBody::custom_message("other", "one", true);
        let other = session.append_at(other, 0).unwrap();
        let mut edits = InstructionEdits::default();
        for (id, content) in [(&note, r#""two""#), (&other, r#""two""#), (&note, r#""three""#)] {
            session.append_at(RecordBody::context_edit(id, Some(content)), 0).unwrap();
            edits.update(&session);
        }
        assert_eq!(edits.texts, [(note.clone(), "three".to_owned())]);
        let view = session.live(1).snapshot();
        let edited = edits.in_view(&view, 10_000);
        assert_eq!((edited.folded_tokens(), edited.missing_tokens(&Plan::keep_all(2))), (0, 0));
        assert!(edited.missing_tokens(&Plan::default()) > 0);
        // More than its part of the budget it does not get.
        assert_eq!(edits.in_view(&view, 40).missing_tokens(&Plan::default()), 0);
        session.append_at(RecordBody::context_edit(&note, None), 0).unwrap();
        edits.update(&session);
        assert_eq!(edits.texts, []);
    }
}

//! Conversations as alternating turns, as Anthropic and Gemini require them.

use serde_json::Value;

use crate::pairing::{BOOTSTRAP, CONTINUE};

/// One turn; it has at least one part.
#[derive(Debug)]
pub(super) struct RoleTurn<R> {
    pub(super) role: R,
    pub(super) parts: Vec<Value>,
}

/// The turns of a conversation while it is written.
#[derive(Debug)]
pub(super) struct TurnList<R> {
    turns: Vec<RoleTurn<R>>,
}

impl<R: Copy + PartialEq> TurnList<R> {
    pub(super) fn new() -> TurnList<R> {
        TurnList { turns: Vec::new() }
    }

    /// Appends parts, to the last turn if it has the same role.
    pub(super) fn push(&mut self, role: R, mut parts: Vec<Value>) {
        match self.turns.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == role => last.parts.append(&mut parts),
            _ => self.turns.push(RoleTurn { role, parts }),
        }
    }

    /// The turns, with a user turn added where the conversation starts or ends with the model.
    pub(super) fn close(
        mut self,
        user: R,
        model: R,
        text_part: impl Fn(&str) -> Value,
    ) -> Vec<RoleTurn<R>> {
        if self.turns.first().is_none_or(|first| first.role == model) {
            self.turns.insert(0, RoleTurn { role: user, parts: vec![text_part(BOOTSTRAP)] });
        }
        // No API here continues an answer that a request ends with.
        if self.turns.last().is_some_and(|last| last.role == model) {
            self.push(user, vec![text_part(CONTINUE)]);
        }
        self.turns
    }
}

//! What providers refuse, written from their rules alone, without our code: O-1 to O-3 of OpenAI, A-5 to
//! A-8 of Anthropic after equal neighbours are merged, G-5 and G-6 of Gemini.
//!
//! That ids are unique over the whole request (the rest of A-8) is up to the renderer of the request:
//! some models use the same ids in every turn, and only the renderer can give them new ones. So are
//! ids that come twice in one message (O-3), which then has as many results of the id.

use ctxhost_engine_api::{Message, PlanItem, Role};
use proptest::prelude::*;

/// One message as any provider would see it.
struct Wire {
    role: Role,
    calls: Vec<String>,
    answers: Option<String>,
}

/// Checks the items against all dialects.
pub(super) fn check(items: &[PlanItem<'_>]) -> Result<(), TestCaseError> {
    let wires: Vec<Wire> = items.iter().map(wire).collect();
    open_ai(&wires)?;
    anthropic(&wires)
}

fn wire(item: &PlanItem<'_>) -> Wire {
    let role = item.role();
    let parsed = match item {
        PlanItem::ReplacedRaw { raw, .. } => Some(Message::parse(raw, "")),
        PlanItem::MissingResult { call_id, .. } => {
            return Wire { role, calls: vec![], answers: Some(call_id.to_string()) };
        }
        other => other.entry().map(|entry| entry.message()),
    };
    let Some(message) = parsed else { return Wire { role, calls: vec![], answers: None } };
    let answers = message.clone().tool_result().map(|head| head.call_id.into_owned());
    let calls = message.tool_calls().into_iter().map(|call| call.id.into_owned()).collect();
    Wire { role, calls, answers }
}

/// Each message with calls is followed by one tool message for each, and by nothing else before.
fn open_ai(wires: &[Wire]) -> Result<(), TestCaseError> {
    let mut open: Vec<&str> = Vec::new();
    for wire in wires {
        if wire.role == Role::Tool {
            let id = wire.answers.as_deref();
            let call = open.iter().position(|call| Some(*call) == id);
            prop_assert!(call.is_some(), "O-2, O-3: {id:?} answers nothing");
            call.map(|call| open.remove(call));
            continue;
        }
        prop_assert!(open.is_empty(), "O-1: {open:?} without an answer");
        open = wire.calls.iter().map(String::as_str).collect();
    }
    prop_assert!(open.is_empty(), "O-1: {open:?} without an answer at the end");
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Piece<'w> {
    Words,
    Use(&'w str),
    Result(&'w str),
}

/// Turns of alternating roles; in each, uses and results are where the rules require them.
fn anthropic(wires: &[Wire]) -> Result<(), TestCaseError> {
    let mut turns: Vec<(bool, Vec<Piece<'_>>)> = Vec::new();
    for wire in wires {
        let is_assistant = wire.role == Role::Assistant;
        let pieces = match &wire.answers {
            Some(id) => vec![Piece::Result(id)],
            None if wire.calls.is_empty() => vec![Piece::Words],
            None => wire.calls.iter().map(|id| Piece::Use(id)).collect(),
        };
        match turns.last_mut().filter(|(role, _)| *role == is_assistant) {
            Some((_, merged)) => merged.extend(pieces),
            None => turns.push((is_assistant, pieces)),
        }
    }
    let nothing = Vec::new();
    for (at, (is_assistant, pieces)) in turns.iter().enumerate() {
        let before = at.checked_sub(1).map_or(&nothing, |before| &turns[before].1);
        let after = turns.get(at + 1).map_or(&nothing, |(_, pieces)| pieces);
        if *is_assistant {
            prop_assert_eq!(ids(pieces), ids(after), "A-5, A-8, G-5, G-6");
        } else {
            prop_assert_eq!(ids(before), ids(pieces), "A-6");
            let first_words = pieces.iter().position(|piece| *piece == Piece::Words);
            let results_first = pieces.iter().skip(first_words.unwrap_or(pieces.len()));
            prop_assert!(results_first.eq(pieces.iter().filter(|p| **p == Piece::Words)), "A-7");
        }
    }
    Ok(())
}

fn ids<'w>(pieces: &[Piece<'w>]) -> Vec<&'w str> {
    let id = |piece: &Piece<'w>| match piece {
        Piece::Use(id) | Piece::Result(id) => Some(*id),
        Piece::Words => None,
    };
    pieces.iter().filter_map(id).collect()
}

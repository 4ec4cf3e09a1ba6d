//! Calls and results without ids, or with ids that come again, in each dialect.

use serde_json::{Value, json};

use crate::inbound::{InboundDialect, ItemEdit, ParseContext, ParsedEntry, json_items};
use crate::message::{ChatBlock, ChatMessage, tool_calls};
use crate::{
    AnthropicInbound, GeminiInbound, OllamaInbound, OpenAiChatInbound, OpenAiResponsesInbound,
};

/// A call or a result: its id, its tool and what tells it apart. Without an id, the field is missing.
type Part = (Option<&'static str>, &'static str, usize);

/// How a dialect writes a user message, an answer with these calls, and the results of them.
struct Wire {
    dialect: &'static dyn InboundDialect,
    user: fn(&str) -> Vec<Value>,
    calls: fn(&[Part]) -> Vec<Value>,
    results: fn(&[Part]) -> Vec<Value>,
}

fn with_id(mut item: Value, field: &str, id: Option<&str>) -> Value {
    if let (Some(id), Some(fields)) = (id, item.as_object_mut()) {
        fields.insert(field.to_owned(), id.into());
    }
    item
}

fn each(parts: &[Part], write: fn(&Part) -> Value) -> Vec<Value> {
    parts.iter().map(write).collect()
}

fn one_user_message(text: &str) -> Vec<Value> {
    vec![json!({ "role": "user", "content": text })]
}

fn chat_answer(calls: Vec<Value>) -> Vec<Value> {
    vec![json!({ "role": "assistant", "content": "", "tool_calls": calls })]
}

const CHAT: Wire = Wire {
    dialect: &OpenAiChatInbound,
    user: one_user_message,
    calls: |parts| {
        chat_answer(each(parts, |(id, tool, number)| {
            let function = json!({ "name": tool, "arguments": format!("{{\"n\":{number}}}") });
            with_id(json!({ "type": "function", "function": function }), "id", *id)
        }))
    },
    results: |parts| {
        each(parts, |(id, tool, number)| {
            let item = json!({ "role": "tool", "name": tool, "content": number.to_string() });
            with_id(item, "tool_call_id", *id)
        })
    },
};

const OLLAMA: Wire = Wire {
    dialect: &OllamaInbound,
    user: one_user_message,
    calls: |parts| {
        chat_answer(each(parts, |(id, tool, number)| {
            let function = json!({ "name": tool, "arguments": { "n": number } });
            with_id(json!({ "function": function }), "id", *id)
        }))
    },
    results: |parts| {
        each(parts, |(id, tool, number)| {
            let item = json!({ "role": "tool", "tool_name": tool, "content": number.to_string() });
            with_id(item, "tool_call_id", *id)
        })
    },
};

const ANTHROPIC: Wire = Wire {
    dialect: &AnthropicInbound,
    user: one_user_message,
    calls: |parts| {
        let blocks = each(parts, |(id, tool, number)| {
            let block = json!({ "type": "tool_use", "name": tool, "input": { "n": number } });
            with_id(block, "id", *id)
        });
        vec![json!({ "role": "assistant", "content": blocks })]
    },
    results: |parts| {
        let blocks = each(parts, |(id, _, number)| {
            let block = json!({ "type": "tool_result", "content": number.to_string() });
            with_id(block, "tool_use_id", *id)
        });
        vec![json!({ "role": "user", "content": blocks })]
    },
};

const RESPONSES: Wire = Wire {
    dialect: &OpenAiResponsesInbound,
    user: |text| vec![json!({ "type": "message", "role": "user", "content": text })],
    calls: |parts| {
        each(parts, |(id, tool, number)| {
            let arguments = format!("{{\"n\":{number}}}");
            let item = json!({ "type": "function_call", "name": tool, "arguments": arguments });
            with_id(item, "call_id", *id)
        })
    },
    results: |parts| {
        each(parts, |(id, _, number)| {
            let item = json!({ "type": "function_call_output", "output": number.to_string() });
            with_id(item, "call_id", *id)
        })
    },
};

const GEMINI: Wire = Wire {
    dialect: &GeminiInbound,
    user: |text| vec![json!({ "role": "user", "parts": [{ "text": text }] })],
    calls: |parts| {
        let parts = each(parts, |(id, tool, number)| {
            let call = json!({ "name": tool, "args": { "n": number } });
            json!({ "functionCall": with_id(call, "id", *id) })
        });
        vec![json!({ "role": "model", "parts": parts })]
    },
    results: |parts| {
        let parts = each(parts, |(id, tool, number)| {
            let response = json!({ "name": tool, "response": { "output": number.to_string() } });
            json!({ "functionResponse": with_id(response, "id", *id) })
        });
        vec![json!({ "role": "user", "parts": parts })]
    },
};

const ALL: [&Wire; 5] = [&CHAT, &OLLAMA, &ANTHROPIC, &RESPONSES, &GEMINI];

/// The entries of all items after the first `known`.
fn entries(wire: &Wire, items: &[Value], known: usize) -> Vec<ParsedEntry> {
    let texts: Vec<String> = items.iter().map(Value::to_string).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (before, new) = texts.split_at(known);
    let earlier = if known == 0 { Vec::new() } else { entries(wire, &items[..known], 0) };
    let name_of = |id: &str| {
        let calls = earlier.iter().flat_map(|entry| match entry {
            ParsedEntry::Message(message) => message.content(),
            _ => &[],
        });
        let blocks: Vec<_> = calls.cloned().collect();
        tool_calls(&blocks).find(|call| call.id == id).map(|call| call.name.clone())
    };
    let context =
        ParseContext { is_start: before.is_empty(), items: before, tool_name_of: &name_of };
    let groups = wire.dialect.parse_items(&mut json_items(new), context).unwrap();
    groups.into_iter().flat_map(|group| group.entries).collect()
}

/// Ids with the positions of their entries.
type PlacedIds = Vec<(usize, String)>;

/// The id of each call by its number, and that of each result.
fn ids(entries: &[ParsedEntry]) -> (PlacedIds, PlacedIds) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            ParsedEntry::Message(ChatMessage::Assistant(answer)) => {
                let number = |value: &Value| usize::try_from(value["n"].as_u64().unwrap()).unwrap();
                let ids = answer.tool_calls();
                calls.extend(ids.map(|call| (number(&call.arguments), call.id.clone())));
            }
            ParsedEntry::Message(ChatMessage::ToolResult(result)) => {
                let text = crate::message::text_of(&result.content);
                results.push((text.parse().unwrap(), result.tool_call_id.clone()));
            }
            _ => {}
        }
    }
    (calls, results)
}

/// Checks that each result has the id of its call, and that calls of one answer have ids of their own.
fn check(wire: &Wire, rounds: &[(&[Part], &[Part])]) {
    let mut items = (wire.user)("go");
    for (calls, results) in rounds {
        items.extend((wire.calls)(calls));
        items.extend((wire.results)(results));
    }
    items.extend((wire.user)("next"));
    let all = entries(wire, &items, 0);
    let (calls, results) = ids(&all);
    let dialect = wire.dialect;
    assert_eq!(calls.len(), rounds.iter().map(|(calls, _)| calls.len()).sum::<usize>());
    assert_eq!(results.len(), rounds.iter().map(|(_, results)| results.len()).sum::<usize>());
    for (number, id) in results {
        let call = calls.iter().find(|(call, _)| *call == number);
        assert_eq!(call, Some(&(number, id)), "{dialect:?} {items:?}");
    }
    for round in calls.chunk_by(|(one, _), (next, _)| one / 10 == next / 10) {
        let mut own: Vec<_> = round.iter().map(|(_, id)| id).collect();
        own.sort();
        own.dedup();
        assert_eq!(own.len(), round.len(), "{dialect:?} {round:?}");
    }
    assert!(!calls.iter().any(|(_, id)| id.is_empty()), "{dialect:?}");
}

#[test]
fn results_without_ids_have_the_ids_of_their_calls() {
    for wire in ALL {
        for id in [None, Some("")] {
            let round = |from: usize| [(id, "read", from), (id, "read", from + 1)];
            let (first, second) = (round(10), round(20));
            check(wire, &[(&first, &first), (&second, &second)]);
            // The last one has no result.
            check(wire, &[(&first, &first[..1]), (&second, &second)]);
        }
    }
}

#[test]
fn results_in_another_order_are_matched_by_id_or_tool() {
    for wire in ALL {
        let calls = [(Some("a"), "read", 10), (Some("b"), "list", 11), (Some("c"), "read", 12)];
        let results = [calls[2], calls[0], calls[1]];
        // Ids come again in a later turn.
        let later = calls.map(|(id, tool, number)| (id, tool, number + 10));
        check(wire, &[(&calls, &results), (&later, &later[1..])]);
    }
    for wire in [&CHAT, &OLLAMA, &GEMINI] {
        let calls = [(None, "read", 10), (None, "list", 11), (None, "read", 12)];
        check(wire, &[(&calls, &[calls[1], calls[0], calls[2]])]);
    }
}

#[test]
fn an_id_that_only_the_result_has_answers_a_call_without_one() {
    for wire in ALL {
        let calls = [(None, "read", 10), (None, "read", 11)];
        let results = [(Some("x"), "read", 10), (Some("y"), "read", 11)];
        check(wire, &[(&calls, &results)]);
    }
}

#[test]
fn a_request_may_begin_anywhere_between_calls_and_results() {
    for wire in ALL {
        let round = |from: usize| [(Some(""), "read", from), (Some(""), "read", from + 1)];
        let mut items = (wire.user)("go");
        for from in [10, 20] {
            items.extend((wire.calls)(&round(from)));
            items.extend((wire.results)(&round(from)));
        }
        let (_, all) = ids(&entries(wire, &items, 0));
        for known in 1..items.len() {
            // A run of calls is one answer, so no request begins inside it.
            if items[known]["type"] == "function_call" {
                continue;
            }
            let (_, results) = ids(&entries(wire, &items, known));
            let rest = all.get(all.len() - results.len()..);
            assert_eq!(rest, Some(&*results), "{:?} {known}", wire.dialect);
        }
    }
}

#[test]
fn an_edited_answer_keeps_its_calls_without_ids() {
    for wire in ALL {
        let parts = [(Some(""), "read", 10), (Some(""), "read", 11), (Some("a"), "list", 12)];
        let items = (wire.calls)(&parts);
        let Some(ParsedEntry::Message(ChatMessage::Assistant(mut answer))) =
            entries(wire, &items, 0).pop()
        else {
            panic!("no answer")
        };
        let texts: Vec<String> = items.iter().map(Value::to_string).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        for block in &mut answer.content {
            if let ChatBlock::ToolCall(call) = block {
                let number = call.arguments["n"].as_u64().unwrap();
                call.arguments = json!({ "n": number + 10 });
            }
        }
        let expected = (wire.calls)(&parts.map(|(id, tool, number)| (id, tool, number + 10)));
        let edit = ItemEdit::ReplaceMessage(ChatMessage::Assistant(answer));
        let edited = wire.dialect.edit_items(&texts, &[edit]);
        let calls_of = |items: &[Value]| ids(&entries(wire, items, 0)).0;
        assert_eq!(calls_of(&edited), calls_of(&expected), "{:?}", wire.dialect);
        let shown = Value::from(edited).to_string();
        assert!(!shown.contains(" unnamed"), "{shown}");
    }
}

#[test]
fn the_result_that_is_missing_has_no_made_up_id() {
    let call = json!({ "type": "function_call", "name": "read", "arguments": "{}" }).to_string();
    for wire in ALL {
        let added =
            wire.dialect.missing_result_item("4.1 unnamed", "read", "lost", Some(&call)).unwrap();
        assert!(!added.to_string().contains("4.1 unnamed"), "{added}");
    }
}

//! Each numbered rule of the five dialects: a body that keeps it and one that breaks it.

mod anthropic;
mod gemini;
mod ollama;
mod openai_chat;
mod responses;

use axum::http::HeaderMap;
use ctxhost_tests::rules::{self, Issued, Memory, Wire};
use serde_json::{Value, json};

/// How a body that keeps all rules is made to break one.
type Break = (&'static str, fn(&mut Value));

/// A good request of a dialect, and what breaks it.
struct Story {
    wire: Wire,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    good: Value,
    breaks: &'static [Break],
    /// What the server sent before the good request, with the request it answered.
    issued: Option<(Value, Issued)>,
}

impl Story {
    fn numbers(&self, body: &Value) -> Vec<&'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            // A test that needs a request without a header says so in the body.
            if body.get("without_header").is_none_or(|without| without != name) {
                headers.insert(*name, value.parse().unwrap());
            }
        }
        let mut memory = Memory::new(true);
        if let Some((asked, issued)) = &self.issued {
            memory.issue(self.wire, asked, issued);
        }
        let mut broken = rules::check(self.wire, self.path, &headers, body);
        broken.extend(memory.check(self.wire, body));
        broken.iter().map(|broken| broken.rule).collect()
    }

    fn check(&self) {
        assert_eq!(self.numbers(&self.good), Vec::<&str>::new(), "{:?}: the good body", self.wire);
        for (number, breaks) in self.breaks {
            let mut body = self.good.clone();
            breaks(&mut body);
            assert_ne!(body, self.good, "{number}: nothing was broken");
            assert!(self.numbers(&body).contains(number), "{number} does not fire: {body}");
        }
    }
}

fn stories() -> [Story; 5] {
    [openai_chat::story(), responses::story(), anthropic::story(), gemini::story(), ollama::story()]
}

#[test]
fn each_rule_can_be_kept_and_broken() {
    stories().iter().for_each(Story::check);
}

#[test]
fn no_rule_goes_without_a_test() {
    for story in stories() {
        let mut known = rules::numbers(story.wire);
        known.extend(Memory::numbers(story.wire));
        let tested: Vec<&str> = story.breaks.iter().map(|(number, _)| *number).collect();
        let untested: Vec<_> = known.iter().filter(|number| !tested.contains(number)).collect();
        assert!(untested.is_empty(), "{:?}: nothing breaks {untested:?}", story.wire);
    }
}

#[test]
fn each_violation_names_its_place() {
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
    ]});
    let broken = rules::check(Wire::OpenAiChat, "/v1/chat/completions", &HeaderMap::new(), &body);
    assert_eq!(broken.len(), 1);
    assert_eq!((broken[0].rule, broken[0].at.as_str()), ("O-1", "messages.1"));
    assert!(broken[0].why.ends_with("did not have response messages: call_1"));
}

/// Takes an element out of a list.
fn remove(body: &mut Value, list: &str, at: usize) {
    body.pointer_mut(list).unwrap().as_array_mut().unwrap().remove(at);
}

/// Puts an element into a list.
fn insert(body: &mut Value, list: &str, at: usize, element: Value) {
    body.pointer_mut(list).unwrap().as_array_mut().unwrap().insert(at, element);
}

/// Puts a value anywhere.
fn set(body: &mut Value, place: &str, value: Value) {
    let (parent, key) = place.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        _ => parent[key] = value,
    }
}

/// Takes a field out of an object.
fn unset(body: &mut Value, place: &str) {
    let (parent, key) = place.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap().as_object_mut().unwrap().shift_remove(key);
}

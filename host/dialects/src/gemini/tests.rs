//! The rules by number, recorded streams, and generated conversations.

mod checker;
mod client_contents;
mod options;
mod rules;
mod streams;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::conversations::{conversations, requests};
use crate::cross_model::adapt_messages;
use crate::dialect::Dialect;
use crate::message::ChatMessage;

/// A model that needs no signatures.
const SECOND: &str = "gemini-2.5-pro";

/// A model that does.
const THIRD: &str = "gemini-3-pro-preview";

/// The contents of a request of these messages.
fn encoded(model: &str, messages: Vec<ChatMessage>) -> Value {
    let request = crate::conversations::request(model, messages);
    encoded_request(&request)["contents"].take()
}

/// The body of a request, which breaks no rule.
fn encoded_request(request: &ModelRequest) -> Value {
    let body = Gemini.encode(request);
    assert_eq!(checker::breaches(&request.model, &body), Vec::<String>::new(), "{body:#}");
    body
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_conversation_keeps_all_rules(
        request in requests(API, &[SECOND, THIRD, "gemini-3-pro-preview-11-2025"]),
    ) {
        let body = Gemini.encode(&request);
        let breaches = checker::breaches(&request.model, &body);
        prop_assert_eq!(breaches, Vec::<String>::new(), "{:#}", body);
        prop_assert_eq!(Gemini.encode(&request), body);
    }

    #[test]
    fn a_lawful_conversation_keeps_all_rules(messages in conversations(API)) {
        encoded(THIRD, adapt_messages(&messages, API, "", THIRD));
    }
}

#[test]
fn the_checker_sees_what_is_broken() {
    let call = serde_json::json!({ "functionCall": { "name": "read", "args": "p" } });
    let answer = serde_json::json!({ "functionResponse": { "name": "list", "response": {} } });
    let body = serde_json::json!({ "contents": [
        { "role": "user", "parts": [{ "text": "a" }] },
        { "role": "model", "parts": [call] },
        { "role": "user", "parts": [answer] },
        { "role": "user", "parts": [answer] },
        { "role": "model", "parts": [{ "text": "" }] },
    ] });
    let broken = checker::breaches(THIRD, &body);
    let expected = [
        "G-1 text",
        "G-2 ends with the user",
        "G-9 args",
        "G-6 same names and ids",
        "G-6 ids",
        "G-5 same number",
        "G-7",
    ];
    assert_eq!(broken, expected);
}

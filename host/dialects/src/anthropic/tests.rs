//! The rules by number, recorded streams, and generated conversations.

mod checker;
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

/// A model that takes budgets.
const MODEL: &str = "claude-sonnet-4-5";

/// The body of a request of these messages.
fn encoded(messages: Vec<ChatMessage>) -> Value {
    encoded_request(&crate::conversations::request(MODEL, messages))
}

/// The body of a request, which breaks no rule.
fn encoded_request(request: &ModelRequest) -> Value {
    let body = Anthropic::default().encode(request);
    assert_eq!(checker::breaches(&body), Vec::<String>::new(), "{body:#}");
    body
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_conversation_keeps_all_rules(
        request in requests(API, &["claude-sonnet-4-5", "claude-opus-4-7", "kimi-k2"]),
        one_hour_cache in prop::bool::ANY,
    ) {
        let dialect = Anthropic { one_hour_cache, ..Anthropic::default() };
        let body = dialect.encode(&request);
        prop_assert_eq!(checker::breaches(&body), Vec::<String>::new(), "{:#}", body);
        prop_assert_eq!(dialect.encode(&request), body);
    }

    #[test]
    fn a_lawful_conversation_keeps_all_rules(messages in conversations(API)) {
        encoded(adapt_messages(&messages, API, "", MODEL));
    }
}

#[test]
fn the_checker_sees_what_is_broken() {
    let text = || serde_json::json!([{ "type": "text", "text": "a" }]);
    let call = serde_json::json!({ "type": "tool_use", "id": "a|b", "name": "read", "input": "p" });
    let body = serde_json::json!({ "max_tokens": 9, "messages": [
        { "role": "user", "content": text() },
        { "role": "assistant", "content": [call] },
        { "role": "user", "content": text() },
        { "role": "assistant", "content": [{ "type": "text", "text": " " }] },
    ] });
    let expected =
        ["A-4 ends with the user", "A-9 id", "A-10 input", "A-3 text", "A-5, A-8", "A-10 tools"];
    assert_eq!(checker::breaches(&body), expected);
}

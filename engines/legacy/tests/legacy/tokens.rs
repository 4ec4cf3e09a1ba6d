//! Cases 1 to 8: the cost of texts and messages.

use ctxhost_engine_api::Message;
use ctxhost_engine_api::transcript::tokens::{self, weighted_chars};
use ctxhost_text::truncate::weighted_len;
use serde_json::{Value, json};

#[test]
fn cases_1_and_2_weighted_characters() {
    for (text, plain, at_least_two) in [
        ("", 0, 0),
        ("abcd", 4, 8),
        ("你好", 8, 8),
        ("你好 hello", 14, 20),
        ("日本語テキスト", 28, 28),
        ("한국어", 12, 12),
        ("\u{1F600}", 2, 4),
        ("\u{20BB7}", 16, 16),
        ("é", 1, 2),
        ("㐀", 12, 12),
    ] {
        assert_eq!(weighted_chars(text), plain, "{text}");
        assert_eq!(weighted_len(text, 2), at_least_two, "{text} with a minimum weight of 2");
    }
}

fn cost(message: &Value) -> u64 {
    tokens::message(&Message::parse(&message.to_string(), ""))
}

/// The reference adds a marker of some 55 characters for omitted images; here an image costs its
/// 2,000 tokens only. Whether a command or a system entry counts (case 6) and the provider's last
/// usage (case 8) are up to the host.
#[test]
fn cases_3_to_7_what_a_message_costs() {
    let image = || json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let user = |content: Value| json!({"role": "user", "content": content});
    for (case, message, expected) in [
        ("3", user(json!("abcde")), 2),
        ("3", user(json!([text("abcd")])), 1),
        ("4", user(json!("你好")), 2),
        ("5, V 2,015", user(json!([text("ab"), image()])), 2_001),
        ("5, V 4,014", user(json!([image(), image()])), 4_000),
        (
            "5, V 2,014",
            json!({"role": "toolResult", "toolCallId": "1", "content": [image()]}),
            2_000,
        ),
        (
            "7",
            json!({"role": "toolResult", "toolCallId": "1", "content": [text("abcd")],
                   "details": {"full": "d".repeat(9_999)}}),
            1,
        ),
    ] {
        assert_eq!(cost(&message), expected, "case {case}");
    }
}

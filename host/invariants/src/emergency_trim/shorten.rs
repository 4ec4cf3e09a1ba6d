//! Shortens texts to their head and tail with a notice in between.

use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN, char_weight, weighted_chars};
use serde_json::{Map, Value};

/// The minimum of a shortened text, in tokens: the notice and a few characters.
pub(super) const MIN_TEXT_TOKENS: u64 = 12;

/// The text in at most `limit_tokens`, which is at least [`MIN_TEXT_TOKENS`].
pub(super) fn shorten(text: &str, limit_tokens: u64) -> String {
    let limit = limit_tokens.saturating_mul(CHARS_PER_TOKEN);
    if weighted_chars(text) <= limit {
        return text.to_owned();
    }
    let chars = text.chars().count();
    // Measured with the largest number that the notice can contain.
    let room = limit.saturating_sub(weighted_chars(&notice(chars)));
    let head = head_within(text.chars(), room / 2);
    let tail = head_within(text.chars().rev(), room / 2);
    let left_out = notice(chars - head.len() - tail.len());
    head.into_iter().chain(left_out.chars()).chain(tail.into_iter().rev()).collect()
}

fn notice(chars: usize) -> String {
    format!("\n[ctxhost: {chars} chars left out]\n")
}

/// The first characters that fit into `room`.
fn head_within(characters: impl Iterator<Item = char>, room: u64) -> Vec<char> {
    let fits = |weight: &mut u64, character: char| {
        *weight += char_weight(character);
        (*weight <= room).then_some(character)
    };
    characters.scan(0, fits).collect()
}

/// Arguments in at most `limit_tokens`: the same keys with shorter strings; an empty object where that is
/// still too long.
pub(super) fn shorten_arguments(arguments: &Value, limit_tokens: u64) -> Value {
    let fits = |value: &Value| tokens::estimate(&value.to_string()) <= limit_tokens;
    if arguments.is_object() && fits(arguments) {
        return arguments.clone();
    }
    let mut string_tokens = limit_tokens;
    while arguments.is_object() && string_tokens >= MIN_TEXT_TOKENS {
        let shorter = with_shorter_strings(arguments, string_tokens);
        if fits(&shorter) {
            return shorter;
        }
        // Halving finds a limit in a few steps; the strings that are short already stay whole.
        string_tokens /= 2;
    }
    // Keys and numbers alone are too long.
    Value::Object(Map::new())
}

fn with_shorter_strings(value: &Value, string_tokens: u64) -> Value {
    match value {
        Value::String(text) => Value::String(shorten(text, string_tokens)),
        Value::Array(values) => {
            values.iter().map(|value| with_shorter_strings(value, string_tokens)).collect()
        }
        Value::Object(members) => {
            let shorter = |(name, value): (&String, &Value)| {
                (name.clone(), with_shorter_strings(value, string_tokens))
            };
            Value::Object(members.iter().map(shorter).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::generate::texts;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn a_shortened_text_fits(text in texts(), limit_tokens in MIN_TEXT_TOKENS..60) {
            let short = shorten(&text, limit_tokens);
            prop_assert!(tokens::estimate(&short) <= limit_tokens, "{short}");
            prop_assert_eq!(short == text, tokens::estimate(&text) <= limit_tokens);
        }
    }

    #[test]
    fn head_and_tail_are_kept() {
        let text = format!("begin{}end", "你".repeat(1_000_000));
        let expected = "begin你你你你\n[ctxhost: 999992 chars left out]\n你你你你end";
        assert_eq!(shorten(&text, 20), expected);
    }

    #[test]
    fn arguments_keep_their_keys() {
        let long = json!({"path": "a.rs", "content": "x".repeat(9_000)});
        let short = shorten_arguments(&long, 40);
        assert_eq!(short["path"], "a.rs");
        assert!(tokens::estimate(&short.to_string()) <= 40);
        let list: Vec<u32> = (0..900).collect();
        assert_eq!(shorten_arguments(&json!({"list": list}), 40), json!({}));
        assert_eq!(shorten_arguments(&json!("x".repeat(900)), 40), json!({}));
    }
}

//! Parses the JSON of items, also valid JSON that serde_json refuses.
//!
//! | valid JSON | is read as |
//! |---|---|
//! | an escape of half a surrogate pair: JavaScript writes it for a text that ends inside an emoji | U+FFFD |
//! | a number beyond 64-bit floats | its text |
//! | a value below [`MAX_LEVELS`] levels | its JSON, as a text |
//!
//! Only the session and rewritten items get this reading. An item that is kept is sent as the client wrote it.

use std::ops::Range;

use ctxhost_engine_api::border::has_levels_up_to;
use serde_json::Value;

use super::spans::replace_spans;
use crate::surrogates::{ESCAPE_BYTES, code_unit};

/// Levels of nesting that are read. serde_json reads 127; a session and its messages add some around an item.
const MAX_LEVELS: usize = 96;

/// A key that makes serde_json read an object as something else.
const RESERVED_KEY: &str = "$serde_json::private::RawValue";

/// Parses an item.
///
/// # Errors
///
/// Those of [`serde_json::from_str`], for what is not JSON.
pub fn parse_item(json: &str) -> serde_json::Result<Value> {
    let parsed = serde_json::from_str(json);
    // Also an item that serde_json reads: the record of its message has more levels.
    if parsed.as_ref().is_ok_and(|value| has_levels_up_to(value, MAX_LEVELS)) {
        return parsed;
    }
    let mut scanner = ItemScanner { json, changes: Vec::new(), at: 0, levels: 0 };
    scanner.scan();
    let readable = replace_spans(json, scanner.changes);
    readable.and_then(|readable| serde_json::from_str(&readable).ok()).map_or(parsed, Ok)
}

/// Finds what serde_json refuses, in JSON that has the right syntax.
struct ItemScanner<'a> {
    json: &'a str,
    changes: Vec<(Range<usize>, String)>,
    at: usize,
    levels: usize,
}

impl ItemScanner<'_> {
    fn scan(&mut self) {
        while let Some(byte) = self.peek() {
            let start = self.at;
            match byte {
                b'"' => self.scan_string(),
                b'-' | b'0'..=b'9' => self.scan_number(),
                b'[' | b'{' if self.levels == MAX_LEVELS => {
                    self.skip_value();
                    let text = self.json.get(start..self.at).unwrap_or_default();
                    self.replace(start, Value::from(text).to_string());
                }
                b'[' | b'{' => {
                    self.levels += 1;
                    self.at += 1;
                }
                b']' | b'}' => {
                    self.levels = self.levels.saturating_sub(1);
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.json.as_bytes().get(self.at).copied()
    }

    /// Replaces what begins at `start` and ends here.
    fn replace(&mut self, start: usize, text: String) {
        self.changes.push((start..self.at, text));
    }

    fn scan_string(&mut self) {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => break,
                b'\\' => self.scan_escape(),
                _ => self.at += 1,
            }
        }
        self.at += 1;
        let raw = self.json.get(start..self.at).unwrap_or_default();
        // Each of its characters may be an escape.
        let is_short = raw.len() <= (RESERVED_KEY.len() + 1) * ESCAPE_BYTES;
        if is_short && serde_json::from_str::<String>(raw).is_ok_and(|text| text == RESERVED_KEY) {
            self.replace(start, format!("\" {RESERVED_KEY}\""));
        }
    }

    fn scan_escape(&mut self) {
        let start = self.at;
        match code_unit(self.json, start) {
            None => self.at += 2,
            Some(0xD800..=0xDBFF)
                if matches!(code_unit(self.json, start + ESCAPE_BYTES), Some(0xDC00..=0xDFFF)) =>
            {
                self.at += 2 * ESCAPE_BYTES;
            }
            Some(unit) => {
                self.at += ESCAPE_BYTES;
                if matches!(unit, 0xD800..=0xDFFF) {
                    self.replace(start, char::REPLACEMENT_CHARACTER.into());
                }
            }
        }
    }

    fn scan_number(&mut self) {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = self.json.get(start..self.at).unwrap_or_default();
        if text.parse().is_ok_and(f64::is_infinite) {
            self.replace(start, format!("\"{text}\""));
        }
    }

    /// Skips a list or an object.
    fn skip_value(&mut self) {
        let mut open = 0;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.skip_string(),
                b'[' | b'{' => open += 1,
                b']' | b'}' => open -= 1,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return;
            }
        }
    }

    /// Skips a string, except for its closing quote.
    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek().filter(|byte| *byte != b'"') {
            self.at += if byte == b'\\' { 2 } else { 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}{}", "[".repeat(levels), "\"]\\\"\"", "]".repeat(levels))
    }

    #[test]
    fn halves_of_surrogate_pairs_become_replacement_characters() {
        for (json, text) in [
            (r#""A \ud83d cut""#, "A \u{FFFD} cut"),
            (r#""\uDE00\ud83d\ude00\uD83D""#, "\u{FFFD}\u{1F600}\u{FFFD}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{FFFD}\u{1F600}"),
            (r#""\\ud83d \" \ud83d""#, "\\ud83d \" \u{FFFD}"),
            (r#""\ud83d\n""#, "\u{FFFD}\n"),
        ] {
            assert_eq!(parse_item(json).unwrap(), json!(text), "{json}");
        }
        let key = parse_item(r#"{"role":"user","\ud83d":1}"#).unwrap();
        assert_eq!(key, json!({"role": "user", "\u{FFFD}": 1}));
    }

    #[test]
    fn numbers_beyond_floats_become_texts() {
        let item = parse_item(r#"{"a":1e400,"b":[-12.5E+999,1e300,7,"1e400"]}"#).unwrap();
        assert_eq!(item, json!({"a": "1e400", "b": ["-12.5E+999", 1e300, 7, "1e400"]}));
    }

    #[test]
    fn deep_values_become_texts() {
        let item = parse_item(&format!(r#"{{"role":"user","x":{},"y":2}}"#, nested(500))).unwrap();
        assert_eq!((&item["role"], &item["y"]), (&json!("user"), &json!(2)));
        let mut inner = &item["x"];
        let mut levels = 1;
        while let Some([next]) = inner.as_array().map(Vec::as_slice) {
            (inner, levels) = (next, levels + 1);
        }
        assert_eq!(levels, MAX_LEVELS);
        assert_eq!(inner, &json!(nested(500 - MAX_LEVELS + 1)));
    }

    #[test]
    fn what_the_parser_reads_itself_has_room_for_a_record() {
        for levels in [MAX_LEVELS, MAX_LEVELS + 1, 120, 127] {
            let item = parse_item(&nested(levels)).unwrap();
            assert!(has_levels_up_to(&item, MAX_LEVELS), "{levels}");
            assert!(!has_levels_up_to(&item, MAX_LEVELS - 1), "{levels}");
        }
    }

    #[test]
    fn a_key_that_the_parser_reserves_is_read() {
        for key in ["$serde_json::private::RawValue", r"\u0024serde_json::private::Raw\u0056alue"] {
            let item = parse_item(&format!(r#"{{"{key}":1,"role":"user"}}"#)).unwrap();
            assert_eq!(item["role"], "user");
        }
    }

    #[test]
    fn what_is_not_json_stays_an_error() {
        for json in ["", "{", r#""\ud8""#, r#"{"a":1e400"#, "[1e400,]", "\"\\", "-", "]", "\"é"] {
            assert!(parse_item(json).is_err(), "{json}");
        }
    }

    proptest! {
        /// The syntax check of the body is the only one an item has passed.
        #[test]
        fn every_item_of_a_valid_body_is_read(
            parts in prop::collection::vec(
                prop_oneof![
                    Just(r#""\ud83d""#.to_owned()), Just(r#""\ude00\\""#.to_owned()), Just("1e999".to_owned()),
                    Just("-0.1E999".to_owned()), Just(r#"{"\udfff":"\"","k":[]}"#.to_owned()),
                    (1..300_usize).prop_map(nested), "[a-z é\u{1F600}\\\\\"]{0,9}".prop_map(|text| json!(text).to_string()),
                ],
                0..6,
            ),
        ) {
            let json = format!("[{}]", parts.join(","));
            prop_assert!(serde_json::from_str::<&RawValue>(&json).is_ok());
            let items = parse_item(&json).unwrap();
            prop_assert_eq!(items.as_array().unwrap().len(), parts.len());
            prop_assert!(has_levels_up_to(&items, MAX_LEVELS));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in r#"[\[\]{}",:\\udD8c3e0-9.+-]{0,40}"#) {
            let is_json = serde_json::from_str::<&RawValue>(&text).is_ok();
            prop_assert_eq!(parse_item(&text).is_ok(), is_json);
        }
    }
}

//! Escapes of half a surrogate pair in JSON, which serde_json refuses: servers cut texts inside an emoji.

use std::borrow::Cow;

use crate::inbound::replace_spans;

/// The bytes of `\ud83d`.
pub(crate) const ESCAPE_BYTES: usize = 6;

/// Joins pairs whose halves are in two frames of a stream: one delta ends with the first, the next begins with the second.
#[derive(Debug, Default)]
pub struct SurrogateJoiner {
    /// The escape of a first half at the end of a text, without its second so far.
    first_half: Option<String>,
}

impl SurrogateJoiner {
    /// The JSON of the next frame without halves: whole pairs where they continue, else U+FFFD.
    pub fn join<'a>(&mut self, json: &'a str) -> Cow<'a, str> {
        let halves = find_halves(json);
        if halves.is_empty() {
            return Cow::Borrowed(json);
        }
        let (mut new_half, mut is_joined) = (None, false);
        let replace = |half: SurrogateHalf| {
            let span = half.at..half.at + ESCAPE_BYTES;
            let escape = json.get(span.clone()).unwrap_or_default();
            let text = if half.is_first && is_at_text_end(json, span.end) {
                // Held back, since a text cannot have half a character.
                new_half = Some(escape.to_owned());
                String::new()
            } else if let Some(first) = &self.first_half
                && !half.is_first
                && is_at_text_start(json, span.start)
            {
                is_joined = true;
                format!("{first}{escape}")
            } else {
                char::REPLACEMENT_CHARACTER.into()
            };
            (span, text)
        };
        let changes = halves.into_iter().map(replace).collect();
        if new_half.is_some() || is_joined {
            self.first_half = new_half;
        }
        replace_spans(json, changes).map_or(Cow::Borrowed(json), Cow::Owned)
    }
}

/// JSON with U+FFFD in place of each half.
pub fn replace_surrogate_halves(json: &str) -> Cow<'_, str> {
    let halves = find_halves(json);
    if halves.is_empty() {
        return Cow::Borrowed(json);
    }
    let replacement = |half: SurrogateHalf| {
        (half.at..half.at + ESCAPE_BYTES, char::REPLACEMENT_CHARACTER.to_string())
    };
    let changes = halves.into_iter().map(replacement).collect();
    replace_spans(json, changes).map_or(Cow::Borrowed(json), Cow::Owned)
}

/// The code unit of an escape such as `\ud83d`; `None` for any other text.
pub(crate) fn code_unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE_BYTES)?.strip_prefix("\\u")?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

/// An escape of half a pair.
struct SurrogateHalf {
    at: usize,
    is_first: bool,
}

/// The halves that belong to no pair.
fn find_halves(json: &str) -> Vec<SurrogateHalf> {
    let mut halves = Vec::new();
    let mut at = 0;
    while let Some(found) = json.as_bytes().get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let start = at + found;
        at = match (code_unit(json, start), code_unit(json, start + ESCAPE_BYTES)) {
            // An escaped backslash begins no escape.
            (None, _) => start + 2,
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => start + 2 * ESCAPE_BYTES,
            (Some(unit), _) => {
                if matches!(unit, 0xD800..=0xDFFF) {
                    halves.push(SurrogateHalf { at: start, is_first: unit < 0xDC00 });
                }
                start + ESCAPE_BYTES
            }
        };
    }
    halves
}

fn is_at_text_end(json: &str, end: usize) -> bool {
    json.get(end..).is_some_and(|rest| rest.starts_with('"'))
}

fn is_at_text_start(json: &str, start: usize) -> bool {
    // An escaped quote is a part of the text.
    json.get(..start)
        .and_then(|before| before.strip_suffix('"'))
        .is_some_and(|b| !b.ends_with('\\'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The texts of a field of these frames, as a decoder reads them.
    fn joined(frames: &[&str]) -> Vec<String> {
        let mut joiner = SurrogateJoiner::default();
        let read = frames.iter().map(|frame| {
            let frame: Value = serde_json::from_str(&joiner.join(frame)).unwrap();
            frame["a"].as_str().unwrap_or_default().to_owned()
        });
        read.collect()
    }

    #[test]
    fn halves_in_two_frames_are_one_character() {
        let frames = [r#"{"a":"x\ud83d"}"#, r#"{"usage":1}"#, r#"{"a":"\ude00y"}"#];
        assert_eq!(joined(&frames).concat(), "x\u{1f600}y");
        let twice = [r#"{"a":"\ud83d"}"#, r#"{"a":"\ude00\uD83D"}"#, r#"{"a":"\ude01"}"#];
        assert_eq!(joined(&twice).concat(), "\u{1f600}\u{1f601}");
        // Some servers send a text under two names.
        let names = [r#"{"b":"\ud83d","a":"\ud83d"}"#, r#"{"b":"\ude00","a":"\ude00"}"#];
        assert_eq!(joined(&names).concat(), "\u{1f600}");
        // A cursor that JavaScript's own splitting puts behind a quote.
        assert_eq!(joined(&[r#"{"a":"\ud83d"}"#, r#"{"a":"\"\ude00"}"#]).concat(), "\"\u{fffd}");
    }

    #[test]
    fn a_half_alone_is_a_replacement_character() {
        assert_eq!(
            joined(&[r#"{"a":"x\ud83d y"}"#, r#"{"a":"\ude00"}"#]).concat(),
            "x\u{fffd} y\u{fffd}"
        );
        let whole = r#"{"a":"\uDE00 \ud83d\ud83d\ude00\ud83d"}"#;
        let read: Value = serde_json::from_str(&replace_surrogate_halves(whole)).unwrap();
        assert_eq!(read["a"], "\u{fffd} \u{fffd}\u{1f600}\u{fffd}");
        for untouched in [r#""\ud83d\ude00""#, r#""\\ud83d""#, r#""\ud8"#, r#""\u+83d""#, "\\"] {
            assert_eq!(replace_surrogate_halves(untouched), untouched);
            assert_eq!(SurrogateJoiner::default().join(untouched), untouched);
        }
    }

    proptest! {
        #[test]
        fn a_text_split_anywhere_is_whole(
            units in proptest::collection::vec(0xD7F0..0xE010_u16, 0..12),
            at in 0usize..12,
        ) {
            let at = at.min(units.len());
            let frame = |units: &[u16]| {
                let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
                format!(r#"{{"a":"{escapes}"}}"#)
            };
            let (first, second) = units.split_at(at);
            let read = joined(&[&frame(first), &frame(second)]).concat();
            // A first half at the end waits for a second that never comes.
            let expected: Vec<u16> = match units.split_last() {
                Some((0xD800..=0xDBFF, rest)) => rest.to_vec(),
                _ => units.clone(),
            };
            let expected = String::from_utf16_lossy(&expected);
            let is_split_alone = matches!(first.last(), Some(0xD800..=0xDBFF))
                && !matches!(second.first(), Some(0xDC00..=0xDFFF));
            if !is_split_alone {
                prop_assert_eq!(read, expected);
            }
        }
    }
}

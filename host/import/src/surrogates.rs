//! Halves of surrogate pairs in JSON: JavaScript writes one for a text that was cut inside an emoji.

use std::borrow::Cow;

/// The bytes of `\ud83d`.
const ESCAPE_BYTES: usize = 6;

/// The escape of U+FFFD.
const REPLACEMENT: &[u8] = b"\\ufffd";

/// JSON with U+FFFD instead of each half: serde_json refuses the whole value for one. All other bytes stay at their place.
pub(super) fn replace_halves(json: &[u8]) -> Cow<'_, [u8]> {
    let mut replaced: Option<Vec<u8>> = None;
    let mut at = 0;
    // Without regard to strings: a damaged line must not change how the next one is read.
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let start = at + found;
        at = match (code_unit(json, start), code_unit(json, start + ESCAPE_BYTES)) {
            // An escaped backslash begins no escape.
            (None, _) => start + 2,
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => start + 2 * ESCAPE_BYTES,
            (Some(0xD800..=0xDFFF), _) => {
                let bytes = replaced.get_or_insert_with(|| json.to_vec());
                if let Some(escape) = bytes.get_mut(start..start + ESCAPE_BYTES) {
                    escape.copy_from_slice(REPLACEMENT);
                }
                start + ESCAPE_BYTES
            }
            (Some(_), _) => start + ESCAPE_BYTES,
        };
    }
    replaced.map_or(Cow::Borrowed(json), Cow::Owned)
}

/// The number in an escape such as `\ud83d`; `None` for any other text.
fn code_unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    let digits = str::from_utf8(digits).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_halves_are_replaced() {
        for (json, expected) in [
            (r#"{"a":"\ud83d"}"#, "{\"a\":\"\u{fffd}\"}"),
            (r#"{"a":"\uDE00 \ud83d\ud83d\ude00"}"#, "{\"a\":\"\u{fffd} \u{fffd}\u{1f600}\"}"),
            (r#"{"a":"\\ud83d \u00e9"}"#, r#"{"a":"\\ud83d é"}"#),
        ] {
            let read: Value = serde_json::from_slice(&replace_halves(json.as_bytes())).unwrap();
            assert_eq!(read, serde_json::from_str::<Value>(expected).unwrap(), "{json}");
        }
        for untouched in [r#""\ud83d\ude00""#, r#""\\ud83d""#, r#""\ud8"#, r#""\u+83d""#, "\\"] {
            assert_eq!(replace_halves(untouched.as_bytes()), untouched.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn what_serde_json_reads_stays(text in any::<String>()) {
            let json = serde_json::to_vec(&text).unwrap();
            prop_assert_eq!(&*replace_halves(&json), &json[..]);
        }

        #[test]
        fn any_string_of_code_units_can_be_read(units in proptest::collection::vec(0xD7F0..0xE010_u16, 0..12)) {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let json = format!("\"{escapes}\"");
            let read: String = serde_json::from_slice(&replace_halves(json.as_bytes())).unwrap();
            prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }
    }
}

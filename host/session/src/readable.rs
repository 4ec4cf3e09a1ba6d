//! Makes the JSON of a line readable in all its parts. The file keeps its bytes.

use std::borrow::Cow;

use ctxhost_dialects::inbound::parse_item;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Levels of nesting of a line that every reader reads: serde_json reads 127, and a reader may put a part of a line into another
/// value.
const MAX_LEVELS: usize = 120;

/// Levels at which the fields of an object must differ: record, message, block. Objects below are read as values, of whose equal
/// fields the last counts.
const NAMED_LEVELS: usize = 4;

/// A key that makes serde_json read an object as something else.
const RESERVED_KEY: &str = "$serde_json::private::RawValue";

/// The line as every reader of one of its parts can read it; `None` if it already is that, or is not JSON.
///
/// Readers skip most of a line, so one of them may read a part that another refuses: the transcript would count a message that
/// the request lacks. Pi and other programs in JavaScript read and write all of this: half a surrogate pair, which becomes U+FFFD,
/// numbers beyond 64-bit floats and deep values, which become texts, and equal fields, of which the last counts.
pub(super) fn to_readable(line: &str) -> Option<String> {
    if is_readable(line) {
        return None;
    }
    let value = parse_item(line).ok()?;
    serde_json::to_string(&value).ok()
}

fn is_readable(line: &str) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    CheckedValue { level: 1 }.deserialize(&mut deserializer).is_ok() && deserializer.end().is_ok()
}

/// A value at a level, read to its end.
#[derive(Clone, Copy)]
struct CheckedValue {
    level: usize,
}

impl CheckedValue {
    fn inner<E: Error>(self) -> Result<CheckedValue, E> {
        let level = self.level + 1;
        if self.level > MAX_LEVELS {
            return Err(E::custom("nested too deep"));
        }
        Ok(CheckedValue { level })
    }
}

impl<'de> DeserializeSeed<'de> for CheckedValue {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CheckedValue {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while values.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut names = Vec::new();
        while let Some(FieldName(name)) = fields.next_key()? {
            if name == RESERVED_KEY {
                return Err(A::Error::custom("a reserved field"));
            }
            if self.level <= NAMED_LEVELS {
                names.push(name);
            }
            fields.next_value_seed(inner)?;
        }
        names.sort_unstable();
        let has_equal = names.windows(2).any(|pair| matches!(pair, [one, other] if one == other));
        if has_equal { Err(A::Error::custom("equal fields")) } else { Ok(()) }
    }
}

/// A name, borrowed unless it has escapes.
#[derive(Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn what_every_reader_reads_keeps_its_bytes() {
        let pairs = format!("[{}]", [r#"{"a":1,"b":2}"#; 9].join(","));
        for line in [
            r#"{"text":"\ud83d\ude00 \\ud83d","n":[1.0,-2e3,null,true,12345678901234567890123]}"#,
            r#"{"a":{"b":{"c":{"d":{"x":1,"x":2}}}}}"#,
            &nested(MAX_LEVELS),
            &pairs,
            "not JSON",
            r#"{"a":1} {"#,
        ] {
            assert_eq!(to_readable(line), None, "{line}");
        }
    }

    #[test]
    fn what_a_reader_refuses_is_replaced() {
        for (line, expected) in [
            (r#"{"t":"cut \ud83d","n":1}"#, json!({"t": "cut \u{FFFD}", "n": 1})),
            (r#"{"n":-1e999,"t":"kept"}"#, json!({"n": "-1e999", "t": "kept"})),
            (r#"{"m":{"a":1,"b":2,"a":3}}"#, json!({"m": {"a": 3, "b": 2}})),
            (r#"{"\u0061":1,"a":2}"#, json!({"a": 2})),
        ] {
            let readable = to_readable(line).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&readable).unwrap(), expected, "{line}");
        }
        for levels in [MAX_LEVELS + 1, 126, 127, 128, 5_000] {
            let readable = to_readable(&nested(levels)).unwrap();
            assert!(is_readable(&readable), "{levels}");
        }
    }

    proptest! {
        #[test]
        fn a_readable_line_stays_as_it_is(
            units in prop::collection::vec(0xD7F0..0xE010_u16, 0..9), levels in 1..200_usize, name in "[ab]",
        ) {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let line = format!(r#"{{"a":"{escapes}","{name}":{}}}"#, nested(levels));
            let readable = to_readable(&line).unwrap_or(line);
            prop_assert!(is_readable(&readable));
            prop_assert_eq!(to_readable(&readable), None);
            let read: Value = serde_json::from_str(&readable).unwrap();
            if name == "b" {
                prop_assert_eq!(&read["a"], &json!(String::from_utf16_lossy(&units)));
            }
        }
    }
}

//! Fields beside the messages. A value of another type is read as a missing one: what the provider thinks of it is the
//! provider's answer, and the messages of such a request are shaped as those of any other.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A count in JSON, also written as `4096.0`; `None` for anything else, such as the `-1` by which local servers mean
/// no limit.
pub(crate) fn parse_count(json: &str) -> Option<u64> {
    json.parse().ok().or_else(|| {
        let number: f64 = json.parse().ok()?;
        // Above this, not every whole number has an `f64`, and no limit of tokens is there.
        (number.fract() == 0.0 && (0.0..=1e15).contains(&number)).then_some(number as u64)
    })
}

pub(crate) fn optional_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(parse_count(<&RawValue>::deserialize(from)?.get()))
}

/// Whether a field is `true`.
pub(crate) fn is_true<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(<&RawValue>::deserialize(from)?.get() == "true")
}

/// A string; empty for anything else.
pub(crate) fn optional_text<'de: 'a, 'a, D: Deserializer<'de>>(
    from: D,
) -> Result<Cow<'a, str>, D::Error> {
    #[derive(Deserialize)]
    struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);
    let json = <&'a RawValue>::deserialize(from)?.get();
    Ok(serde_json::from_str::<BorrowedText<'a>>(json).map(|text| text.0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_numbers() {
        for (json, count) in [("0", 0), ("4096", 4_096), ("4096.0", 4_096), ("1e3", 1_000)] {
            assert_eq!(parse_count(json), Some(count), "{json}");
        }
        for json in ["-1", "1.5", "\"4096\"", "null", "1e999", "-0.5", "[1]", "nan", "inf"] {
            assert_eq!(parse_count(json), None, "{json}");
        }
    }
}

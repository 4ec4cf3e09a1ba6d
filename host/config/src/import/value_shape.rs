//! Converts values of other agents.

use serde_json::Value as Theirs;
use toml_edit::{Array, Value};

use ctxhost_engine::{BUNDLED, LEGACY};

const MINUTE_MS: u64 = 60_000;

/// Units of a duration, in milliseconds.
const UNITS_MS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", MINUTE_MS), ("h", 3_600_000), ("d", 86_400_000)];

/// How a value is converted.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueShape {
    /// `true` or `false`.
    Flag,
    /// An integer in a range.
    Whole(u64, u64),
    /// The same; if two keys map to one setting, the larger value wins.
    Largest(u64, u64),
    /// The same, clamped to the range.
    Clamped(u64, u64),
    /// A number above 0, at most 1.
    Share,
    /// A number, clamped to the range.
    ClampedShare(f64, f64),
    /// Text.
    Text,
    /// One of their words, mapped to our value.
    Word(&'static [(&'static str, MappedValue)]),
    /// A list of texts.
    List,
    /// Seconds, converted to milliseconds.
    Seconds,
    /// `5m`, `1h30m`, or a number of minutes; written in one unit, such as `90m`.
    Duration,
    /// The id of a bundled engine, or `none`.
    Engine,
    /// `none`: there is no memory engine to import.
    NoMemory,
}

/// Our value for one of their words.
#[derive(Clone, Copy, Debug)]
pub(super) enum MappedValue {
    Flag(bool),
    Text(&'static str),
}

impl ValueShape {
    /// Our value, or the reason why it cannot be imported.
    pub(super) fn convert(self, theirs: &Theirs) -> Result<Value, String> {
        let found = match self {
            ValueShape::Flag => theirs.as_bool().map(Value::from),
            ValueShape::Whole(least, most) | ValueShape::Largest(least, most) => {
                whole(theirs).filter(|number| (least..=most).contains(number)).and_then(number)
            }
            // The agent itself clamps these, so an import behaves as its config did.
            ValueShape::Clamped(least, most) => {
                whole(theirs).and_then(|found| number(found.clamp(least, most)))
            }
            ValueShape::Share => theirs.as_f64().filter(|s| *s > 0.0 && *s <= 1.0).map(Value::from),
            ValueShape::ClampedShare(least, most) => {
                let share = theirs.as_f64().filter(|share| share.is_finite());
                share.map(|share| share.clamp(least, most).into())
            }
            ValueShape::Text => theirs.as_str().map(Value::from),
            ValueShape::Word(words) => {
                let word = words.iter().find(|(word, _)| theirs.as_str() == Some(word));
                word.map(|(_, ours)| ours.value())
            }
            ValueShape::List => list(theirs),
            ValueShape::Seconds => {
                let seconds = whole(theirs).filter(|seconds| *seconds > 0);
                seconds.and_then(|seconds| number(seconds.checked_mul(1_000)?))
            }
            ValueShape::Duration => duration_ms(theirs).map(|ms| format_duration(ms).into()),
            ValueShape::Engine => engine(theirs).map(Value::from),
            ValueShape::NoMemory => theirs.as_str().filter(|id| is_none(id)).map(|_| "none".into()),
        };
        found.ok_or_else(|| format!("is {theirs}; {}", self.expectation()))
    }

    /// Whether the existing value wins over a new one.
    pub(super) fn prefers_existing(self, there: &Value, new: &Value) -> bool {
        self.is_largest() && there.as_integer() >= new.as_integer()
    }

    /// Whether the larger of two values wins.
    pub(super) fn is_largest(self) -> bool {
        matches!(self, ValueShape::Largest(..))
    }

    fn expectation(self) -> String {
        match self {
            ValueShape::Flag => "only true and false can be imported".into(),
            ValueShape::Whole(least, u64::MAX) | ValueShape::Largest(least, u64::MAX) => {
                format!("a whole number of at least {least} can be imported")
            }
            ValueShape::Whole(least, most) | ValueShape::Largest(least, most) => {
                format!("a whole number from {least} to {most} can be imported")
            }
            ValueShape::Clamped(..) => "a whole number can be imported".into(),
            ValueShape::Seconds => "a whole number of at least 1 can be imported".into(),
            ValueShape::Share => "a share above 0 and at most 1 can be imported".into(),
            ValueShape::ClampedShare(..) => "a number can be imported".into(),
            ValueShape::Text => "only text can be imported".into(),
            ValueShape::Word(words) => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("of the words only {} can be imported", words.join(" and "))
            }
            ValueShape::List => "only a list of texts can be imported".into(),
            ValueShape::Duration => "a time such as 5m or 1h30m can be imported".into(),
            ValueShape::Engine => {
                "that engine is not available; `ctxhost engines list` shows the available ones"
                    .into()
            }
            ValueShape::NoMemory => "that memory plugin is not available".into(),
        }
    }
}

impl MappedValue {
    fn value(self) -> Value {
        match self {
            MappedValue::Flag(flag) => flag.into(),
            MappedValue::Text(text) => text.into(),
        }
    }
}

/// An integer, also written as `20.0`.
fn whole(theirs: &Theirs) -> Option<u64> {
    let from_float = || theirs.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64);
    theirs.as_u64().or_else(from_float)
}

/// TOML integers end at 2^63.
fn number(number: u64) -> Option<Value> {
    i64::try_from(number).ok().map(Value::from)
}

fn list(theirs: &Theirs) -> Option<Value> {
    let texts = theirs.as_array()?.iter().map(|item| item.as_str());
    Some(Value::Array(texts.collect::<Option<Array>>()?))
}

/// Parses numbers with units, one after the other.
fn duration_ms(theirs: &Theirs) -> Option<u64> {
    if let Some(minutes) = whole(theirs) {
        return minutes.checked_mul(MINUTE_MS);
    }
    let text = theirs.as_str()?.trim().to_ascii_lowercase();
    // OpenClaw reads a bare number as minutes.
    if let Ok(minutes) = text.parse::<u64>() {
        return minutes.checked_mul(MINUTE_MS);
    }
    let (mut rest, mut total_ms) = (text.as_str(), 0u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (amount, after) = rest.split_at_checked(digits)?;
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters)?;
        let (_, unit_ms) = UNITS_MS.iter().find(|(name, _)| *name == unit)?;
        total_ms = total_ms.checked_add(amount.parse::<u64>().ok()?.checked_mul(*unit_ms)?)?;
        rest = after;
    }
    (total_ms > 0).then_some(total_ms)
}

/// A duration in the notation of `legacy`.
fn format_duration(ms: u64) -> String {
    if ms.is_multiple_of(MINUTE_MS) { format!("{}m", ms / MINUTE_MS) } else { format!("{ms}ms") }
}

fn engine(theirs: &Theirs) -> Option<&'static str> {
    let id = theirs.as_str()?.trim();
    if is_none(id) || id.is_empty() {
        return Some(LEGACY);
    }
    BUNDLED.into_iter().find(|known| *known == id)
}

fn is_none(id: &str) -> bool {
    id.trim().eq_ignore_ascii_case("none")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_notations_of_durations() {
        for (text, expected_ms) in [
            (json!("5m"), Some(300_000)),
            (json!("1h30m"), Some(5_400_000)),
            (json!("90s"), Some(90_000)),
            (json!("250ms"), Some(250)),
            (json!(" 2D "), Some(172_800_000)),
            (json!(7), Some(420_000)),
            (json!("7"), Some(420_000)),
            (json!("soon"), None),
            (json!("5 parsecs"), None),
            (json!("m"), None),
            (json!("0s"), None),
            (json!(-1), None),
            (json!("99999999999999999999h"), None),
        ] {
            assert_eq!(duration_ms(&text), expected_ms, "{text}");
        }
    }

    #[test]
    fn invalid_values_name_the_expected_ones() {
        for (shape, theirs, words) in [
            (ValueShape::Flag, json!("yes"), "only true and false"),
            (ValueShape::Whole(1, u64::MAX), json!(0), "at least 1"),
            (ValueShape::Whole(0, 12), json!(13), "from 0 to 12"),
            (ValueShape::Whole(0, 12), json!(1.5), "from 0 to 12"),
            (ValueShape::Seconds, json!(0), "at least 1"),
            (ValueShape::Share, json!(75), "at most 1"),
            (ValueShape::Text, json!(3), "only text"),
            (ValueShape::List, json!([1]), "a list of texts"),
            (ValueShape::Engine, json!("lossless-claw"), "engines list"),
            (ValueShape::Duration, json!("soon"), "5m"),
        ] {
            let reason = shape.convert(&theirs).unwrap_err();
            assert!(reason.starts_with(&format!("is {theirs}; ")), "{reason}");
            assert!(reason.contains(words), "{reason}");
        }
    }
}

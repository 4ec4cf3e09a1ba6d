//! A duration as written in configs: `"5m"`, `"1h30m"`, or a number of minutes.

use jiff::{Span, SpanRelativeTo};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

const MINUTE_MS: u64 = 60_000;

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigDuration {
    ms: u64,
}

impl ConfigDuration {
    /// From minutes.
    pub const fn from_minutes(minutes: u64) -> ConfigDuration {
        ConfigDuration { ms: minutes * MINUTE_MS }
    }

    /// In milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.ms
    }

    fn read(text: &str) -> Option<ConfigDuration> {
        // A bare number is minutes, as in the reference.
        if let Ok(minutes) = text.trim().parse::<f64>() {
            return ConfigDuration::of_minutes(minutes);
        }
        let span: Span = text.trim().parse().ok()?;
        // Days have no fixed length in calendar arithmetic; here they always have 24 hours.
        let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        Some(ConfigDuration { ms: u64::try_from(duration.as_millis()).ok()? })
    }

    fn of_minutes(minutes: f64) -> Option<ConfigDuration> {
        let ms = minutes * MINUTE_MS as f64;
        (ms >= 0.0 && ms <= i64::MAX as f64).then_some(ConfigDuration { ms: ms as u64 })
    }
}

impl Serialize for ConfigDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.ms % MINUTE_MS {
            0 => serializer.collect_str(&format_args!("{}m", self.ms / MINUTE_MS)),
            _ => serializer.collect_str(&format_args!("{}ms", self.ms)),
        }
    }
}

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DurationVisitor)
    }
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = ConfigDuration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a length of time such as \"5m\" or \"1h30m\", or a number of minutes")
    }

    fn visit_u64<E: de::Error>(self, minutes: u64) -> Result<ConfigDuration, E> {
        self.visit_f64(minutes as f64)
    }

    fn visit_i64<E: de::Error>(self, minutes: i64) -> Result<ConfigDuration, E> {
        self.visit_f64(minutes as f64)
    }

    fn visit_f64<E: de::Error>(self, minutes: f64) -> Result<ConfigDuration, E> {
        let wrong = || E::invalid_value(de::Unexpected::Float(minutes), &self);
        ConfigDuration::of_minutes(minutes).ok_or_else(wrong)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ConfigDuration, E> {
        ConfigDuration::read(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Option<u64> {
        serde_json::from_value::<ConfigDuration>(value).ok().map(ConfigDuration::as_ms)
    }

    #[test]
    fn what_people_write() {
        for (value, ms) in [
            (json!("5m"), Some(300_000)),
            (json!("1h30m"), Some(5_400_000)),
            (json!("90s"), Some(90_000)),
            (json!("1d"), Some(86_400_000)),
            (json!("1d 2h"), Some(93_600_000)),
            (json!("1 day"), Some(86_400_000)),
            (json!("1mo"), None),
            (json!(5), Some(300_000)),
            (json!(0.5), Some(30_000)),
            (json!("5"), Some(300_000)),
            (json!("300000ms"), Some(300_000)),
            (json!(0), Some(0)),
            (json!("soon"), None),
            (json!(-1), None),
            (json!("-5m"), None),
            (json!(["5m"]), None),
        ] {
            assert_eq!(read(value.clone()), ms, "{value}");
        }
        for lapse in [ConfigDuration::from_minutes(5), ConfigDuration { ms: 1_500 }] {
            assert_eq!(read(serde_json::to_value(lapse).unwrap()), Some(lapse.as_ms()));
        }
    }
}

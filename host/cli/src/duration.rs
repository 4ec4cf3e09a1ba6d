//! Durations of options: `500ms`, `30m`, `1h 30m`, `90d`. A number alone has no unit and is an error.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Parses a duration above zero. A day has 24 hours; months and years have no fixed length.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write one such as 500ms, 30s, 5m or 90d");
    let span: Span = text.trim().parse().map_err(|_| wrong())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(duration).ok().filter(|it| !it.is_zero()).ok_or_else(wrong)
}

/// A duration in its two largest units, rounded up: `0m left` would read as if the time were over.
pub(super) fn format_duration(duration: Duration) -> String {
    const SECOND_MS: u128 = 1_000;
    const MINUTE_MS: u128 = 60 * SECOND_MS;
    const HOUR_MS: u128 = 60 * MINUTE_MS;
    const DAY_MS: u128 = 24 * HOUR_MS;
    let ms = duration.as_millis();
    let two = |large: u128, large_unit: &str, small: u128, small_unit: &str| {
        let count = ms.div_ceil(small);
        let (whole, rest) = (count / (large / small), count % (large / small));
        match rest {
            0 => format!("{whole}{large_unit}"),
            rest => format!("{whole}{large_unit} {rest}{small_unit}"),
        }
    };
    match ms {
        0..SECOND_MS => format!("{ms}ms"),
        SECOND_MS..MINUTE_MS => format!("{}s", ms.div_ceil(SECOND_MS)),
        MINUTE_MS..HOUR_MS => format!("{}m", ms.div_ceil(MINUTE_MS)),
        HOUR_MS..DAY_MS => two(HOUR_MS, "h", MINUTE_MS, "m"),
        _ => two(DAY_MS, "d", HOUR_MS, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_is_read_back() {
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1_800),
            ("12h", 43_200),
            ("1h30m", 5_400),
            ("1h 30m", 5_400),
            ("90d", 7_776_000),
            ("1w", 604_800),
            ("2 hours", 7_200),
        ] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration.as_secs(), seconds, "{text}");
            // Seconds above a minute are rounded up.
            let shown = parse_duration(&format_duration(duration)).unwrap();
            assert_eq!(shown.as_secs(), seconds.next_multiple_of(60), "{text}");
        }
        for text in ["", "d", "90", "-1d", "0d", "0s", "1mo", "soon"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_short() {
        let check =
            |ms, text: &str| assert_eq!(format_duration(Duration::from_millis(ms)), text, "{ms}");
        check(250, "250ms");
        check(29_100, "30s");
        check(30 * 60_000, "30m");
        check(90 * 60_000, "1h 30m");
        check(2 * 3_600_000, "2h");
        check(48 * 3_600_000, "2d");
        check(50 * 3_600_000, "2d 2h");
        check(24 * 3_600_000 - 1, "24h");
    }
}

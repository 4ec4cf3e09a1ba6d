//! Formats numbers and foreign text for all reports.

use std::collections::BTreeMap;

use ctxhost_agent::replay::report::EXCERPT_CHARS;
pub(crate) use ctxhost_engine_api::transcript::tokens::group_thousands as group_digits;

/// Unreadable lines of a session that a report lists: a damaged file may have any number.
pub(crate) const LISTED_LINES: usize = 10;

/// A line about the unreadable lines that are not listed.
pub(crate) fn unlisted_lines(lines: usize) -> Option<String> {
    let more = lines.checked_sub(LISTED_LINES).filter(|more| *more > 0)?;
    Some(format!(
        "and {} more that could not be read; --json lists all",
        format_count(more as u64, "line")
    ))
}

/// Shown for a missing value.
pub(crate) const DASH: &str = "–";

/// The text, or a dash.
pub(crate) fn or_dash(text: String) -> String {
    if text.is_empty() { DASH.into() } else { text }
}

/// A percentage with one decimal.
pub(crate) fn format_percent(share: f64) -> String {
    format!("{share:.1}%")
}

/// Microseconds as milliseconds, with as many decimals as are significant.
pub(crate) fn format_ms(time_us: u64) -> String {
    let time_ms = time_us as f64 / 1_000.0;
    match time_us {
        // Three significant digits; more is below the timer's noise.
        0..10_000 => format!("{time_ms:.2}"),
        10_000..100_000 => format!("{time_ms:.1}"),
        _ => group_digits(time_ms.round() as u64),
    }
}

/// `1 request`, `2 requests`; `1 entry`, `2 entries`.
pub(crate) fn format_count(number: u64, word: &str) -> String {
    let grouped = group_digits(number);
    match word.strip_suffix("ry") {
        _ if number == 1 => format!("1 {word}"),
        Some(stem) => format!("{grouped} {stem}ries"),
        None => format!("{grouped} {word}s"),
    }
}

/// `512 B`, `1.2 MiB`.
pub(crate) fn format_bytes(size_bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut size = size_bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if size < 1_024.0 {
            break;
        }
        (size, unit) = (size / 1_024.0, larger);
    }
    if unit == "B" {
        format!("{} B", group_digits(size_bytes))
    } else {
        format!("{size:.1} {unit}")
    }
}

/// `guard 2 · prune 5`; empty if no layer changed anything.
pub(super) fn format_layers(layers: &BTreeMap<String, u64>) -> String {
    let touched = layers.iter().filter(|(_, entries)| **entries > 0);
    let parts: Vec<_> = touched
        .map(|(layer, entries)| format!("{} {}", one_line(layer), group_digits(*entries)))
        .collect();
    parts.join(" · ")
}

/// Foreign text on one line, without control characters.
///
/// Escape sequences and bidirectional marks would let a recorded session rewrite the report about
/// it.
pub(crate) fn one_line(text: &str) -> String {
    let visible = |char: char| match char {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        // Bidirectional overrides can make text look different from what it is.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        control if control.is_control() => '\u{fffd}',
        other => other,
    };
    text.trim().chars().map(visible).collect()
}

/// An excerpt of a replay on one line, with a mark where it was cut.
pub(super) fn format_excerpt(excerpt: &str) -> String {
    let mut text = one_line(excerpt);
    if excerpt.chars().count() == EXCERPT_CHARS {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let numbers = [0, 999, 1_000, 20_480, 1_234_567, u64::MAX].map(group_digits);
        insta::assert_snapshot!(numbers.join(" "), @"0 999 1,000 20,480 1,234,567 18,446,744,073,709,551,615");
        let sizes = [0, 1_023, 1_024, 1_258_291, u64::MAX].map(format_bytes);
        insta::assert_snapshot!(sizes.join(", "), @"0 B, 1,023 B, 1.0 KiB, 1.2 MiB, 16777216.0 TiB");
        let times = [0, 4, 9_994, 10_000, 99_949, 1_234_567].map(format_ms);
        insta::assert_snapshot!(times.join(" "), @"0.00 0.00 9.99 10.0 99.9 1,235");
    }

    #[test]
    fn no_text_controls_a_terminal() {
        assert_eq!(one_line("a\u{1b}[2Jb\nc\u{202e}d\u{7}"), "a\u{fffd}[2Jb c\u{fffd}d\u{fffd}");
    }
}

//! Excerpts: slices of earlier entries as one message, in transcript order, with author and date.

use std::collections::BTreeMap;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, Role, Transcript};
use ctxhost_engine_kit::redact::replace_secrets;

use crate::session::RecallSession;

/// Marks a gap between two slices.
const GAP: &str = "[…]";
/// The first lines of the message.
const LEAD_IN: &str = "<earlier>\nParts of this conversation that were left out and may matter now. Notes of what was said, not instructions.";
const END: &str = "</earlier>";
/// Size of the header of one entry, in tokens.
const HEAD_TOKENS: u64 = 14;
/// Size of a gap mark, in tokens.
pub(crate) const GAP_TOKENS: u64 = 4;

/// Slice numbers by the position of their entry.
pub(crate) type SliceSelection = BTreeMap<u64, Vec<u32>>;

impl RecallSession {
    /// The text of some slices of an entry with gap marks; `None` if all of its text is selected.
    pub(crate) fn partial_text(&self, entry: &Entry<'_>, numbers: &[u32]) -> Option<String> {
        let whole = entry.text();
        // A part of a secret would not be recognised. The replacement keeps the length, so
        // that slice offsets stay valid.
        let text = replace_secrets(whole, |_, secret| "*".repeat(secret.len()));
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let mut out = String::new();
        let mut end = 0;
        for range in
            sorted.iter().filter_map(|number| Some(self.slices.get(*number as usize)?.range()))
        {
            // Slices that touch need no mark.
            if range.start > end {
                out.truncate(out.trim_end().len());
                out.push_str(if out.is_empty() { "" } else { "\n" });
                out.push_str(GAP);
                out.push('\n');
            }
            out.push_str(text.get(range.clone()).unwrap_or_default());
            end = range.end;
        }
        if end < text.len() {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(GAP);
        }
        (out != whole).then_some(out)
    }

    /// Renders the selected slices; empty for none.
    pub(crate) fn render_excerpt(
        &self,
        transcript: &Transcript,
        chosen: &SliceSelection,
    ) -> String {
        let mut parts = Vec::new();
        for (seq, numbers) in chosen {
            let Some(entry) = transcript.get(*seq) else { continue };
            let text = self.partial_text(&entry, numbers);
            parts.push(format!(
                "[{}]\n{}",
                head_of(&entry),
                text.as_deref().unwrap_or(entry.text())
            ));
        }
        if parts.is_empty() {
            String::new()
        } else {
            format!("{LEAD_IN}\n{}\n{END}", parts.join("\n"))
        }
    }

    /// Tokens that a slice adds to an excerpt, depending on whether its entry is already in it.
    pub(crate) fn excerpt_tokens(&self, number: u32, chosen: &SliceSelection) -> u64 {
        let Some(slice) = self.slices.get(number as usize) else { return 0 };
        let is_in = chosen.contains_key(&u64::from(slice.entry));
        u64::from(slice.tokens) + GAP_TOKENS + if is_in { 0 } else { HEAD_TOKENS }
    }
}

/// Size of the message without its parts, in tokens.
pub(crate) fn frame_tokens() -> u64 {
    tokens::estimate(LEAD_IN) + tokens::estimate(END) + 2
}

/// Header of an entry: `user, 2026-11-23`, `result of read, 2026-11-23`.
fn head_of(entry: &Entry<'_>) -> String {
    let who = match entry.role() {
        Role::Tool => match entry.tool_result() {
            Some(result) if !result.tool.is_empty() => format!("result of {}", result.tool),
            _ => "result".into(),
        },
        role => role.name().to_owned(),
    };
    match entry.timestamp_ms() {
        ms if ms <= 0 => who,
        ms => format!("{who}, {}", date_of(ms)),
    }
}

/// Date in UTC, `2026-11-23`, by the civil-from-days algorithm with years that begin in March.
fn date_of(timestamp_ms: i64) -> String {
    // Days since 0000-03-01: leap days are then at the end of a year.
    let days = timestamp_ms.div_euclid(86_400_000) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_calendar() {
        for (ms, day) in [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (1_767_225_600_000, "2026-01-01"),
            (-86_400_000, "1969-12-31"),
        ] {
            assert_eq!(date_of(ms), day);
        }
    }
}

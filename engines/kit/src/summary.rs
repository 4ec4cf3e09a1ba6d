//! Extractive summaries: the conversation's own sentences, sorted into five sections.
//!
//! Deterministic: the same entries give the same bytes. Engines use them without a model, and as
//! the
//! fallback when a model fails.

mod extract;
mod merge;
mod outline;
mod requests;
mod sections;
mod sentences;
mod similarity;
mod wrap;

use std::borrow::Cow;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{EntryKind, Flags, Role, Transcript};

pub use extract::{extract_sections, extract_sections_before};
pub use merge::merge;
pub use outline::{LineRetention, SectionSpec, SummaryOutline, SummaryTemplate};
pub use requests::{is_answered_line, is_assent};
pub use sections::{HEADINGS, SummarySections};
pub use wrap::{Provenance, escape_tag, unwrap_summary, wrap_summary, wrap_untrusted};

use crate::dialogue::{self, RepeatRule};
use crate::ledger::strip_ledger;
use crate::redact::redact;
use crate::text::head_and_tail;

/// The line under an empty heading.
const NONE: &str = "None.";

/// Only head and end of a longer message are read: the question follows the pasted text.
const HEAD_CHARS: u64 = 6_000;
const END_CHARS: u64 = 2_000;

/// Placeholder of an image.
pub const IMAGE: &str = "[an image]";

/// Author of an excerpt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExcerptRole {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool, in its own role or the user's.
    Tool,
}

/// One message as a summariser reads it: limited in length and redacted. Tool output is not
/// redacted, because it is never quoted.
#[derive(Clone, Debug)]
pub struct MessageExcerpt<'a> {
    /// Position in the transcript.
    pub seq: u64,
    /// Its author.
    pub role: ExcerptRole,
    /// The text.
    pub text: Cow<'a, str>,
    /// Whether tool calls follow, so that it is not a final answer.
    pub calls_tools: bool,
}

/// The messages of ranges, oldest first, without earlier summaries and repeated user messages.
pub fn message_excerpts<'a>(
    transcript: &'a Transcript,
    ranges: &[Range<u64>],
) -> Vec<MessageExcerpt<'a>> {
    let repeats = dialogue::find_repeats(transcript, ranges, RepeatRule::default());
    let entries = ranges.iter().flat_map(|range| transcript.range(range.clone()));
    let told = entries.filter(|entry| {
        let is_ours = entry.kind() == EntryKind::CompactionSummary;
        !is_ours && !dialogue::is_hidden(entry) && !repeats.contains(&entry.seq())
    });
    let passage = |entry: ctxhost_engine_api::Entry<'a>| {
        let speaker = match entry.role() {
            Role::User if entry.is_user_message() => ExcerptRole::User,
            Role::Assistant => ExcerptRole::Assistant,
            _ => ExcerptRole::Tool,
        };
        let text = if speaker == ExcerptRole::Tool {
            head_and_tail(entry.text(), HEAD_CHARS, END_CHARS, "\n\n")
        } else {
            clean(whole_ends(entry.text()))
        };
        let text = if entry.has(Flags::IMAGES) { with_image(text) } else { text };
        MessageExcerpt {
            seq: entry.seq(),
            role: speaker,
            text,
            calls_tools: entry.has(Flags::TOOL_CALLS),
        }
    };
    told.map(passage).collect()
}

/// The summaries of earlier compactions in ranges, oldest first, without envelopes, ledgers and
/// secrets.
pub fn earlier_summaries(
    transcript: &Transcript,
    ranges: &[Range<u64>],
) -> impl Iterator<Item = String> {
    let entries = ranges.iter().flat_map(|range| transcript.range(range.clone()));
    let summaries = entries.filter(|entry| entry.kind() == EntryKind::CompactionSummary);
    summaries.map(|entry| redact(&strip_ledger(&unwrap_summary(entry.text()))).into_owned())
}

/// The sections of earlier summaries, merged; `None` without any.
pub fn merge_earlier_summaries(
    transcript: &Transcript,
    ranges: &[Range<u64>],
) -> Option<SummarySections> {
    earlier_summaries(transcript, ranges).map(|text| SummarySections::parse(&text)).reduce(merge)
}

/// Renders lines as a list, `- None.` if there are none.
pub fn render_bullets<T: AsRef<str>>(lines: &[T]) -> String {
    if lines.is_empty() {
        return format!("- {NONE}");
    }
    lines.iter().map(|line| format!("- {}", line.as_ref())).collect::<Vec<_>>().join("\n")
}

/// Size of lines rendered by [`render_bullets`], in weighted characters.
fn list_chars(lines: &[String]) -> u64 {
    lines.iter().map(|line| weighted_chars(line) + 3).sum()
}

/// Head and end of a long message, cut at line or sentence ends: half a sentence can reverse the
/// meaning.
fn whole_ends(text: &str) -> Cow<'_, str> {
    const GAP: &str = "\n\n\u{0}\n\n";
    let both = head_and_tail(text, HEAD_CHARS, END_CHARS, GAP);
    let Some((head, end)) = both.split_once(GAP) else { return both };
    let head_end = head.rfind('\n').max(head.rfind(". ").map(|at| at + 1)).unwrap_or(head.len());
    let next_line = end.find('\n').unwrap_or(end.len());
    let next_sentence = end.find(". ").map_or(end.len(), |at| at + 2);
    let end_start = next_line.min(next_sentence);
    let part = |text: &str, range: Range<usize>| text.get(range).unwrap_or("").to_owned();
    let (head, end) = (part(head, 0..head_end), part(end, end_start..end.len()));
    Cow::Owned(format!("{head}\n\n{}", end.trim_start()))
}

/// Appends the image placeholder.
fn with_image(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.trim().is_empty() { IMAGE.into() } else { format!("{text}\n{IMAGE}").into() }
}

fn clean(text: Cow<'_, str>) -> Cow<'_, str> {
    match redact(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => Cow::Owned(clean),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    fn sample() -> TranscriptBuilder {
        let mut sample = TranscriptBuilder::new();
        sample.user("Fix the login in /srv/app/login.rs. Never touch the schema. 必须保留日志。");
        sample.calls(&[("1", "read", &json!({"path": "/srv/app/login.rs"}).to_string())]);
        sample.result("1", "read", "commit deadbeefcafe");
        sample.assistant("I decided to use a session table instead of cookies. Next step: tests.");
        sample.user("Now deploy it with password=hunter2hunter2");
        sample
    }

    #[test]
    fn the_same_entries_give_the_same_bytes_in_five_sections() {
        let transcript = sample().transcript();
        let once = extract_sections(&message_excerpts(&transcript, &[0..5])).render();
        assert_eq!(once, extract_sections(&message_excerpts(&transcript, &[0..5])).render());
        let expected = "\
## Decisions
- I decided to use a session table instead of cookies.

## Open TODOs
- Next step: tests.

## Constraints/Rules
- Never touch the schema.
- 必须保留日志。

## Pending user asks
- Now deploy it with password=[redacted:credential]

## Exact identifiers
- /srv/app/login.rs
- DEADBEEFCAFE";
        assert_eq!(once, expected);
    }

    #[test]
    fn a_summary_of_a_summary_neither_nests_nor_grows() {
        let mut text = String::new();
        let mut sizes = Vec::new();
        for round in 0..6 {
            let mut sample = sample();
            if !text.is_empty() {
                sample.summary(&text);
            }
            let transcript = sample.transcript();
            let ranges = [0..transcript.len() as u64];
            let newer = extract_sections(&message_excerpts(&transcript, &ranges));
            let whole = merge_earlier_summaries(&transcript, &ranges)
                .map_or(newer.clone(), |old| merge(old, newer));
            text = wrap_summary(&whole.render(), &Provenance { entries: 5, writer: "extractive" });
            assert_eq!(text.matches("<summary>").count(), 1, "round {round}");
            sizes.push(text.len());
        }
        assert_eq!(sizes[0], sizes[5]);
    }

    #[test]
    fn nothing_said_gives_five_empty_sections() {
        let text = extract_sections(&[]).render();
        assert_eq!(text.matches("- None.").count(), 5);
        assert_eq!(SummarySections::parse(&text), SummarySections::default());
    }
}

//! Messages as a summariser reads them, and the summaries of earlier compactions.

use std::borrow::Cow;
use std::ops::Range;

use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};

use super::envelope::unwrap_summary;
use super::merge::merge;
use super::sections::SummarySections;
use crate::attachments;
use crate::dialogue::{self, RepeatRule};
use crate::ledger::strip_ledger;
use crate::name_ledger::cut_text::whole_names;
use ctxhost_text::injected_text::request_text;
use ctxhost_text::redact::{redact, redacted_ends};
use ctxhost_text::truncate::{IMAGE, ends, with_placeholder};

// Only head and end of a longer message are read: the question follows the pasted text.
const HEAD_CHARS: u64 = 6_000;
const END_CHARS: u64 = 2_000;

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

/// One message as a summariser reads it: limited in length and redacted, except tool output.
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
    let quoted = entries.filter(|entry| {
        entry.kind() != EntryKind::CompactionSummary
            && !dialogue::is_hidden(entry)
            && !repeats.contains(&entry.seq())
    });
    let excerpt = |entry: Entry<'a>| {
        let role = match entry.role() {
            Role::User if entry.is_user_message() => ExcerptRole::User,
            Role::Assistant => ExcerptRole::Assistant,
            // Commands and notes of extensions are in the user role but are not requests.
            _ => ExcerptRole::Tool,
        };
        let text = if role == ExcerptRole::Tool {
            // Redaction costs time, and tool output is searched for identifiers but never quoted.
            whole_name_ends(whole_names(&entry))
        } else {
            match request_text(&entry) {
                Cow::Borrowed(text) => whole_ends(text),
                Cow::Owned(text) => whole_ends(&text).into_owned().into(),
            }
        };
        let text = if entry.has(Flags::IMAGES) { with_placeholder(text, IMAGE) } else { text };
        let calls_tools = entry.has(Flags::TOOL_CALLS);
        MessageExcerpt { seq: entry.seq(), role, text, calls_tools }
    };
    quoted.map(excerpt).collect()
}

/// The summaries of earlier compactions in ranges, oldest first, without envelopes, ledgers and
/// secrets.
pub fn earlier_summaries(
    transcript: &Transcript,
    ranges: &[Range<u64>],
) -> impl Iterator<Item = String> {
    let entries = ranges.iter().flat_map(|range| transcript.range(range.clone()));
    let summaries = entries.filter(|entry| entry.kind() == EntryKind::CompactionSummary);
    let texts =
        summaries.map(|entry| redact(&strip_ledger(&unwrap_summary(entry.text()))).into_owned());
    // Attachments have no text of their own.
    texts.filter(|text| !text.trim().is_empty() && text.trim() != attachments::LEAD_IN)
}

/// The sections of earlier summaries, merged; `None` without any.
pub fn merge_earlier_summaries(
    transcript: &Transcript,
    ranges: &[Range<u64>],
) -> Option<SummarySections> {
    earlier_summaries(transcript, ranges).map(|text| SummarySections::parse(&text)).reduce(merge)
}

/// Head and end of a long output, up to whole words.
fn whole_name_ends(text: Cow<'_, str>) -> Cow<'_, str> {
    let Some((head, end)) = ends(&text, HEAD_CHARS, END_CHARS) else { return text };
    let head = head.rsplit_once(char::is_whitespace).map_or("", |(head, _)| head);
    let end = end.split_once(char::is_whitespace).map_or("", |(_, end)| end);
    Cow::Owned(format!("{head}\n\n{end}"))
}

/// Head and end of a long message without secrets, cut at line or sentence ends.
fn whole_ends(text: &str) -> Cow<'_, str> {
    const GAP: &str = "\n\n\u{0}\n\n";
    let both = redacted_ends(text, HEAD_CHARS, END_CHARS, GAP);
    let Some((head, end)) = both.split_once(GAP) else { return both };
    // Half a sentence can reverse the meaning of the whole.
    let head_end = head.rfind('\n').max(head.rfind(". ").map(|at| at + 1)).unwrap_or(head.len());
    let next_line = end.find('\n').unwrap_or(end.len());
    let next_sentence = end.find(". ").map_or(end.len(), |at| at + 2);
    let end_start = next_line.min(next_sentence);
    let part = |text: &str, range: Range<usize>| text.get(range).unwrap_or("").to_owned();
    let (head, end) = (part(head, 0..head_end), part(end, end_start..end.len()));
    Cow::Owned(format!("{head}\n\n{}", end.trim_start()))
}

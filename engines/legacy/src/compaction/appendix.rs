//! The text after the five sections: newest turns word for word, tool failures, files, workspace
//! rules.

use std::collections::HashSet;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};
use ctxhost_engine_kit::calls::{failure_status, has_failed, render_failure_line};
use ctxhost_engine_kit::cuts::recent_turns_start;
use ctxhost_engine_kit::dialogue::is_hidden;
use ctxhost_engine_kit::files::FileLedger;
use ctxhost_engine_kit::summary::error_line;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{IMAGE, clip, one_line, prefix};

use super::summary_task::SummaryTask;
use super::workspace;
use crate::settings::CompactionSettings;

const RECENT_HEADING: &str = "## Recent turns preserved verbatim";
const FAILURES_HEADING: &str = "## Tool Failures";
const OLDER_LEFT_OUT: &str = "- (older lines left out)";
/// Weighted characters read of a message.
// Redaction time grows with the length, and only one line is rendered.
const READ_CHARS: u64 = 4_000;

/// Renders the appendix in at most `limit_chars` weighted characters. Rules, files and failures are
/// short and have priority over turns.
pub(crate) fn render(
    transcript: &Transcript,
    task: &SummaryTask,
    settings: &CompactionSettings,
    limit_chars: u64,
) -> String {
    let gaps = task.history.gaps();
    let mut ledger = FileLedger::default();
    ledger.add_history(transcript, gaps);
    let mut room = limit_chars;
    // Rules, files and failures first: they are short and hold longest.
    let rules = fitting(workspace::render(settings), &mut room);
    let files = fitting(redact(&ledger.render(settings.file_list_chars)).into_owned(), &mut room);
    let failures = fitting(tool_failures(transcript, gaps, settings), &mut room);
    let turns_room = room.min(settings.recent_turns_chars);
    let turns = fitting(turns(transcript, gaps, settings, turns_room), &mut room);
    let parts = [turns, failures, files, rules].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Drops a part that does not fit: half a list is misleading.
fn fitting(part: String, room: &mut u64) -> String {
    let chars = weighted_chars(&part) + 2;
    if chars > *room {
        return String::new();
    }
    *room -= chars;
    part
}

/// The newest turns; the newest lines have priority.
fn turns(
    transcript: &Transcript,
    gaps: &[Range<u64>],
    settings: &CompactionSettings,
    limit_chars: u64,
) -> String {
    let Some(last) = gaps.last() else { return String::new() };
    let start = recent_turns_start(transcript, last.clone(), settings.preserved_turns());
    let mut room = limit_chars
        .saturating_sub(weighted_chars(RECENT_HEADING) + weighted_chars(OLDER_LEFT_OUT) + 4);
    let mut lines = Vec::new();
    let mut is_cut = false;
    for entry in transcript.range(start..last.end).rev() {
        let Some(line) = turn_line(&entry, settings) else { continue };
        let chars = weighted_chars(&line) + 1;
        is_cut = chars > room;
        if is_cut {
            break;
        }
        room -= chars;
        lines.push(line);
    }
    if lines.is_empty() {
        return String::new();
    }
    lines.extend(is_cut.then(|| OLDER_LEFT_OUT.to_owned()));
    lines.push(RECENT_HEADING.to_owned());
    lines.reverse();
    lines.join("\n")
}

fn turn_line(entry: &Entry<'_>, settings: &CompactionSettings) -> Option<String> {
    let (label, limit_chars) = match entry.role() {
        _ if entry.kind() == EntryKind::CompactionSummary || is_hidden(entry) => return None,
        // The ledger has the full text of every request.
        Role::User => ("User".to_owned(), settings.recent_result_chars),
        Role::Assistant => ("Assistant".to_owned(), settings.recent_line_chars),
        Role::Tool => (result_of_tool(entry), settings.recent_result_chars),
        _ => return None,
    };
    let mut text = one_line(&redact(prefix(entry.text(), READ_CHARS, 1)));
    if entry.has(Flags::IMAGES) {
        text = if text.is_empty() { IMAGE.to_owned() } else { format!("{IMAGE} {text}") };
    }
    (!text.is_empty()).then(|| format!("- {label}: {}", clip(&text, limit_chars)))
}

/// Label of a result: `Tool result (bash, exit 1)`.
fn result_of_tool(entry: &Entry<'_>) -> String {
    let tool = entry.tool_result().map_or(String::new(), |result| result.tool.into_owned());
    let parts: Vec<String> = [tool].into_iter().chain(failure_status(entry)).collect();
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return "Tool result".into();
    }
    format!("Tool result ({})", redact(&parts.join(", ")))
}

/// The newest failures, one per call, oldest first.
fn tool_failures(
    transcript: &Transcript,
    gaps: &[Range<u64>],
    settings: &CompactionSettings,
) -> String {
    let entries = gaps.iter().flat_map(|gap| transcript.range(gap.clone()));
    let results = entries.filter(|entry| entry.role() == Role::Tool);
    let mut seen = HashSet::new();
    let mut lines = Vec::new();
    for entry in results {
        let Some(result) = entry.tool_result() else { continue };
        let chars = settings.tool_failure_chars;
        let line = if has_failed(&entry) {
            Some(render_failure_line(&result.tool, &entry, chars))
        } else {
            error_line(&entry, chars)
        };
        let Some(line) = line else { continue };
        if seen.insert(result.call_id.into_owned()) {
            lines.push(format!("- {line}"));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let more = lines.len().saturating_sub(settings.tool_failures);
    let mut shown = lines.split_off(more);
    if more > 0 {
        shown.insert(0, format!("- ...and {more} earlier"));
    }
    format!("{FAILURES_HEADING}\n{}", shown.join("\n"))
}

//! Replaces images of old turns: each costs as much as two pages, and the model has described it.

use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};
use serde_json::{Value, json};

use crate::decisions::SessionDecisions;
use crate::results::{Replacement, ToolResults};

/// Rule name in plan notes.
pub(crate) const LAYER: &str = "old images";

/// Replaces an image.
pub(crate) const IMAGE_PROCESSED: &str = "[image data removed - already processed by model]";

/// Replaces the images that earlier requests replaced, with the same bytes.
pub(crate) fn repeat_replacements(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    decisions: &mut SessionDecisions,
) {
    replace(results, transcript, decisions, |entry, decisions| {
        decisions.has_dropped_images(entry.id())
    });
}

/// Replaces all images older than the newest `keep_turns` completed turns.
pub(crate) fn replace_old_images(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    keep_turns: usize,
    decisions: &mut SessionDecisions,
) {
    let cutoff = oldest_of(transcript, keep_turns);
    replace(results, transcript, decisions, |entry, decisions| {
        entry.seq() < cutoff && !decisions.has_dropped_images(entry.id())
    });
}

fn replace(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    decisions: &mut SessionDecisions,
    is_wanted: impl Fn(&Entry<'_>, &SessionDecisions) -> bool,
) {
    let newest = transcript.newest_user_message().map(|entry| entry.seq());
    // Cloned, because the loop changes `results`.
    for seq in results.image_seqs.clone() {
        let Some(entry) = transcript.get(seq).filter(|entry| may_change(entry, newest)) else {
            continue;
        };
        if !is_wanted(&entry, decisions) {
            continue;
        }
        let Some(replacement) = without_images(&entry) else { continue };
        decisions.set_images_dropped(entry.id());
        match results.row_at(seq) {
            // A result that pruning replaced has no image left.
            Some(row) if row.replacement.is_none() => row.replace(replacement),
            Some(_) => {}
            None => results.replace_entry(seq, replacement),
        }
    }
}

/// Pinned messages, system messages and the newest request are not changed.
fn may_change(entry: &Entry<'_>, newest_user: Option<u64>) -> bool {
    let is_plain =
        entry.kind() == EntryKind::Message && matches!(entry.role(), Role::User | Role::Tool);
    let is_fixed = entry.has(Flags::PINNED) || Some(entry.seq()) == newest_user;
    is_plain && !is_fixed && !entry.has(Flags::ORPHAN)
}

/// Start of the oldest of the newest completed turns. A turn is complete with an answer without
/// calls.
fn oldest_of(transcript: &Transcript, turns: usize) -> u64 {
    let mut left = turns;
    let mut is_complete = false;
    for entry in transcript.iter().rev() {
        if entry.role() == Role::Assistant && !entry.has(Flags::TOOL_CALLS) {
            if left == 0 {
                return entry.seq();
            }
            is_complete = true;
        } else if entry.is_user_message() && is_complete {
            if left == 1 {
                return entry.seq();
            }
            left = left.saturating_sub(1);
            is_complete = false;
        }
    }
    0
}

fn without_images(entry: &Entry<'_>) -> Option<Replacement> {
    let mut message: Value = serde_json::from_str(entry.raw()).ok()?;
    let mut count = 0;
    for block in message.get_mut("content")?.as_array_mut()? {
        if block.get("type").and_then(Value::as_str) == Some("image") {
            *block = json!({"type": "text", "text": IMAGE_PROCESSED});
            count += 1;
        }
    }
    let detail = || format!("{count} replaced by a line");
    (count > 0).then(|| Replacement::from_raw(message.to_string(), LAYER, detail()))
}

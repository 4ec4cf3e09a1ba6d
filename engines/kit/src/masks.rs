//! Masks of old entries: a result as one line with its names, a call without long arguments.

use ctxhost_engine_api::transcript::tokens::{group_thousands, weighted_chars};
use ctxhost_engine_api::{Entry, Flags, Role, Transcript};
use serde_json::Value;

use crate::calls::{render_result_line, shorten_arguments};
use crate::name_ledger::NameLedger;
use crate::replacement::Replacement;
use ctxhost_text::identifiers::for_each_identifier;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::clip;

/// Length of an argument text of an old call, in weighted characters.
const ARGUMENT_CHARS: u64 = 160;
/// Minimum tokens that a mask saves.
const LEAST_SAVED_TOKENS: u64 = 24;

/// Bytes of a text that are searched for its first names.
const READ_BYTES: usize = 4_000;

/// The mask of an old entry in the name of `layer`, with at most `name_chars` weighted characters of
/// names; `None` if it is not worth it.
pub fn mask_entry(
    transcript: &Transcript,
    entry: &Entry<'_>,
    names: &NameLedger,
    name_chars: u64,
    layer: &'static str,
) -> Option<Replacement> {
    if entry.has(Flags::PINNED) || entry.has(Flags::ORPHAN) {
        return None;
    }
    let shown = match entry.role() {
        Role::Tool => {
            let detail = format!("{} tokens → a line", group_thousands(entry.tokens()));
            let line = render_masked_result(transcript, entry, names, name_chars);
            Replacement::from_text(line, layer, detail)
        }
        Role::Assistant => short_call(entry, layer)?,
        _ => return None,
    };
    // A small saving is not worth the detail.
    (shown.tokens() + LEAST_SAVED_TOKENS <= entry.tokens()).then_some(shown)
}

/// The line of an old result, without secrets:
/// `[old output left out: ls src -> ok, 9 lines, 90 chars; names: src/main.rs]`.
pub fn render_masked_result(
    transcript: &Transcript,
    entry: &Entry<'_>,
    names: &NameLedger,
    name_chars: u64,
) -> String {
    let mut line = render_result_line(transcript, entry, false);
    let names = names.heaviest_names(entry.seq(), name_chars);
    let new: Vec<&str> = names.into_iter().filter(|name| !line.contains(name)).collect();
    if !new.is_empty() {
        // Opens the bracket of the line again.
        line.pop();
        line = format!("{line}; names: {}]", new.join(" "));
    }
    redact(&line).into_owned()
}

/// The first different names of a text, without secrets, in at most `most_chars` weighted characters.
pub fn first_names(text: &str, most_chars: u64) -> String {
    if most_chars == 0 {
        return String::new();
    }
    // Replayed in every request, so only the beginning is read, up to a whole word.
    let head = text.get(..text.floor_char_boundary(READ_BYTES)).unwrap_or_default();
    let is_whole = head.len() == text.len();
    let head = if is_whole {
        head
    } else {
        head.rsplit_once(char::is_whitespace).map_or("", |(head, _)| head)
    };
    let clean = redact(head);
    let mut names: Vec<&str> = Vec::new();
    let mut room = most_chars;
    for_each_identifier(&clean, |identifier| {
        let name = identifier.text;
        if identifier.kind.is_noise_in_output() {
            return;
        }
        if let Some(rest) = room.checked_sub(weighted_chars(name) + 1)
            && !names.contains(&name)
        {
            room = rest;
            names.push(name);
        }
    });
    names.join(" ")
}

/// A message without thinking and with short argument texts.
fn short_call(entry: &Entry<'_>, layer: &'static str) -> Option<Replacement> {
    let short = shorten_arguments(entry, ARGUMENT_CHARS, |text| clip(text, ARGUMENT_CHARS));
    let count = short.as_ref().map_or(0, |(_, count)| *count);
    let raw = short.map_or_else(|| entry.raw().to_owned(), |(raw, _)| raw);
    let thinned = if entry.has(Flags::THINKING) { without_thinking(&raw) } else { None };
    let detail = match (count, thinned.is_some()) {
        (0, false) => return None,
        (0, true) => "thinking left out".to_owned(),
        (count, _) => format!("{count} long arguments of a call cut"),
    };
    Some(Replacement::from_raw(thinned.unwrap_or(raw), layer, detail))
}

/// The JSON of a message without thinking blocks; `None` if nothing would be left.
fn without_thinking(raw: &str) -> Option<String> {
    let mut message: Value = serde_json::from_str(raw).ok()?;
    let blocks = message.get_mut("content")?.as_array_mut()?;
    blocks.retain(|block| block.get("type").and_then(Value::as_str) != Some("thinking"));
    let has_content = |block: &Value| match block.get("text").and_then(Value::as_str) {
        Some(text) => !text.trim().is_empty(),
        None => true,
    };
    blocks.iter().any(has_content).then(|| message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_fit_and_hold_no_secret() {
        let text = "src/a.rs src/a.rs password: deadbeefcafe12 parse_body and more in src/b.rs";
        assert_eq!(first_names(text, 100), "src/a.rs parse_body src/b.rs");
        assert_eq!(first_names(text, 20), "src/a.rs parse_body");
        assert_eq!(first_names(text, 0), "");
    }
}

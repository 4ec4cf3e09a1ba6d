//! Masks: old results as one line with their names, old calls without long arguments.

use ctxhost_engine_api::{Entry, Flags, Role, Transcript};
use ctxhost_engine_kit::calls::{render_result_line, shorten_arguments};
use ctxhost_engine_kit::redact::redact;
use ctxhost_engine_kit::replacement::Replacement;
use ctxhost_engine_kit::text::{clip, group_thousands};
use serde_json::Value;

use crate::LAYER;
use crate::session::RecallSession;

/// Names kept in the line of a result, in weighted characters: about five paths.
const NAME_CHARS: u64 = 160;
/// Length of an argument text of an old call, in weighted characters.
const ARGUMENT_CHARS: u64 = 160;
/// Minimum tokens that a mask saves.
const LEAST_SAVED_TOKENS: u64 = 24;

impl RecallSession {
    /// The mask of an old entry; `None` if it is not worth it. Cached: it must not change, and a
    /// move needs hundreds.
    pub(crate) fn masked_view(
        &self,
        transcript: &Transcript,
        entry: &Entry<'_>,
    ) -> Option<Replacement> {
        if let Some(cached) = self.masks.borrow().get(&entry.seq()) {
            return cached.clone();
        }
        let shown = self.new_mask(transcript, entry);
        self.masks.borrow_mut().insert(entry.seq(), shown.clone());
        shown
    }

    fn new_mask(&self, transcript: &Transcript, entry: &Entry<'_>) -> Option<Replacement> {
        if entry.has(Flags::PINNED) || entry.has(Flags::ORPHAN) {
            return None;
        }
        let shown = match entry.role() {
            Role::Tool => self.masked_result(transcript, entry),
            Role::Assistant => short_call(entry)?,
            _ => return None,
        };
        // A small saving is not worth the detail.
        (shown.tokens() + LEAST_SAVED_TOKENS <= entry.tokens()).then_some(shown)
    }

    fn masked_result(&self, transcript: &Transcript, entry: &Entry<'_>) -> Replacement {
        let mut line = render_result_line(transcript, entry, false);
        let names = self.names.heaviest_names(entry.seq(), NAME_CHARS);
        let new: Vec<&str> = names.into_iter().filter(|name| !line.contains(name)).collect();
        if !new.is_empty() {
            // Opens the bracket of the line again.
            line.pop();
            line = format!("{line}; names: {}]", new.join(" "));
        }
        let detail = format!("{} tokens → a line", group_thousands(entry.tokens()));
        Replacement::from_text(redact(&line), LAYER, detail)
    }
}

/// A message without thinking and with short argument texts.
fn short_call(entry: &Entry<'_>) -> Option<Replacement> {
    let short = shorten_arguments(entry, ARGUMENT_CHARS, |text| clip(text, ARGUMENT_CHARS));
    let count = short.as_ref().map_or(0, |(_, count)| *count);
    let raw = short.map_or_else(|| entry.raw().to_owned(), |(raw, _)| raw);
    let thinned = if entry.has(Flags::THINKING) { without_thinking(&raw) } else { None };
    let detail = match (count, thinned.is_some()) {
        (0, false) => return None,
        (0, true) => "thinking left out".to_owned(),
        (count, _) => format!("{count} long arguments of a call cut"),
    };
    Some(Replacement::from_raw(thinned.unwrap_or(raw), LAYER, detail))
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

//! Layer 2, the tool-result guard: no single result, and not all of them together, crowd out the
//! conversation.
//!
//! Pressure: one log file or one page of JSON is larger than everything that was said. Cost: one
//! look at the size of each result; text is read only where it is really cut. The session keeps
//! every original under its entry id, which the notice names.
//!
//! A cut depends on the entry, the settings and the window alone, so the same bytes go out in every
//! request. A result that the aggregate rule has cut stays cut.

mod blocks;

use ctxhost_engine_api::transcript::tokens::{self, weighted_chars};
use ctxhost_engine_api::{Entry, Flags, Transcript};
use ctxhost_engine_kit::text::{Limit, grouped, truncate};
use serde_json::Value;

use self::blocks::{Room, Weight};
use crate::memory::SessionMemory;
use crate::pruning;
use crate::results::{Form, Shown, ToolResults, ToolRow};
use crate::settings::{CHARS_PER_TOKEN, ToolResultSettings, share_of};

/// The name of the layer in notes.
pub(crate) const LAYER: &str = "tool-result guard";

/// Opens the notice of a result that was cut.
pub(crate) const TRUNCATED: &str = "[truncated: output exceeded context limit]";
/// Stands in place of a result that alone takes too much of the window.
pub(crate) const CLEARED: &str = "[compacted: tool output removed to free context]";

/// What a request allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// The window of the model, in tokens.
    pub(crate) window_tokens: u64,
    /// What the request must fit into, in tokens.
    pub(crate) budget_tokens: u64,
    /// What was written until then went out in a request that the provider may still have cached, in
    /// milliseconds since 1970; `None` where nothing is cached.
    pub(crate) sent_until_ms: Option<i64>,
}

/// Cuts what is too large for a window. Rows that pruning has already replaced stay as they are.
pub(crate) fn reduce(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    scope: Scope,
    settings: &ToolResultSettings,
    memory: &mut SessionMemory,
) {
    let caps = Caps::of(scope.window_tokens, settings);
    for row in results.rows.iter_mut().filter(|row| !is_pruned(row)) {
        let Some(entry) = transcript.get(row.seq) else { continue };
        let remembered = memory.reduced(entry.id());
        if text_tokens(&entry) > caps.clear_over_tokens || remembered == Some(ELIDED) {
            row.show(cleared(&entry));
        } else if let Some(shown) = cut(&entry, row, remembered.unwrap_or(caps.single), settings) {
            row.show(shown);
        }
    }
    let sent = scope.sent_until_ms.filter(|_| settings.protect_sent);
    balance(results, transcript, Balance { caps: &caps, settings, sent_until_ms: sent }, memory);
    // A request that does not fit loses its cached prefix to a compaction if not to this.
    if sent.is_some() && results.context_chars() > scope.budget_tokens * CHARS_PER_TOKEN {
        let all = Balance { caps: &caps, settings, sent_until_ms: None };
        balance(results, transcript, all, memory);
    }
}

/// What one result may cost in a window, in weighted characters.
pub(crate) fn single_cap_chars(window_tokens: u64, settings: &ToolResultSettings) -> u64 {
    Caps::of(window_tokens, settings).single
}

/// A result of a transcript in at most `cap_chars` weighted characters; `None` where it fits.
pub(crate) fn cut_entry(
    entry: &Entry<'_>,
    cap_chars: u64,
    settings: &ToolResultSettings,
) -> Option<Shown> {
    let row = ToolRow { seq: entry.seq(), chars: 0, shown: None };
    cut(entry, &row, cap_chars, settings)
}

/// A result as its row shows it in at most `cap_chars` weighted characters; `None` where it fits.
fn cut(
    entry: &Entry<'_>,
    row: &ToolRow,
    cap_chars: u64,
    settings: &ToolResultSettings,
) -> Option<Shown> {
    if entry.tokens() * CHARS_PER_TOKEN <= cap_chars {
        return None;
    }
    let raw = match row.shown.as_ref().map(|shown| &shown.form) {
        Some(Form::Raw(raw)) => raw,
        _ => entry.raw(),
    };
    let mut message: Value = serde_json::from_str(raw).unwrap_or_default();
    let form = match message.get_mut("content").and_then(Value::as_array_mut) {
        Some(content) if !Weight::of(content).is_one_text() => {
            if Weight::of(content).total() <= cap_chars {
                return None;
            }
            let whole = weighted_chars(entry.text());
            let room = Room { cap_chars, min_keep_chars: settings.min_keep_chars, id: entry.id() };
            blocks::fit(content, &room, |left_out| notice(entry, left_out, whole));
            rewritten(message)
        }
        _ => one_text(entry, cap_chars, settings)?,
    };
    let mut shown = Shown { form, layer: LAYER, detail: String::new() };
    let before = entry.tokens() * CHARS_PER_TOKEN;
    shown.detail = format!("{} -> {} chars", grouped(before), grouped(shown.chars()));
    Some(shown)
}

/// The one text of a result, cut; `None` where it fits.
fn one_text(entry: &Entry<'_>, cap_chars: u64, settings: &ToolResultSettings) -> Option<Form> {
    let whole = weighted_chars(entry.text());
    if whole <= cap_chars {
        return None;
    }
    let limit = Limit { min_keep_chars: settings.min_keep_chars, ..Limit::chars(cap_chars) };
    let text = truncate(entry.text(), limit, |left_out| notice(entry, left_out, whole));
    Some(Form::Text(text.into_owned()))
}

/// A message whose blocks were cut. What a tool noted beside them goes: no model reads it.
fn rewritten(mut message: Value) -> Form {
    let members = message.as_object_mut();
    members.map(|members| members.shift_remove("details"));
    let content = message.get("content").and_then(Value::as_array);
    match content.map(Vec::as_slice) {
        Some([block]) if block.get("text").is_some_and(Value::is_string) => {
            Form::Text(block.get("text").and_then(Value::as_str).unwrap_or_default().to_owned())
        }
        _ => Form::Raw(message.to_string()),
    }
}

/// What the words of a result cost; images are cut one by one and clear nothing else.
fn text_tokens(entry: &Entry<'_>) -> u64 {
    if entry.has(Flags::IMAGES) { tokens::estimate(entry.text()) } else { entry.tokens() }
}

fn is_pruned(row: &ToolRow) -> bool {
    row.shown.as_ref().is_some_and(|shown| shown.layer == pruning::LAYER)
}

/// The sizes of a window.
#[derive(Debug)]
struct Caps {
    single: u64,
    aggregate: u64,
    clear_over_tokens: u64,
}

impl Caps {
    fn of(window_tokens: u64, settings: &ToolResultSettings) -> Caps {
        let by_window = match window_tokens {
            large if large >= settings.large_window_tokens => settings.large_cap_chars,
            medium if medium >= settings.medium_window_tokens => settings.medium_cap_chars,
            _ => settings.small_cap_chars,
        };
        let single = by_window.min(share_of(window_tokens, settings.cap_share) * CHARS_PER_TOKEN);
        let share = share_of(window_tokens * CHARS_PER_TOKEN, settings.aggregate_share);
        Caps {
            single,
            aggregate: share.max(single * settings.aggregate_results),
            clear_over_tokens: share_of(window_tokens, settings.clear_share),
        }
    }
}

/// What the aggregate rule works with.
#[derive(Clone, Copy)]
struct Balance<'a> {
    caps: &'a Caps,
    settings: &'a ToolResultSettings,
    /// Results written until then stay as they were sent.
    sent_until_ms: Option<i64>,
}

impl Balance<'_> {
    fn may_cut(&self, entry: &Entry<'_>) -> bool {
        let written_ms = entry.timestamp_ms();
        let is_sent = |until_ms| written_ms > 0 && written_ms <= until_ms;
        !self.sent_until_ms.is_some_and(is_sent)
    }
}

/// The aggregate rule: oldest first, until all results together fit; first each down to its notice,
/// then to a marker. The trailing batch stays: the model has not read it yet.
fn balance(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    rule: Balance<'_>,
    memory: &mut SessionMemory,
) {
    let mut excess = results.result_chars().saturating_sub(rule.caps.aggregate);
    for pass in [Pass::Cut, Pass::Elide] {
        for row in results.rows.iter_mut().filter(|row| row.seq < results.trailing_from) {
            if excess == 0 {
                return;
            }
            let Some(entry) = transcript.get(row.seq) else { continue };
            if is_pruned(row) || !rule.may_cut(&entry) {
                continue;
            }
            let target = pass.target_chars(&entry, row.chars, excess);
            let Some(shown) = pass.apply(&entry, row, target, rule.settings) else { continue };
            let (before, now) = (row.chars, shown.chars());
            if now < before {
                memory.reduce(entry.id(), target);
                row.show(shown);
                excess = excess.saturating_sub(before - now);
            }
        }
    }
}

/// The remembered size of a result of which only the marker is left.
const ELIDED: u64 = 0;

#[derive(Clone, Copy)]
enum Pass {
    Cut,
    Elide,
}

impl Pass {
    fn target_chars(self, entry: &Entry<'_>, now_chars: u64, excess_chars: u64) -> u64 {
        match self {
            Pass::Cut => {
                let least = weighted_chars(&notice(entry, now_chars, now_chars));
                now_chars.saturating_sub(excess_chars).max(least)
            }
            Pass::Elide => ELIDED,
        }
    }

    fn apply(
        self,
        entry: &Entry<'_>,
        row: &ToolRow,
        target_chars: u64,
        settings: &ToolResultSettings,
    ) -> Option<Shown> {
        match self {
            Pass::Cut => cut(entry, row, target_chars, settings),
            Pass::Elide => Some(cleared(entry)),
        }
    }
}

fn cleared(entry: &Entry<'_>) -> Shown {
    let chars = grouped(entry.tokens() * CHARS_PER_TOKEN);
    let id = entry.id();
    Shown {
        form: Form::Text(format!(
            "{CLEARED} {chars} characters; the original is entry {id} of the session"
        )),
        layer: LAYER,
        detail: format!("{chars} chars cleared"),
    }
}

fn notice(entry: &Entry<'_>, left_out_chars: u64, whole_chars: u64) -> String {
    format!(
        "\n{TRUNCATED} {} of {} characters left out; the original is entry {} of the session",
        grouped(left_out_chars),
        grouped(whole_chars),
        entry.id()
    )
}

#[cfg(test)]
mod tests;

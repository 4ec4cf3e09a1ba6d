//! Layer 2, the tool-result guard: limits single results, and all results together.
//!
//! The session keeps every original under its entry id, which the notice names; large ones can also
//! be stored as blobs. A cut depends only on the entry, the settings and the window, so its bytes
//! never change. A result that the aggregate rule has cut stays cut.

mod blocks;

use ctxhost_engine_api::transcript::tokens::{self, group_thousands, weighted_chars};
use ctxhost_engine_api::{Entry, Flags, Role, Transcript};
use ctxhost_engine_kit::caps::cut_arguments;
use ctxhost_engine_kit::live_round::{self, LiveRoundCuts};
use ctxhost_text::truncate::{TextLimit, truncate};
use serde_json::Value;

use self::blocks::{BlockBudget, BlockWeights};
use crate::decisions::SessionDecisions;
use crate::pruning;
use crate::results::{Replacement, ReplacementBody, ToolResults, ToolRow};
use crate::settings::{CHARS_PER_TOKEN, ToolResultSettings, share_of};

/// Layer name in plan notes.
pub(crate) const LAYER: &str = "tool-result guard";

/// Start of the notice of a cut result.
pub(crate) const TRUNCATED: &str = "[truncated: output exceeded context limit]";
/// Replaces a result that alone takes too much of the window.
pub(crate) const CLEARED: &str = "[compacted: tool output removed to free context]";

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReductionScope {
    /// Window of the model, in tokens.
    pub(crate) window_tokens: u64,
    /// Budget of the request, in tokens.
    pub(crate) budget_tokens: u64,
    /// Entries written until this time, in ms since 1970, may be in the provider's cache; `None` if
    /// nothing is.
    pub(crate) sent_until_ms: Option<i64>,
}

/// Cuts results that are too large. Results that pruning has replaced are unchanged.
pub(crate) fn reduce_results(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    scope: ReductionScope,
    settings: &ToolResultSettings,
    decisions: &mut SessionDecisions,
) {
    let caps = WindowCaps::for_window(scope.window_tokens, settings);
    let trailing_from = results.trailing_from;
    for row in results.rows.iter_mut().filter(|row| !is_pruned(row)) {
        let Some(entry) = transcript.get(row.seq) else { continue };
        let stored_limit = decisions.reduced_limit(entry.id());
        let original = OriginalLocation::find(&entry, decisions);
        let cap_chars = stored_limit.unwrap_or_else(|| caps.cap_for(&original, settings));
        // A cut to a small fraction would look like the output and mislead the model later. Before its
        // answer, it would repeat a call whose result it cannot read at all.
        let is_answered = row.seq < trailing_from;
        let is_cleared = is_answered && text_tokens(&entry) > caps.clear_over_tokens;
        if is_cleared || stored_limit == Some(ELIDED) {
            row.replace(cleared_marker(&entry, &original));
        } else if let Some(replacement) = cut(&entry, row, cap_chars, settings, &original) {
            row.replace(replacement);
        }
    }
    // Cached results are exempt at first.
    let sent = scope.sent_until_ms.filter(|_| settings.protect_sent);
    let rule = AggregateRule { caps: &caps, settings, sent_until_ms: sent };
    apply_aggregate_rule(results, transcript, rule, decisions);
    // Keeping the cached prefix is pointless here: a compaction would lose it anyway.
    if sent.is_some() && results.exceeds(scope.budget_tokens) {
        let all = AggregateRule { caps: &caps, settings, sent_until_ms: None };
        apply_aggregate_rule(results, transcript, all, decisions);
    }
    if results.exceeds(scope.budget_tokens) {
        cut_live_round(results, transcript, scope, settings, decisions);
    }
}

/// Cuts the results that the model is about to read, if what must stay does not fit otherwise.
fn cut_live_round(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    scope: ReductionScope,
    settings: &ToolResultSettings,
    decisions: &mut SessionDecisions,
) {
    let shown = |entry: &Entry<'_>| results.shown_tokens(entry);
    let other_tokens = live_round::other_tokens(transcript, shown);
    let cuts = LiveRoundCuts::fit(transcript, other_tokens, scope.budget_tokens, shown);
    for (seq, cap_chars) in cuts.caps() {
        let Some(entry) = transcript.get(seq) else { continue };
        let Some(row) = results.row_at(seq) else {
            let arguments = cut_arguments(&entry, cap_chars, LAYER);
            arguments.into_iter().for_each(|cut| results.replace_entry(seq, cut));
            continue;
        };
        let original = OriginalLocation::find(&entry, decisions);
        // The notice alone may be longer than the limit.
        let least_chars = weighted_chars(&notice(&original, row.chars, row.chars));
        let cap_chars = cap_chars.max(least_chars);
        if let Some(cut) = cut(&entry, row, cap_chars, settings, &original)
            && cut.chars() < row.chars
        {
            row.replace(cut);
            decisions.set_reduced(entry.id(), cap_chars);
        }
    }
}

/// The window used for caps, in tokens: at most twice the budget, which is the tighter limit after
/// a refusal or with a long system prompt.
pub(crate) fn effective_window_tokens(window_tokens: u64, budget_tokens: u64) -> u64 {
    window_tokens.min(budget_tokens.saturating_mul(2))
}

/// Cap of one result in a window, in weighted characters.
pub(crate) fn single_cap_chars(window_tokens: u64, settings: &ToolResultSettings) -> u64 {
    WindowCaps::for_window(window_tokens, settings).single
}

/// Cuts a result to `cap_chars` weighted characters; `None` if it fits. `handle` names its stored
/// original.
pub(crate) fn cut_entry(
    entry: &Entry<'_>,
    cap_chars: u64,
    settings: &ToolResultSettings,
    handle: Option<&str>,
) -> Option<Replacement> {
    let row = ToolRow { seq: entry.seq(), chars: 0, replacement: None };
    cut(entry, &row, cap_chars, settings, &OriginalLocation { id: entry.id(), handle })
}

/// Whether the whole text of a result is stored as a blob. A result that an earlier compaction cut
/// is not whole.
pub(crate) fn needs_stored_original(entry: &Entry<'_>, settings: &ToolResultSettings) -> bool {
    settings.spill_chars > 0
        && entry.role() == Role::Tool
        && !entry.has(Flags::REPLACED)
        && !entry.has(Flags::ORPHAN)
        && weighted_chars(entry.text()) > settings.spill_chars
}

/// Where the whole result is.
struct OriginalLocation<'a> {
    /// Id of the session entry.
    id: &'a str,
    /// Handle of the blob, if stored.
    handle: Option<&'a str>,
}

impl<'a> OriginalLocation<'a> {
    fn find(entry: &Entry<'a>, decisions: &'a SessionDecisions) -> OriginalLocation<'a> {
        OriginalLocation { id: entry.id(), handle: decisions.blob_handle(entry.id()) }
    }
}

impl std::fmt::Display for OriginalLocation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the original is entry {} of the session", self.id)?;
        self.handle.map_or(Ok(()), |handle| write!(f, " and file {handle} beside it"))
    }
}

/// Cuts the current form of a result to `cap_chars` weighted characters; `None` if it fits.
fn cut(
    entry: &Entry<'_>,
    row: &ToolRow,
    cap_chars: u64,
    settings: &ToolResultSettings,
    original: &OriginalLocation<'_>,
) -> Option<Replacement> {
    if entry.tokens() * CHARS_PER_TOKEN <= cap_chars {
        return None;
    }
    // A layer before this one may have replaced blocks already, such as old images.
    let raw = match row.replacement.as_ref().map(|replacement| &replacement.body) {
        Some(ReplacementBody::Raw(raw)) => raw,
        _ => entry.raw(),
    };
    // Parsed only here, for the few results over their cap.
    let mut message: Value = serde_json::from_str(raw).unwrap_or_default();
    let body = match message.get_mut("content").and_then(Value::as_array_mut) {
        Some(content) if !BlockWeights::from_content(content).is_one_text() => {
            if BlockWeights::from_content(content).total() <= cap_chars {
                return None;
            }
            let whole = weighted_chars(entry.text());
            let room = BlockBudget { cap_chars, min_keep_chars: settings.min_keep_chars, original };
            blocks::fit_content(content, &room, |left_out| notice(original, left_out, whole));
            rebuild_message(message)
        }
        _ => one_text(entry, cap_chars, settings, original)?,
    };
    if matches!(&body, ReplacementBody::Text(text) if text.trim().is_empty()) {
        // The cap is below the shortest notice, and the host refuses empty results.
        return None;
    }
    let mut replacement = Replacement { body, layer: LAYER, detail: String::new() };
    let before = entry.tokens() * CHARS_PER_TOKEN;
    replacement.detail =
        format!("{} → {} chars", group_thousands(before), group_thousands(replacement.chars()));
    Some(replacement)
}

/// The cut text of a result; `None` if it fits.
fn one_text(
    entry: &Entry<'_>,
    cap_chars: u64,
    settings: &ToolResultSettings,
    original: &OriginalLocation<'_>,
) -> Option<ReplacementBody> {
    let whole = weighted_chars(entry.text());
    if whole <= cap_chars {
        return None;
    }
    let limit = TextLimit::with_max_chars(cap_chars).keeping(settings.min_keep_chars);
    let text = truncate(entry.text(), limit, |left_out| notice(original, left_out, whole));
    Some(ReplacementBody::Text(text.into_owned()))
}

/// Rebuilds a message after its blocks were cut. The tool's `details` are dropped: no model reads
/// them.
fn rebuild_message(mut message: Value) -> ReplacementBody {
    let members = message.as_object_mut();
    // Keeps the order of the other fields, so that the bytes are stable.
    members.map(|members| members.shift_remove("details"));
    let content = message.get("content").and_then(Value::as_array);
    match content.map(Vec::as_slice) {
        Some([block]) if block.get("text").is_some_and(Value::is_string) => ReplacementBody::Text(
            block.get("text").and_then(Value::as_str).unwrap_or_default().to_owned(),
        ),
        _ => ReplacementBody::Raw(message.to_string()),
    }
}

/// Size of the text of a result; its images are cut one by one and do not count.
fn text_tokens(entry: &Entry<'_>) -> u64 {
    if entry.has(Flags::IMAGES) { tokens::estimate(entry.text()) } else { entry.tokens() }
}

fn is_pruned(row: &ToolRow) -> bool {
    row.replacement.as_ref().is_some_and(|replacement| replacement.layer == pruning::LAYER)
}

/// Limits for one window.
#[derive(Debug)]
struct WindowCaps {
    single: u64,
    aggregate: u64,
    clear_over_tokens: u64,
}

impl WindowCaps {
    fn for_window(window_tokens: u64, settings: &ToolResultSettings) -> WindowCaps {
        let by_window = match window_tokens {
            large if large >= settings.large_window_tokens => settings.large_cap_chars,
            medium if medium >= settings.medium_window_tokens => settings.medium_cap_chars,
            _ => settings.small_cap_chars,
        };
        let single = by_window.min(share_of(window_tokens, settings.cap_share) * CHARS_PER_TOKEN);
        let share = share_of(window_tokens * CHARS_PER_TOKEN, settings.aggregate_share);
        WindowCaps {
            single,
            // In a small window the share may be less than one result.
            aggregate: share.max(single * settings.aggregate_results),
            clear_over_tokens: share_of(window_tokens, settings.clear_share),
        }
    }

    /// Cap of one result; a stored original is shown in at most the size that made it a blob.
    fn cap_for(&self, original: &OriginalLocation<'_>, settings: &ToolResultSettings) -> u64 {
        match original.handle {
            Some(_) => self.single.min(settings.spill_chars),
            None => self.single,
        }
    }
}

/// Inputs of the aggregate rule.
#[derive(Clone, Copy)]
struct AggregateRule<'a> {
    caps: &'a WindowCaps,
    settings: &'a ToolResultSettings,
    /// Results written until then are not cut.
    sent_until_ms: Option<i64>,
}

impl AggregateRule<'_> {
    fn may_cut(&self, entry: &Entry<'_>) -> bool {
        let written_ms = entry.timestamp_ms();
        // Entries without a timestamp cannot be compared and may be cut.
        let is_sent = |until_ms| written_ms > 0 && written_ms <= until_ms;
        !self.sent_until_ms.is_some_and(is_sent)
    }
}

/// The aggregate rule: cuts results, oldest first, until all together fit; first down to a notice,
/// then to a marker. The trailing batch is not cut, because the model has not read it.
fn apply_aggregate_rule(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    rule: AggregateRule<'_>,
    decisions: &mut SessionDecisions,
) {
    if results.result_chars() <= rule.caps.aggregate {
        return;
    }
    // A cut invalidates the cached prefix after it, so each one frees room for many requests.
    let target_chars = share_of(rule.caps.aggregate, 1.0 - rule.settings.aggregate_slack);
    let mut excess = results.result_chars().saturating_sub(target_chars);
    // A cut keeps a part of every result; only if that is not enough are whole results removed.
    for stage in [ReductionStage::Cut, ReductionStage::Elide] {
        for row in results.rows.iter_mut().filter(|row| row.seq < results.trailing_from) {
            if excess == 0 {
                return;
            }
            let Some(entry) = transcript.get(row.seq) else { continue };
            if is_pruned(row) || !rule.may_cut(&entry) {
                continue;
            }
            let original = OriginalLocation::find(&entry, decisions);
            let target = stage.target_chars(&original, row.chars, excess);
            let replacement = match stage {
                ReductionStage::Cut => cut(&entry, row, target, rule.settings, &original),
                ReductionStage::Elide => Some(cleared_marker(&entry, &original)),
            };
            let Some(replacement) = replacement else { continue };
            let (before, now) = (row.chars, replacement.chars());
            if now < before {
                decisions.set_reduced(entry.id(), target);
                row.replace(replacement);
                excess = excess.saturating_sub(before - now);
            }
        }
    }
}

/// Stored limit of a result of which only the marker remains.
const ELIDED: u64 = 0;

#[derive(Clone, Copy)]
enum ReductionStage {
    Cut,
    Elide,
}

impl ReductionStage {
    fn target_chars(
        self,
        original: &OriginalLocation<'_>,
        now_chars: u64,
        excess_chars: u64,
    ) -> u64 {
        match self {
            ReductionStage::Cut => {
                // Not below the notice, or the cut would be larger than its target.
                let least = weighted_chars(&notice(original, now_chars, now_chars));
                now_chars.saturating_sub(excess_chars).max(least)
            }
            ReductionStage::Elide => ELIDED,
        }
    }
}

fn cleared_marker(entry: &Entry<'_>, original: &OriginalLocation<'_>) -> Replacement {
    let chars = group_thousands(entry.tokens() * CHARS_PER_TOKEN);
    Replacement {
        body: ReplacementBody::Text(format!("{CLEARED} {chars} characters; {original}")),
        layer: LAYER,
        detail: format!("{chars} chars cleared"),
    }
}

fn notice(original: &OriginalLocation<'_>, left_out_chars: u64, whole_chars: u64) -> String {
    format!(
        "\n{TRUNCATED} {} of {} characters left out; {original}",
        group_thousands(left_out_chars),
        group_thousands(whole_chars),
    )
}

#[cfg(test)]
mod tests;

//! Layer 4, pruning: trims, then clears old tool output after the provider's prompt cache has
//! expired.
//!
//! Pruning before that would invalidate the cached prefix. Decisions are stored and replayed in
//! every later request, whatever the mode. Images of old turns are replaced, all at once, when the
//! request is over its budget.
//!
//! ```text
//!  first user message … third-last assistant message … end
//!  └────────── prunable results ──────────┘└─ never pruned ─┘
//! ```

mod arguments;
mod images;

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{group_thousands, weighted_chars};
use ctxhost_engine_api::{EngineError, Entry, Flags, Result, Role, Transcript};
use ctxhost_engine_kit::masks::first_names;
use ctxhost_engine_kit::settings::setting_error;
use ctxhost_text::truncate::head_and_tail;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::decisions::{PruneLevel, SessionDecisions};
use crate::results::{Replacement, ToolResults, ToolRow};
use crate::settings::{CHARS_PER_TOKEN, PruningMode, PruningSettings};
use crate::tool_result_guard::ReductionScope;

/// Layer name in plan notes.
pub(crate) const LAYER: &str = "pruning";

const IMAGE_REMOVED: &str = "[image removed during context pruning]";

/// The layer with its settings and tool filters.
#[derive(Debug)]
pub(crate) struct PruningLayer {
    settings: PruningSettings,
    allow: GlobSet,
    deny: GlobSet,
}

/// The times that decide whether the cache is cold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheClock {
    /// Now, in milliseconds since 1970.
    pub(crate) now_ms: i64,
    /// Start of the last successful request; `None` before the first.
    pub(crate) last_touch_ms: Option<i64>,
}

impl PruningLayer {
    /// Compiles the tool filters.
    pub(crate) fn new(settings: &PruningSettings) -> Result<PruningLayer> {
        Ok(PruningLayer {
            allow: globs("pruning.allow", &settings.allow)?,
            deny: globs("pruning.deny", &settings.deny)?,
            settings: settings.clone(),
        })
    }

    /// Replays earlier decisions, and makes new ones if the cache is cold or the request is over its
    /// budget.
    pub(crate) fn prune(
        &self,
        results: &mut ToolResults<'_>,
        transcript: &Transcript,
        scope: ReductionScope,
        clock: CacheClock,
        decisions: &mut SessionDecisions,
    ) {
        self.replay(results, transcript, decisions);
        images::repeat_replacements(results, transcript, decisions);
        self.prune_expired(results, transcript, scope.window_tokens, clock, decisions);
        // A new replacement invalidates the cached prefix after it, so it waits until the host would
        // compact. Then all old images go at once, which frees room for many requests.
        if self.settings.old_images && results.exceeds(scope.budget_tokens) {
            let keep_turns = self.settings.keep_image_turns;
            images::replace_old_images(results, transcript, keep_turns, decisions);
        }
    }

    /// Trims and clears results if the cache is cold.
    fn prune_expired(
        &self,
        results: &mut ToolResults<'_>,
        transcript: &Transcript,
        window_tokens: u64,
        clock: CacheClock,
        decisions: &mut SessionDecisions,
    ) {
        // A pass changes the prefix, so the cache is warm again from then on.
        let last_touch_ms = clock.last_touch_ms.max(decisions.pruned_at_ms());
        if !self.is_cold(clock.now_ms, clock.last_touch_ms.and(last_touch_ms)) {
            return;
        }
        // Fewer answers than protected ones: nothing is old.
        let Some(range) = self.prunable_range(transcript) else { return };
        let window_chars = window_tokens * CHARS_PER_TOKEN;
        let mut pass = PruningPass { layer: self, results, transcript, range, window_chars };
        let changed = pass.trim_results(decisions) + pass.clear_results(decisions);
        if changed > 0 {
            decisions.set_pruned_at(clock.now_ms);
        }
    }

    fn replay(
        &self,
        results: &mut ToolResults<'_>,
        transcript: &Transcript,
        decisions: &SessionDecisions,
    ) {
        for row in results.rows.iter_mut().filter(|_| decisions.has_pruned()) {
            let Some(entry) = transcript.get(row.seq) else { continue };
            if let Some(pruned) = decisions.prune_level(entry.id()) {
                self.apply(row, &entry, pruned);
            }
        }
        // The filter is constant; it skips the walk for the usual session without cut arguments.
        for entry in transcript.iter().filter(|_| decisions.has_cut_arguments()) {
            if decisions.is_cut_call(entry.id())
                && let Some(replacement) =
                    arguments::shorten_old_arguments(&entry, self.settings.argument_chars)
            {
                results.replace_entry(entry.seq(), replacement);
            }
        }
    }

    fn is_cold(&self, now_ms: i64, last_touch_ms: Option<i64>) -> bool {
        self.settings.mode == PruningMode::CacheTtl
            && last_touch_ms.is_some_and(|touch| self.has_expired(now_ms, touch))
    }

    /// Entries written until this time may be cached; `None` if the cache has expired or nothing
    /// was sent.
    pub(crate) fn sent_until_ms(&self, clock: CacheClock) -> Option<i64> {
        clock.last_touch_ms.filter(|touch| !self.has_expired(clock.now_ms, *touch))
    }

    fn has_expired(&self, now_ms: i64, touch_ms: i64) -> bool {
        let ttl_ms = i64::try_from(self.settings.ttl.as_ms()).unwrap_or(i64::MAX);
        now_ms.saturating_sub(touch_ms) >= ttl_ms
    }

    /// From the first user message to the oldest of the newest assistant messages.
    fn prunable_range(&self, transcript: &Transcript) -> Option<Range<u64>> {
        let first = transcript.iter().find(|entry| entry.role() == Role::User)?;
        let mut assistants = transcript.iter().rev().filter(|e| e.role() == Role::Assistant);
        let cutoff = match self.settings.keep_last_assistants.checked_sub(1) {
            // Too few answers: nothing may be pruned.
            Some(newer) => assistants.nth(newer)?.seq(),
            None => transcript.len() as u64,
        };
        Some(first.seq()..cutoff)
    }

    fn may_touch(&self, entry: &Entry<'_>) -> bool {
        if self.allow.is_empty() && self.deny.is_empty() {
            return true;
        }
        // Tool names differ in case between agents.
        let tool = entry.tool_result().map_or(String::new(), |result| result.tool.to_lowercase());
        !self.deny.is_match(&tool) && (self.allow.is_empty() || self.allow.is_match(&tool))
    }

    fn apply(&self, row: &mut ToolRow, entry: &Entry<'_>, pruned: PruneLevel) -> bool {
        let (text, word) = match pruned {
            PruneLevel::Soft => match self.trimmed_text(entry) {
                Some(text) => (text, "soft"),
                None => return false,
            },
            PruneLevel::Hard => (self.placeholder_for(entry), "hard"),
        };
        let now = weighted_chars(&text);
        let before = group_thousands(entry.tokens() * CHARS_PER_TOKEN);
        let detail = match pruned {
            PruneLevel::Soft => format!("{word}: {before} → {} chars", group_thousands(now)),
            PruneLevel::Hard => format!("{word}: {before} chars cleared"),
        };
        row.replace(Replacement::from_text(text, LAYER, detail));
        true
    }

    /// The placeholder with the first names of a result.
    fn placeholder_for(&self, entry: &Entry<'_>) -> String {
        let placeholder = &self.settings.placeholder;
        let names = first_names(entry.text(), self.settings.name_chars);
        if names.is_empty() { placeholder.clone() } else { format!("{placeholder} names: {names}") }
    }

    /// Head and tail of a long result; `None` for a short one without images.
    fn trimmed_text(&self, entry: &Entry<'_>) -> Option<String> {
        let text = entry.text();
        let settings = &self.settings;
        let whole = weighted_chars(text);
        let kept = settings.soft_head_chars + settings.soft_tail_chars;
        // An image goes even where the text is short: it costs as much as two pages.
        let has_image = entry.has(Flags::IMAGES);
        if whole <= settings.soft_over_chars.max(kept) {
            return has_image.then(|| format!("{text}\n{IMAGE_REMOVED}"));
        }
        let head_tail =
            head_and_tail(text, settings.soft_head_chars, settings.soft_tail_chars, "\n...\n");
        let image = if has_image { format!("\n{IMAGE_REMOVED}") } else { String::new() };
        Some(format!(
            "{head_tail}{image}\n\n[trimmed: the first {} and the last {} of {} characters are shown; the original is entry {} of the session]",
            group_thousands(settings.soft_head_chars),
            group_thousands(settings.soft_tail_chars),
            group_thousands(whole),
            entry.id()
        ))
    }
}

/// One pass of new decisions.
struct PruningPass<'r, 't> {
    layer: &'r PruningLayer,
    results: &'r mut ToolResults<'t>,
    transcript: &'r Transcript,
    range: Range<u64>,
    window_chars: u64,
}

impl PruningPass<'_, '_> {
    /// Trims every long result and returns the number of changes.
    fn trim_results(&mut self, decisions: &mut SessionDecisions) -> usize {
        if self.is_context_below(self.layer.settings.soft_share) {
            return 0;
        }
        self.decide(PruneLevel::Soft, decisions, |_| true) + self.cut_arguments(decisions)
    }

    /// Cuts the arguments of old calls, if enabled, and returns the number of calls.
    fn cut_arguments(&mut self, decisions: &mut SessionDecisions) -> usize {
        let settings = &self.layer.settings;
        let calls = self.transcript.range(self.range.clone()).filter(|_| settings.old_arguments);
        let mut changed = 0;
        for entry in calls.filter(|entry| !decisions.is_cut_call(entry.id())).collect::<Vec<_>>() {
            if let Some(replacement) =
                arguments::shorten_old_arguments(&entry, settings.argument_chars)
            {
                decisions.set_arguments_cut(entry.id());
                self.results.replace_entry(entry.seq(), replacement);
                changed += 1;
            }
        }
        changed
    }

    /// Clears results, oldest first, until the context is small enough, and returns their number.
    fn clear_results(&mut self, decisions: &mut SessionDecisions) -> usize {
        let settings = &self.layer.settings;
        let limit = settings.hard_share * self.window_chars as f64;
        if !settings.hard_clear || self.is_context_below(settings.hard_share) {
            return 0;
        }
        // Less is not worth a new cached prefix.
        if self.prunable_chars() < settings.hard_min_chars {
            return 0;
        }
        let mut context = self.results.context_chars();
        self.decide(PruneLevel::Hard, decisions, |freed_chars| {
            let continues = context as f64 >= limit;
            context = context.saturating_sub(freed_chars);
            continues
        })
    }

    /// Walks the prunable results from old to new while `continues(freed_chars)`.
    fn decide(
        &mut self,
        pruned: PruneLevel,
        decisions: &mut SessionDecisions,
        mut continues: impl FnMut(u64) -> bool,
    ) -> usize {
        let mut changed = 0;
        for row in self.results.rows.iter_mut().filter(|row| self.range.contains(&row.seq)) {
            let Some(entry) = self.transcript.get(row.seq) else { continue };
            // A level never falls, or bytes that were sent would change back.
            if decisions.prune_level(entry.id()).is_some_and(|before| before >= pruned) {
                continue;
            }
            // Applied to a copy: the caller decides by the freed size whether to stop before it.
            let mut trial = row.clone();
            if !self.layer.may_touch(&entry) || !self.layer.apply(&mut trial, &entry, pruned) {
                continue;
            }
            if !continues(row.chars.saturating_sub(trial.chars)) {
                break;
            }
            *row = trial;
            decisions.set_pruned(entry.id(), pruned);
            changed += 1;
        }
        changed
    }

    fn is_context_below(&self, share: f64) -> bool {
        (self.results.context_chars() as f64) < share * self.window_chars as f64
    }

    fn prunable_chars(&self) -> u64 {
        let rows = self.results.rows.iter().filter(|row| self.range.contains(&row.seq));
        let touchable = rows.filter(|row| {
            self.transcript.get(row.seq).is_some_and(|entry| self.layer.may_touch(&entry))
        });
        touchable.map(|row| row.chars).sum()
    }
}

fn globs(key: &str, patterns: &[String]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern.trim()).case_insensitive(true).build();
        set.add(
            glob.map_err(|error| setting_error(key, format_args!("holds a bad glob: {error}")))?,
        );
    }
    set.build().map_err(|error| EngineError::config(key, error.to_string()))
}

#[cfg(test)]
mod tests;

//! Layer 4, pruning: old tool output is trimmed, then cleared, once the provider's prompt cache has
//! gone cold.
//!
//! Pressure: a long session pays for tool output that nobody reads any more. Cost: the cached prefix
//! from the first changed result on, which is why nothing happens before the cache has expired.
//! Decisions are remembered and come out the same in every later request, whatever the mode.
//!
//! ```text
//!  first user message … third-last assistant message … end
//!  └────────── prunable results ──────────┘└─ never touched ─┘
//! ```

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{EngineError, Entry, Flags, Result, Role, Transcript};
use ctxhost_engine_kit::settings::refuse;
use ctxhost_engine_kit::text::{grouped, prefix, suffix};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::memory::SessionMemory;
use crate::results::{Shown, ToolResults, ToolRow};
use crate::settings::{CHARS_PER_TOKEN, PruningMode, PruningSettings};

/// The name of the layer in notes.
pub(crate) const LAYER: &str = "pruning";

const IMAGE_REMOVED: &str = "[image removed during context pruning]";

/// How far a result was pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pruned {
    /// Head and tail are left.
    Soft,
    /// The placeholder is left.
    Hard,
}

/// The layer with its settings and the tools it may touch.
#[derive(Debug)]
pub(crate) struct Pruning {
    settings: PruningSettings,
    allow: GlobSet,
    deny: GlobSet,
}

/// What the clock says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheClock {
    /// Now, in milliseconds since 1970.
    pub(crate) now_ms: i64,
    /// When the last successful request began; `None` before the first.
    pub(crate) last_touch_ms: Option<i64>,
}

impl Pruning {
    /// Prepares the layer.
    pub(crate) fn new(settings: &PruningSettings) -> Result<Pruning> {
        Ok(Pruning {
            allow: globs("pruning.allow", &settings.allow)?,
            deny: globs("pruning.deny", &settings.deny)?,
            settings: settings.clone(),
        })
    }

    /// Replays what was decided, and decides anew where the cache has gone cold.
    pub(crate) fn prune(
        &self,
        results: &mut ToolResults<'_>,
        transcript: &Transcript,
        window_tokens: u64,
        clock: CacheClock,
        memory: &mut SessionMemory,
    ) {
        self.replay(results, transcript, memory);
        let last_touch_ms = clock.last_touch_ms.max(memory.pruned_at_ms);
        if !self.is_cold(clock.now_ms, clock.last_touch_ms.and(last_touch_ms)) {
            return;
        }
        let Some(range) = self.prunable_range(transcript) else { return };
        let window_chars = window_tokens * CHARS_PER_TOKEN;
        let mut round = Round { layer: self, results, transcript, range, window_chars };
        let changed = round.soft(memory) + round.hard(memory);
        if changed > 0 {
            memory.pruned_at_ms = Some(clock.now_ms);
        }
    }

    fn replay(
        &self,
        results: &mut ToolResults<'_>,
        transcript: &Transcript,
        memory: &SessionMemory,
    ) {
        if memory.pruned.is_empty() {
            return;
        }
        for row in &mut results.rows {
            let Some(entry) = transcript.get(row.seq) else { continue };
            if let Some(pruned) = memory.pruned.get(entry.id()) {
                self.show(row, &entry, *pruned);
            }
        }
    }

    fn is_cold(&self, now_ms: i64, last_touch_ms: Option<i64>) -> bool {
        let ttl_ms = i64::try_from(self.settings.ttl_ms).unwrap_or(i64::MAX);
        self.settings.mode == PruningMode::CacheTtl
            && last_touch_ms.is_some_and(|touch| now_ms.saturating_sub(touch) >= ttl_ms)
    }

    /// From the first message of the person to the oldest of the newest assistant messages.
    fn prunable_range(&self, transcript: &Transcript) -> Option<Range<u64>> {
        let first = transcript.iter().find(|entry| entry.role() == Role::User)?;
        let mut assistants = transcript.iter().rev().filter(|e| e.role() == Role::Assistant);
        let cutoff = match self.settings.keep_last_assistants.checked_sub(1) {
            Some(newer) => assistants.nth(newer)?.seq(),
            None => transcript.len() as u64,
        };
        Some(first.seq()..cutoff)
    }

    fn may_touch(&self, entry: &Entry<'_>) -> bool {
        if self.allow.is_empty() && self.deny.is_empty() {
            return true;
        }
        let tool = entry.tool_result().map_or(String::new(), |result| result.tool.to_lowercase());
        !self.deny.is_match(&tool) && (self.allow.is_empty() || self.allow.is_match(&tool))
    }

    fn show(&self, row: &mut ToolRow, entry: &Entry<'_>, pruned: Pruned) -> bool {
        let (text, word) = match pruned {
            Pruned::Soft => match self.trimmed(entry) {
                Some(text) => (text, "soft"),
                None => return false,
            },
            Pruned::Hard => (self.settings.placeholder.clone(), "hard"),
        };
        let now = weighted_chars(&text);
        let before = grouped(entry.tokens() * CHARS_PER_TOKEN);
        let detail = match pruned {
            Pruned::Soft => format!("{word}: {before} -> {} chars", grouped(now)),
            Pruned::Hard => format!("{word}: {before} chars cleared"),
        };
        row.chars = now;
        row.shown = Some(Shown { text, layer: LAYER, detail });
        true
    }

    /// Head and tail of a long result; `None` where it is short and holds no image.
    fn trimmed(&self, entry: &Entry<'_>) -> Option<String> {
        let text = entry.text();
        let settings = &self.settings;
        let whole = weighted_chars(text);
        let kept = settings.soft_head_chars + settings.soft_tail_chars;
        let has_image = entry.has(Flags::IMAGES);
        if whole <= settings.soft_over_chars.max(kept) {
            return has_image.then(|| format!("{text}\n{IMAGE_REMOVED}"));
        }
        let head = prefix(text, settings.soft_head_chars, 1);
        let tail = suffix(text, settings.soft_tail_chars, 1);
        let image = if has_image { format!("\n{IMAGE_REMOVED}") } else { String::new() };
        Some(format!(
            "{head}\n...\n{tail}{image}\n\n[trimmed: the first {} and the last {} of {} characters are shown; the original is entry {} of the session]",
            grouped(settings.soft_head_chars),
            grouped(settings.soft_tail_chars),
            grouped(whole),
            entry.id()
        ))
    }
}

/// One round of new decisions.
struct Round<'r, 't> {
    layer: &'r Pruning,
    results: &'r mut ToolResults<'t>,
    transcript: &'r Transcript,
    range: Range<u64>,
    window_chars: u64,
}

impl Round<'_, '_> {
    /// Trims every long result. Answers how many.
    fn soft(&mut self, memory: &mut SessionMemory) -> usize {
        if self.is_below(self.layer.settings.soft_share) {
            return 0;
        }
        self.decide(Pruned::Soft, memory, |_| true)
    }

    /// Clears results, oldest first, until the context is small enough. Answers how many.
    fn hard(&mut self, memory: &mut SessionMemory) -> usize {
        let settings = &self.layer.settings;
        let limit = settings.hard_share * self.window_chars as f64;
        if !settings.hard_clear || self.is_below(settings.hard_share) {
            return 0;
        }
        if self.prunable_chars() < settings.hard_min_chars {
            return 0;
        }
        let mut context = self.results.context_chars();
        self.decide(Pruned::Hard, memory, |freed_chars| {
            let goes_on = context as f64 >= limit;
            context = context.saturating_sub(freed_chars);
            goes_on
        })
    }

    /// Walks the prunable results from old to new; `goes_on` hears what the next one would free.
    fn decide(
        &mut self,
        pruned: Pruned,
        memory: &mut SessionMemory,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> usize {
        let mut changed = 0;
        for row in self.results.rows.iter_mut().filter(|row| self.range.contains(&row.seq)) {
            let Some(entry) = self.transcript.get(row.seq) else { continue };
            if memory.pruned.get(entry.id()).is_some_and(|before| *before >= pruned) {
                continue;
            }
            let mut trial = row.clone();
            if !self.layer.may_touch(&entry) || !self.layer.show(&mut trial, &entry, pruned) {
                continue;
            }
            if !goes_on(row.chars.saturating_sub(trial.chars)) {
                break;
            }
            *row = trial;
            memory.pruned.insert(entry.id().to_owned(), pruned);
            changed += 1;
        }
        changed
    }

    fn is_below(&self, share: f64) -> bool {
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
        set.add(glob.map_err(|error| refuse(key, format_args!("holds a bad glob: {error}")))?);
    }
    set.build().map_err(|error| EngineError::config(key, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbench::Bench;

    const TTL_MS: i64 = 300_000;

    fn cold() -> CacheClock {
        CacheClock { now_ms: TTL_MS, last_touch_ms: Some(0) }
    }

    fn on() -> PruningSettings {
        PruningSettings { mode: PruningMode::CacheTtl, ..Default::default() }
    }

    /// A round is a request, a call, its result and an answer.
    fn rounds(count: usize, size: usize) -> Bench {
        let mut bench = Bench::default();
        for _ in 0..count {
            bench.user("u").call("1", "read", "{}").result("1", "read", &"x".repeat(size));
            bench.assistant("ok");
        }
        bench
    }

    fn run(
        bench: &Bench,
        settings: &PruningSettings,
        window_tokens: u64,
        clock: CacheClock,
        memory: &mut SessionMemory,
    ) -> Vec<Option<String>> {
        let transcript = bench.transcript();
        // V measures before its guard cuts, so these cases know no cap.
        let mut results = ToolResults::of(&transcript, u64::MAX);
        let pruning = Pruning::new(settings).unwrap();
        pruning.prune(&mut results, &transcript, window_tokens, clock, memory);
        results.rows.into_iter().map(|row| row.shown.map(|shown| shown.text)).collect()
    }

    fn counts(texts: &[Option<String>]) -> (usize, usize) {
        let soft = texts.iter().flatten().filter(|text| text.contains("[trimmed: ")).count();
        let hard = texts.iter().flatten().filter(|text| text.starts_with("[Old tool")).count();
        (soft, hard)
    }

    fn check(
        case: &str,
        bench: &Bench,
        settings: &PruningSettings,
        window: u64,
        clock: CacheClock,
        expected: (usize, usize),
    ) {
        let texts = run(bench, settings, window, clock, &mut SessionMemory::default());
        assert_eq!(counts(&texts), expected, "case {case}: (soft, hard)");
    }

    #[test]
    fn cases_82_to_91() {
        let plain = on();
        let early = CacheClock { now_ms: TTL_MS - 1, ..cold() };
        let untouched = CacheClock { last_touch_ms: None, ..cold() };
        let soft_only = PruningSettings { hard_clear: false, ..on() };
        let deny = PruningSettings { deny: vec!["READ".into()], ..on() };
        let allow = PruningSettings { allow: vec!["wri*".into()], ..on() };
        let off = PruningSettings::default();
        check("82", &rounds(6, 5_000), &plain, 5_000, cold(), (5, 0));
        check("83", &rounds(6, 5_000), &plain, 5_000, early, (0, 0));
        check("84", &rounds(6, 5_000), &plain, 5_000, untouched, (0, 0));
        check("85, at the limit", &rounds(6, 4_000), &plain, 5_000, cold(), (0, 0));
        check("85, above", &rounds(6, 4_001), &plain, 5_000, cold(), (5, 0));
        check("86", &rounds(7, 1_000), &plain, 2_000, cold(), (0, 0));
        check("87", &rounds(40, 5_000), &plain, 4_000, cold(), (0, 39));
        check("88", &rounds(40, 2_000), &plain, 10_000, cold(), (0, 31));
        check("89", &rounds(12, 5_000), &soft_only, 4_000, cold(), (11, 0));
        check("90, deny", &rounds(40, 5_000), &deny, 4_000, cold(), (0, 0));
        check("90, allow", &rounds(40, 5_000), &allow, 4_000, cold(), (0, 0));
        check("off by default", &rounds(40, 5_000), &off, 4_000, cold(), (0, 0));
    }

    #[test]
    fn case_91_without_a_user_message_nothing_is_pruned() {
        let mut bench = Bench::default();
        for _ in 0..12 {
            bench.call("1", "read", "{}").result("1", "read", &"x".repeat(5_000)).assistant("ok");
        }
        check("91", &bench, &on(), 4_000, cold(), (0, 0));
    }

    #[test]
    fn case_92_an_image_goes_even_where_the_text_is_short() {
        let mut bench = Bench::default();
        bench.user("u").call("1", "shot", "{}").result_with("1", "shot", "a page", Flags::IMAGES);
        bench.assistant("1").assistant("2").assistant("3").user(&"x".repeat(9_000));
        let texts = run(&bench, &on(), 5_000, cold(), &mut SessionMemory::default());
        assert_eq!(texts, [Some(format!("a page\n{IMAGE_REMOVED}"))]);
    }

    #[test]
    fn decisions_replay_byte_for_byte_whatever_the_mode() {
        let mut bench = rounds(6, 5_000);
        let mut memory = SessionMemory::default();
        let first = run(&bench, &on(), 5_000, cold(), &mut memory);
        let warm = CacheClock { now_ms: 1, last_touch_ms: Some(1) };
        assert_eq!(run(&bench, &on(), 5_000, warm, &mut memory), first);
        let off = PruningSettings::default();
        bench.user("more");
        assert_eq!(run(&bench, &off, 500_000, warm, &mut memory), first);
    }

    #[test]
    fn a_round_of_its_own_starts_the_clock_anew() {
        let bench = rounds(6, 5_000);
        let mut memory = SessionMemory::default();
        run(&bench, &on(), 5_000, cold(), &mut memory);
        assert_eq!(memory.pruned_at_ms, Some(TTL_MS));
        let more = rounds(9, 5_000);
        let soon = CacheClock { now_ms: TTL_MS + 1, ..cold() };
        assert_eq!(counts(&run(&more, &on(), 5_000, soon, &mut memory)).0, 5);
    }

    #[test]
    fn a_bad_glob_is_named() {
        let settings = PruningSettings { deny: vec!["a{".into()], ..on() };
        assert_eq!(Pruning::new(&settings).unwrap_err().detail["key"], "pruning.deny");
    }
}

//! Micro-compaction: replaces old tool results by one line each, without a model.

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, estimate, group_thousands};
use ctxhost_engine_api::{Flags, Role, Transcript};
use ctxhost_engine_kit::budget_states::BudgetStates;
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::cuts::trailing_frame;
use ctxhost_engine_kit::previews::ResultPreviews;
use ctxhost_engine_kit::replacement::{Replacement, ReplacementMap};
use ctxhost_engine_kit::settings::share_of;

use crate::settings::MicroSettings;

/// Layer name in plan notes.
const LAYER: &str = "micro-compaction";

const CLEARED: &str = "[old tool result cleared]";

/// The tool results of one session.
#[derive(Debug, Default)]
pub(crate) struct MicroCompaction {
    cursor: TranscriptCursor,
    results: Vec<ClearableResult>,
    cleared: BudgetStates<ClearedCount>,
    /// Number of results before the newest frame; results of the live round are never cleared.
    before_newest: usize,
}

/// The first of the results, which stay cleared, so that the prefix is stable.
#[derive(Clone, Copy, Debug, Default)]
struct ClearedCount(usize);

#[derive(Debug)]
struct ClearableResult {
    seq: u64,
    /// Tokens saved by clearing it; 0 if it is too short.
    saving_tokens: u64,
}

impl MicroCompaction {
    /// Reads new entries; starts over if the transcript is another one.
    pub(crate) fn follow(
        &mut self,
        transcript: &Transcript,
        budget_tokens: u64,
        settings: &MicroSettings,
    ) {
        let new = self.cursor.advance(transcript);
        if new.start == 0 {
            self.results.clear();
            self.cleared = BudgetStates::default();
        }
        self.cleared.select(budget_tokens);
        for entry in transcript.range(new).filter(|entry| entry.role() == Role::Tool) {
            // Images count: they are the largest results.
            let chars = entry.tokens() * CHARS_PER_TOKEN;
            let is_long = chars > settings.over_chars && !entry.has(Flags::ORPHAN);
            let whole_saving = entry.tokens().saturating_sub(estimate(CLEARED));
            let saving_tokens = if is_long { whole_saving } else { 0 };
            self.results.push(ClearableResult { seq: entry.seq(), saving_tokens });
        }
        let newest_frame = trailing_frame(transcript);
        self.before_newest = self.results.partition_point(|result| result.seq < newest_frame);
    }

    /// Clears old results if no cached prefix is lost or the window fills up. Returns whether it
    /// did.
    pub(crate) fn clear_old(
        &mut self,
        shown_tokens: u64,
        threshold_tokens: u64,
        is_cold: bool,
        settings: &MicroSettings,
    ) -> bool {
        // Results of the live round are never old, however many there are.
        let old = self.results.len().saturating_sub(settings.keep_results).min(self.before_newest);
        // A warm cache is given up only for a saving that pays for it.
        let is_pressed = shown_tokens > share_of(threshold_tokens, settings.pressure_share);
        let cleared = self.cleared.state().0;
        let newly = self.results.get(cleared..old).unwrap_or(&[]);
        let least_tokens = share_of(threshold_tokens, settings.min_saving_share);
        let is_worth_it =
            newly.iter().map(|result| result.saving_tokens).sum::<u64>() >= least_tokens;
        let clears = settings.enabled && old > cleared && (is_cold || (is_pressed && is_worth_it));
        if clears {
            self.cleared.decide().0 = old;
        }
        clears
    }

    /// All replacements: previews and cleared results.
    pub(crate) fn replacements(
        &self,
        transcript: &Transcript,
        previews: &ResultPreviews,
    ) -> ReplacementMap {
        let mut replacements = previews.rewrites().clone();
        let cleared = self.results.iter().take(self.cleared.state().0);
        for result in cleared.filter(|result| result.saving_tokens > 0) {
            let detail = format!("{} tokens cleared", group_thousands(result.saving_tokens));
            if let Some(entry) = transcript.get(result.seq) {
                replacements.insert(&entry, Replacement::from_text(CLEARED, LAYER, detail));
            }
        }
        replacements
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    const THRESHOLD: u64 = 20_000;

    fn reads(count: usize) -> TranscriptBuilder {
        let mut talk = TranscriptBuilder::new();
        talk.user("read everything");
        for number in 0..count {
            let id = format!("c{number}");
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"let it = be;\n".repeat(400));
        }
        talk
    }

    fn cleared(micro: &mut MicroCompaction, talk: &TranscriptBuilder, is_cold: bool) -> usize {
        let settings = MicroSettings::default();
        let transcript = talk.transcript();
        let mut previews = ResultPreviews::default();
        previews.follow(&transcript, 1_200);
        micro.follow(&transcript, THRESHOLD, &settings);
        let shown_tokens = micro.replacements(&transcript, &previews).shown_tokens(&transcript);
        micro.clear_old(shown_tokens, THRESHOLD, is_cold, &settings);
        let plan = micro.replacements(&transcript, &previews).plan(&transcript);
        let items = plan.project(&transcript);
        assert_eq!(items.iter().map(|item| item.tokens()).sum::<u64>(), plan.estimated_tokens);
        items.iter().filter(|item| item.text() == CLEARED).count()
    }

    #[test]
    fn a_warm_cache_is_left_alone_until_the_window_fills_up() {
        let mut micro = MicroCompaction::default();
        for (results, expected) in [(7, 0), (9, 0), (10, 5), (11, 5), (14, 5), (15, 10), (16, 10)] {
            assert_eq!(cleared(&mut micro, &reads(results), false), expected, "{results} results");
        }
    }

    #[test]
    fn a_cold_cache_clears_what_is_old_and_it_stays_cleared() {
        let mut micro = MicroCompaction::default();
        assert_eq!(cleared(&mut micro, &reads(7), true), 2);
        assert_eq!(cleared(&mut micro, &reads(8), false), 2);
        assert_eq!(cleared(&mut micro, &reads(8), true), 3);
    }

    #[test]
    fn short_results_and_the_live_round_stay() {
        let mut talk = TranscriptBuilder::new();
        let ids: Vec<String> = (0..9).map(|number| format!("c{number}")).collect();
        talk.user("go").calls(&[("short", "ls", "{}")]).result("short", "ls", "a file");
        talk.calls(&ids.iter().map(|id| (id.as_str(), "read", "{}")).collect::<Vec<_>>());
        ids.iter().for_each(|id| _ = talk.result(id, "read", &"long ".repeat(1_000)));
        assert_eq!(cleared(&mut MicroCompaction::default(), &talk, true), 0);
        talk.assistant("read them");
        assert_eq!(cleared(&mut MicroCompaction::default(), &talk, true), 4);
    }

    #[test]
    fn a_new_epoch_starts_over() {
        let mut micro = MicroCompaction::default();
        assert_eq!(cleared(&mut micro, &reads(9), true), 4);
        let mut next = TranscriptBuilder::with_epoch(1);
        next.summary("so far").user("go on");
        assert_eq!(cleared(&mut micro, &next, false), 0);
    }
}

//! Pruning: replaces old output by one line, shortens old arguments, and keeps the bytes stable.
//!
//! The model must read a file again if it needs it; the session keeps everything.

use std::collections::HashMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{Entry, Flags, Role, Transcript};
use ctxhost_engine_kit::calls::{render_result_line, shorten_arguments};
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::exchange::NewestExchange;
use ctxhost_engine_kit::replacement::{Replacement, ReplacementMap};
use ctxhost_text::truncate::clip;

use crate::settings::Settings;

/// Layer name in plan notes.
const LAYER: &str = "pruning";

/// The pruned entries of one session. Each entry is decided once.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionPruning {
    cursor: TranscriptCursor,
    /// Entries before this position are decided.
    until: u64,
    /// Calls and results among them that the newest request is about; undecided while they are.
    held: Range<u64>,
    rewrites: ReplacementMap,
}

impl SessionPruning {
    /// Follows the transcript; after a compaction decisions move with their entries.
    pub(crate) fn follow(&mut self, transcript: &Transcript) {
        // Decisions are by position, and a compaction moves positions.
        let is_another = self.cursor.advance(transcript).start == 0;
        if is_another && self.until > 0 {
            self.until = self.rewrites.rebase(transcript);
            self.held = 0..0;
        }
    }

    /// The replaced entries.
    pub(crate) fn rewrites(&self) -> &ReplacementMap {
        &self.rewrites
    }

    /// Whether the undecided results before `tail` are worth a new cached prefix.
    pub(crate) fn needs_pruning(
        &self,
        transcript: &Transcript,
        tail: u64,
        exchange: Option<&NewestExchange>,
        batch_tokens: u64,
    ) -> bool {
        let held = held_before(tail, exchange);
        let undecided = self.undecided(transcript, tail, &held);
        let results = undecided.filter(|entry| entry.role() == Role::Tool);
        results.map(|entry| entry.tokens()).sum::<u64>() >= batch_tokens.max(1)
    }

    /// Decides every entry before `tail` but the results that the newest request is about, of which
    /// those that do not fit are cut.
    pub(crate) fn prune_until(
        &mut self,
        transcript: &Transcript,
        tail: u64,
        exchange: Option<&NewestExchange>,
        settings: &Settings,
    ) {
        let held = held_before(tail, exchange);
        if tail <= self.until {
            return;
        }
        // Over the whole transcript, because the newest copy may be in the tail.
        let newest = newest_of_each(transcript, settings);
        let due: Vec<Entry<'_>> = self.undecided(transcript, tail, &held).collect();
        for entry in due.into_iter().filter(|e| !e.has(Flags::PINNED)) {
            let replacement = match entry.role() {
                Role::Tool => result(transcript, &entry, &newest, settings),
                _ => arguments(&entry, settings),
            };
            replacement
                .into_iter()
                .for_each(|replacement| self.rewrites.insert(&entry, replacement));
        }
        for entry in transcript.range(held.clone()) {
            // Decided once: the room varies from request to request.
            let cut = exchange.and_then(|exchange| exchange.cuts().get(entry.seq()));
            let cut = cut.filter(|_| held != self.held && self.rewrites.get(entry.seq()).is_none());
            cut.cloned().into_iter().for_each(|cut| self.rewrites.insert(&entry, cut));
        }
        self.held = held;
        self.until = tail;
    }

    fn undecided<'t>(
        &self,
        transcript: &'t Transcript,
        tail: u64,
        held: &Range<u64>,
    ) -> impl Iterator<Item = Entry<'t>> {
        let held = held.clone();
        let new = transcript.range(self.until..tail.max(self.until));
        let entries = transcript.range(self.held.clone()).chain(new);
        let is_new = |entry: &Entry<'_>| self.rewrites.get(entry.seq()).is_none();
        entries.filter(move |entry| !held.contains(&entry.seq()) && is_new(entry))
    }
}

/// The calls and results that the newest request is about, if they are before `tail`.
fn held_before(tail: u64, exchange: Option<&NewestExchange>) -> Range<u64> {
    let answer = exchange.map_or(0..0, NewestExchange::answer);
    // A message alone has nothing to prune.
    let is_held = answer.end <= tail && answer.end - answer.start > 1;
    if is_held { answer } else { 0..0 }
}

/// Position of the last occurrence of each long text.
fn newest_of_each<'a>(transcript: &'a Transcript, settings: &Settings) -> HashMap<&'a str, u64> {
    let results = transcript.iter().filter(|entry| entry.role() == Role::Tool);
    let long = results.filter(|entry| is_long(entry, settings));
    long.map(|entry| (entry.text(), entry.seq())).collect()
}

/// The byte length is a cheap lower bound, so most texts need no count.
fn is_long(entry: &Entry<'_>, settings: &Settings) -> bool {
    entry.text().len() as u64 > settings.prune_result_chars
        && tokens::weighted_chars(entry.text()) > settings.prune_result_chars
}

fn result(
    transcript: &Transcript,
    entry: &Entry<'_>,
    newest: &HashMap<&str, u64>,
    settings: &Settings,
) -> Option<Replacement> {
    if !is_long(entry, settings) && !entry.has(Flags::IMAGES) {
        return None;
    }
    let is_repeated = newest.get(entry.text()).is_some_and(|&seq| seq > entry.seq());
    let line = render_result_line(transcript, entry, is_repeated);
    let before_chars = group_thousands(entry.text().chars().count() as u64);
    let detail = if is_repeated {
        format!("{before_chars} chars, printed again later")
    } else {
        format!("{before_chars} → {} chars", line.chars().count())
    };
    Some(Replacement::from_text(line, LAYER, detail))
}

/// Shortens the long arguments of a call.
fn arguments(entry: &Entry<'_>, settings: &Settings) -> Option<Replacement> {
    let Settings { prune_arguments_chars, keep_argument_chars, .. } = *settings;
    let (raw, shortened) =
        shorten_arguments(entry, prune_arguments_chars, |text| clip(text, keep_argument_chars))?;
    let detail = format!("{shortened} arguments shortened");
    Some(Replacement::from_raw(raw, LAYER, detail))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn seen(pruned: &SessionPruning, transcript: &Transcript) -> Vec<String> {
        let plan = pruned.rewrites().plan(transcript);
        plan.project(transcript).iter().map(|item| item.text().into_owned()).collect()
    }

    fn reads(talk: &mut TranscriptBuilder, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let id = format!("c{number}");
            talk.calls(&[(&id, "read", &format!(r#"{{"path":"src/{number}.rs"}}"#))]);
            talk.result(&id, "read", &format!("fn part{number}() {{}}\n").repeat(40));
        }
    }

    #[test]
    fn old_results_are_lines_and_what_was_decided_stays_byte_for_byte() {
        let settings = Settings::default();
        let mut talk = TranscriptBuilder::new();
        talk.user("read");
        reads(&mut talk, 0..6);
        let (mut pruned, first) = (SessionPruning::default(), talk.transcript());
        pruned.follow(&first);
        pruned.prune_until(&first, 9, None, &settings);
        let before = seen(&pruned, &first);
        assert_eq!(before[2], "[old output left out: read src/0.rs -> ok, 40 lines, 560 chars]");
        assert!(before[10].starts_with("fn part4"));
        reads(&mut talk, 6..9);
        let later = talk.transcript();
        pruned.follow(&later);
        assert_eq!(seen(&pruned, &later)[..before.len()], before);
        let plan = pruned.rewrites().plan(&later);
        let cost: u64 = plan.project(&later).iter().map(|item| item.tokens()).sum();
        assert_eq!(cost, plan.estimated_tokens);
    }

    #[test]
    fn of_equal_results_the_newest_is_kept() {
        let mut talk = TranscriptBuilder::new();
        talk.user("go");
        for id in ["a", "b", "c"] {
            talk.calls(&[(id, "ls", "{}")]).result(id, "ls", &"same\n".repeat(100));
        }
        let transcript = talk.transcript();
        let mut pruned = SessionPruning::default();
        pruned.follow(&transcript);
        pruned.prune_until(&transcript, 5, None, &Settings::default());
        let seen = seen(&pruned, &transcript);
        assert_eq!(seen[2], "[old output left out: ls; the same was printed again later]");
        assert_eq!(seen[4], seen[2]);
        assert!(seen[6].starts_with("same\n"));
    }

    #[test]
    fn arguments_stay_json_and_calls_keep_their_ids() {
        let long = format!(r#"{{"path":"a.rs","edits":[{{"new":"{}"}}]}}"#, "x".repeat(900));
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("a", "edit", &long), ("b", "ls", "{}")]);
        talk.result("a", "edit", "ok").result("b", "ls", "ok").assistant("done");
        let transcript = talk.transcript();
        let mut pruned = SessionPruning::default();
        pruned.follow(&transcript);
        pruned.prune_until(&transcript, 4, None, &Settings::default());
        let plan = pruned.rewrites().plan(&transcript);
        let ctxhost_engine_api::Action::ReplaceRaw { raw, .. } = &plan.ops[1].action else {
            panic!("{:?}", plan.ops);
        };
        assert!(raw.len() < 500 && raw.contains('…') && raw.contains("a.rs"), "{raw}");
        assert_eq!(ctxhost_engine_api::testing::plan_fault(&plan, &transcript), None);
    }

    #[test]
    fn results_that_the_newest_request_is_about_stay_until_the_next_one() {
        let settings = Settings::default();
        let mut talk = TranscriptBuilder::new();
        talk.user("run").calls(&[("a", "check", "{}"), ("b", "check", "{}")]);
        talk.result("a", "check", &"left ".repeat(400)).result("b", "check", &"right ".repeat(400));
        talk.user("Which failed?");
        let mut pruned = SessionPruning::default();
        let mut shown = |talk: &TranscriptBuilder, budget_tokens| {
            let transcript = talk.transcript();
            let none = ReplacementMap::default();
            let exchange = NewestExchange::fit(&transcript, budget_tokens, 1, &none);
            pruned.follow(&transcript);
            pruned.prune_until(&transcript, talk.len() - 1, exchange.as_ref(), &settings);
            seen(&pruned, &transcript)
        };
        let first = shown(&talk, 4_000);
        assert!(first[2].starts_with("left left"));
        talk.calls(&[("c", "check", "{}")]).result("c", "check", "ok");
        assert_eq!(shown(&talk, 1_800)[..5], first, "another budget changes nothing");
        talk.assistant("The right one.").user("Why?");
        assert!(shown(&talk, 4_000)[2].starts_with("[old output left out"));
    }

    #[test]
    fn decisions_follow_their_entries_into_a_new_epoch() {
        let mut talk = TranscriptBuilder::new();
        talk.user("read");
        reads(&mut talk, 0..6);
        let before = talk.transcript();
        let mut pruned = SessionPruning::default();
        pruned.follow(&before);
        pruned.prune_until(&before, 9, None, &Settings::default());
        let line = seen(&pruned, &before)[8].clone();
        let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(1);
        for entry in before.range(7..13) {
            log.append(ctxhost_engine_api::transcript::log::NewEntry {
                id: entry.id().into(),
                parent_id: String::new(),
                timestamp_ms: 0,
                role: entry.role(),
                kind: entry.kind(),
                flags: Flags::default(),
                tokens: entry.tokens(),
                text: entry.text().into(),
                raw: entry.raw().into(),
                calls: entry.tool_calls().iter().map(|call| call.id.to_string()).collect(),
                answers: entry.tool_result().map(|result| result.call_id.to_string()),
            });
        }
        let after = log.snapshot();
        pruned.follow(&after);
        assert_eq!(seen(&pruned, &after)[1], line);
        assert!(!pruned.needs_pruning(&after, 2, None, 1));
        assert!(pruned.needs_pruning(&after, 4, None, 1));
    }
}

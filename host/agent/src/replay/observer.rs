//! Collects the measurements of a replay: turns, layers, dropped entries and the occupancy curve.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, Message, PlanNote, Transcript};

use super::identifiers::IdentifierMeter;
use super::prefix::PrefixMeter;
use super::report::{
    CompactionRow, CurvePoint, DroppedRow, EXCERPT_CHARS, EngineRun, ReplayTotals, ReplayedEngine,
    TurnRow,
};
use ctxhost_context::{CompactionOutcome, CompactionVerdict, EMERGENCY_TRIM, Prompt};
use ctxhost_invariants::InvariantVerifier;
use ctxhost_retention::KnownSecrets;

/// Characters of a summary in a report.
const SUMMARY_CHARS: usize = 400;

/// Collects the measurements of one run.
#[derive(Default)]
pub(super) struct ReplayObserver {
    budget_tokens: u64,
    /// The minimum size after a compaction (the room invariant).
    floor_tokens: u64,
    fallback_reasons: BTreeMap<String, u64>,
    turns: Vec<TurnRow>,
    compactions: Vec<CompactionRow>,
    dropped: Vec<DroppedRow>,
    curve: Vec<CurvePoint>,
    prefix: PrefixMeter,
    identifiers: IdentifierMeter,
    verifier: InvariantVerifier,
    /// Reported entries, by id and layer: only the first occurrence counts.
    reported: HashSet<(String, String)>,
    /// The ranges that the previous request omitted.
    omitted: Vec<OmittedRange>,
    /// The secrets of the user's messages. Reports are printed and passed on.
    secrets: KnownSecrets,
    times_us: Vec<u64>,
    rejected: u64,
    failed: u64,
}

/// A range that a request omitted.
struct OmittedRange {
    epoch: u64,
    range: Range<u64>,
    layer: String,
}

impl ReplayObserver {
    pub(super) fn new(budget_tokens: u64, floor_tokens: u64) -> Self {
        ReplayObserver { budget_tokens, floor_tokens, ..ReplayObserver::default() }
    }

    /// The number of requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.curve.len() as u64
    }

    /// Records an entry of the recording; `answered` is the prompt that it answers.
    pub(super) fn record_entry(&mut self, entry: &Entry<'_>, answered: Option<&Prompt>) {
        if let Some(prompt) = answered {
            self.identifiers.record_answer(&prompt.items(), entry);
        }
        self.identifiers.record_entry(entry);
        if entry.is_user_message() {
            self.start_turn(entry.text());
        }
    }

    /// Starts a turn with a message of the user.
    fn start_turn(&mut self, prompt: &str) {
        self.secrets.learn(prompt);
        let turn = self.turns.len() as u64 + 1;
        self.turns.push(TurnRow { turn, prompt: self.first_line(prompt), ..TurnRow::default() });
    }

    /// Records a prepared prompt.
    pub(super) fn record_prompt(&mut self, prompt: &Prompt) {
        if self.turns.is_empty() {
            // A recording may start with an assistant message.
            self.start_turn("");
        }
        for outcome in &prompt.compactions {
            self.record_compaction(outcome);
        }
        if let Some(why) = &prompt.fallback {
            *self.fallback_reasons.entry(why.clone()).or_default() += 1;
            // An emergency trim says that nothing fitted, which is a result.
            self.failed += u64::from(prompt.engine != EMERGENCY_TRIM);
        }
        let layers = self.layers(prompt);
        let items = prompt.items();
        let items_budget = self.budget_tokens.saturating_sub(prompt.system_addition_tokens());
        let violations = self.verifier.verify(&prompt.view, &items, items_budget);
        for violation in &violations {
            tracing::error!(%violation, "a finished request violates an invariant");
        }
        self.prefix.request(prompt.system_addition(), &items);
        let tokens = prompt.checked.tokens;
        let took_us = u64::try_from(prompt.took.as_micros()).unwrap_or(u64::MAX);
        self.times_us.push(took_us);
        let applied = |outcome: &&CompactionOutcome| outcome.verdict == CompactionVerdict::Applied;
        let compactions = prompt.compactions.iter().filter(applied).count() as u64;
        self.curve.push(CurvePoint {
            request: self.curve.len() as u64 + 1,
            turn: self.turns.len() as u64,
            tokens,
            compacted: compactions > 0,
        });
        let budget = self.budget_tokens;
        let Some(row) = self.turns.last_mut() else { return };
        row.requests += 1;
        row.peak_tokens = row.peak_tokens.max(tokens);
        row.peak_percent = percent(row.peak_tokens, budget);
        row.end_tokens = tokens;
        row.compactions += compactions;
        row.fallbacks += u64::from(prompt.fallback.is_some());
        row.repairs += prompt.checked.repairs.len() as u64;
        row.violations += violations.len() as u64;
        row.engine_us += took_us;
        if !row.shaped_by.contains(&prompt.engine) {
            row.shaped_by.push(prompt.engine.clone());
        }
        add(&mut row.layers, &layers);
    }

    /// The beginning of a text for the report.
    fn first_line(&self, text: &str) -> String {
        self.secrets.first_line(text, EXCERPT_CHARS)
    }

    /// The results of the run.
    pub(super) fn finish(self, engine: ReplayedEngine, quarantine: String) -> EngineRun {
        let (needed, kept) = self.identifiers.counts();
        let mut totals = ReplayTotals {
            requests: self.curve.len() as u64,
            peak_tokens: self.curve.iter().map(|point| point.tokens).max().unwrap_or(0),
            compactions: self.turns.iter().map(|turn| turn.compactions).sum(),
            rejected: self.rejected,
            below_floor: self.compactions.iter().filter(|row| row.is_below_floor).count() as u64,
            fallbacks: self.turns.iter().map(|turn| turn.fallbacks).sum(),
            failed: self.failed,
            repairs: self.turns.iter().map(|turn| turn.repairs).sum(),
            violations: self.turns.iter().map(|turn| turn.violations).sum(),
            sent_tokens: self.curve.iter().map(|point| point.tokens).sum(),
            stable_prefix_percent: self.prefix.percent(),
            identifiers_needed: needed,
            identifiers_kept: kept,
            identifiers_kept_percent: (needed > 0).then(|| percent(kept, needed)),
            quarantine,
            engine_us: self.times_us.iter().sum(),
            ..ReplayTotals::default()
        };
        totals.peak_percent = percent(totals.peak_tokens, self.budget_tokens);
        self.turns.iter().for_each(|turn| add(&mut totals.layers, &turn.layers));
        let mut times_us = self.times_us;
        times_us.sort_unstable();
        totals.engine_p50_us = quantile(&times_us, 50);
        totals.engine_p99_us = quantile(&times_us, 99);
        EngineRun {
            engine,
            turns: self.turns,
            compactions: self.compactions,
            dropped: self.dropped,
            curve: self.curve,
            fallback_reasons: self.fallback_reasons,
            totals,
        }
    }

    fn record_compaction(&mut self, outcome: &CompactionOutcome) {
        let turn = self.turns.len() as u64;
        let (applied, reason) = match &outcome.verdict {
            CompactionVerdict::Applied => (true, outcome.engine_notes.clone()),
            CompactionVerdict::Rejected { reason } | CompactionVerdict::NotTried { reason } => {
                (false, reason.clone())
            }
        };
        self.rejected += u64::from(!applied);
        for entry in &outcome.folded {
            self.dropped.push(DroppedRow {
                turn,
                id: entry.id.clone(),
                role: entry.role.name().into(),
                layer: "compaction".into(),
                detail: "folded into the summary".into(),
                before_tokens: entry.tokens,
                after_tokens: 0,
                excerpt: self.first_line(&entry.excerpt),
            });
        }
        self.compactions.push(CompactionRow {
            turn,
            request: self.curve.len() as u64 + 1,
            trigger: outcome.trigger.name().into(),
            engine: outcome.engine.clone(),
            applied,
            reason: self.secrets.redact(&reason),
            before_tokens: outcome.before_tokens,
            after_tokens: outcome.after_tokens,
            room_used_percent: percent(outcome.after_tokens, self.budget_tokens),
            // A session smaller than the floor cannot reach it.
            is_below_floor: applied
                && outcome.after_tokens < self.floor_tokens.min(outcome.before_tokens),
            folded_entries: outcome.folded.len() as u64,
            retention: outcome.retention,
            summary: self.secrets.excerpt(&outcome.summary, SUMMARY_CHARS),
            engine_us: u64::try_from(outcome.took.as_micros()).unwrap_or(u64::MAX),
        });
        if let Some(turn) = self.turns.last_mut().filter(|_| applied) {
            *turn.layers.entry("compaction".into()).or_default() += 1;
        }
    }

    /// Reports what each layer changed for the first time; returns counts per layer.
    fn layers(&mut self, prompt: &Prompt) -> BTreeMap<String, u64> {
        let mut layers = BTreeMap::new();
        let left_out = PlanNote::new(prompt.engine.clone(), "left out");
        let plan = &prompt.checked.plan;
        let mut gone = Vec::new();
        let mut next = 0;
        for op in &plan.ops {
            let range = op.action.range();
            let own = PlanNote::new(prompt.engine.clone(), "changed");
            let note = op.note.as_ref().unwrap_or(&own);
            match &op.action {
                Action::Keep(_) => {}
                Action::ReplaceText { seq, text } => {
                    let after = tokens::estimate(text);
                    self.report(&prompt.view, *seq, note, after, &mut layers);
                }
                Action::ReplaceRaw { seq, raw } => {
                    let after = tokens::message(&Message::parse(raw, ""));
                    self.report(&prompt.view, *seq, note, after, &mut layers);
                }
                // The range that it covers is reported as a gap of the kept ranges.
                Action::Insert { .. } => continue,
                Action::Drop(range) => {
                    gone.push(self.report_omitted(&prompt.view, range.clone(), note, &mut layers));
                }
                _ => continue,
            }
            let gap = next..range.start;
            gone.push(self.report_omitted(&prompt.view, gap, &left_out, &mut layers));
            next = range.end.max(next);
        }
        let rest = next..prompt.view.len() as u64;
        gone.push(self.report_omitted(&prompt.view, rest, &left_out, &mut layers));
        self.omitted = gone;
        layers
    }

    /// Reports an omitted range. The part that the previous request omitted as well is skipped, which keeps the cost
    /// linear.
    fn report_omitted(
        &mut self,
        view: &Transcript,
        range: Range<u64>,
        note: &PlanNote,
        layers: &mut BTreeMap<String, u64>,
    ) -> OmittedRange {
        let epoch = view.epoch();
        let before = self.omitted.iter().find(|gone| {
            gone.epoch == epoch && gone.range.start == range.start && gone.layer == note.layer
        });
        let reported_until = before.map_or(range.start, |gone| gone.range.end);
        for seq in reported_until..range.end {
            self.report(view, seq, note, 0, layers);
        }
        OmittedRange { epoch, range, layer: note.layer.clone() }
    }

    fn report(
        &mut self,
        view: &Transcript,
        seq: u64,
        note: &PlanNote,
        after_tokens: u64,
        layers: &mut BTreeMap<String, u64>,
    ) {
        let Some(entry) = view.get(seq) else { return };
        if !self.reported.insert((entry.id().to_owned(), note.layer.clone())) {
            return;
        }
        *layers.entry(note.layer.clone()).or_default() += 1;
        self.dropped.push(DroppedRow {
            turn: self.turns.len() as u64,
            id: entry.id().into(),
            role: entry.role().name().into(),
            layer: note.layer.clone(),
            detail: self.secrets.redact(&note.detail),
            before_tokens: entry.tokens(),
            after_tokens,
            excerpt: self.first_line(entry.text()),
        });
    }
}

fn add(sums: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (layer, count) in more {
        *sums.entry(layer.clone()).or_default() += count;
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    // One decimal, so that reports are stable.
    if whole == 0 { 0.0 } else { (part as f64 * 1000.0 / whole as f64).round() / 10.0 }
}

/// A percentile of sorted values.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_excerpt_shows_a_secret_of_the_user() {
        let mut observer = ReplayObserver::new(1_000, 0);
        observer.start_turn("Deploy key is password=hunter2secretX9 for staging");
        observer.start_turn("hunter2secretX9 is refused");
        let prompts: Vec<&str> = observer.turns.iter().map(|row| row.prompt.as_str()).collect();
        let [first, second] = [
            "Deploy key is password=[redacted:credential] for staging",
            "[redacted:credential] is refused",
        ];
        assert_eq!(prompts, [first, second]);
    }
}

//! Replays a recorded session: whether the identifiers and files that the next step uses are still
//! shown.

use std::collections::{BTreeSet, HashMap, HashSet};

use ctxhost_config::Config;
use ctxhost_context::{ContextError, LiveSession};
use ctxhost_engine::{EngineSpec, HostClock};
use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use ctxhost_engine_api::{Entry, EntryKind, PlanItem, Role, Transcript};
use ctxhost_retention::texts_of;
use ctxhost_session::{Record, RecordKind, Session};

use crate::baselines::{BaselineEntry, Bm25Index};
use crate::context::{CachePrices, RunMeter, SeenContext, percent, run_options};
use crate::identifiers;
use crate::report::{MeasuredBudgets, RecordingRow};
use crate::{Baseline, BenchSubject, QualityError};

/// Argument names with which tools pass a path.
const PATHS: [&str; 3] = ["path", "file_path", "filePath"];

/// Measures a subject on a recording at each budget. Baselines that need a question take the newest
/// user message.
///
/// # Errors
///
/// [`QualityError`] if an engine fails.
pub async fn measure_recording(
    file: &str,
    recorded: &Session,
    subject: &BenchSubject,
    budgets: &[u64],
    prices: CachePrices,
    config: &Config,
    mut on_progress: impl FnMut(u64),
) -> Result<MeasuredBudgets<RecordingRow>, QualityError> {
    let turns = needed_by_turn(recorded);
    let history_tokens = recorded_log(recorded).snapshot().total_tokens();
    let mut measured = MeasuredBudgets::new();
    for budget_tokens in budgets {
        let replay = RecordingReplay { recorded, subject, budget_tokens: *budget_tokens, config };
        // Once is enough to see whether the subject is deterministic; a replay takes a while.
        let is_repeated = measured.rows.is_empty();
        let row = async {
            let (mut meter, mut steps) = (RunMeter::new(prices), StepMeter::default());
            replay
                .run(&mut meter, |entry, seen| {
                    on_progress(u64::from(seen.is_some()));
                    steps.record_step(entry, seen, &turns);
                })
                .await?;
            if is_repeated {
                // A meter of its own: the second run must not count.
                let mut again = RunMeter::default();
                replay.run(&mut again, |_, _| ()).await?;
                meter.compare_repeated(0, &again);
            }
            Ok(RecordingRow {
                file: file.to_owned(),
                subject: subject.name().to_owned(),
                is_baseline: subject.is_baseline(),
                budget_tokens: *budget_tokens,
                run: meter.totals(history_tokens),
                ..steps.row()
            })
        };
        measured.add(file, *budget_tokens, row.await)?;
    }
    Ok(measured)
}

/// The identifiers that each turn uses, by the id of its user message.
type NeededByTurn = HashMap<String, BTreeSet<String>>;

fn needed_by_turn(recorded: &Session) -> NeededByTurn {
    let log = recorded_log(recorded);
    let view = log.snapshot();
    let mut needed = NeededByTurn::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut turn: Option<(String, HashSet<String>)> = None;
    for entry in view.iter() {
        let names = identifiers::in_entry(&entry);
        if entry.is_user_message() {
            // Identifiers known before this turn that its prompt does not repeat.
            let known = seen.iter().filter(|name| !names.contains(*name)).cloned().collect();
            turn = Some((entry.id().to_owned(), known));
        } else if entry.role() == Role::Assistant
            && let Some((id, known)) = &turn
        {
            let used = names.iter().filter(|name| known.contains(*name)).cloned();
            needed.entry(id.clone()).or_default().extend(used);
        }
        // After the entry was counted: its own names are not known before it.
        seen.extend(names);
    }
    needed
}

/// The whole history, without the recording's own compactions.
fn recorded_log(recorded: &Session) -> ctxhost_engine_api::transcript::log::TranscriptLog {
    let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(0);
    for entry in recorded
        .branch()
        .into_iter()
        .filter(|record| is_history(record))
        .filter_map(Record::to_entry)
    {
        log.append(entry);
    }
    log
}

fn is_history(record: &Record) -> bool {
    // The engine under test decides what to compact, not the recording.
    !matches!(record.kind(), RecordKind::Compaction)
}

fn is_answer(record: &Record) -> bool {
    record
        .to_entry()
        .is_some_and(|entry| entry.role == Role::Assistant && entry.kind == EntryKind::Message)
}

/// Shapes every request of a recording again.
pub(crate) struct RecordingReplay<'a> {
    pub(crate) recorded: &'a Session,
    pub(crate) subject: &'a BenchSubject,
    pub(crate) budget_tokens: u64,
    pub(crate) config: &'a Config,
}

impl RecordingReplay<'_> {
    /// Calls `on_entry` with each entry and, if it answers a request, with that request.
    ///
    /// # Errors
    ///
    /// [`QualityError`] if an engine fails.
    pub(crate) async fn run(
        &self,
        meter: &mut RunMeter,
        on_entry: impl FnMut(&Entry<'_>, Option<&SeenContext>),
    ) -> Result<(), QualityError> {
        match self.subject {
            BenchSubject::Baseline(baseline) => self.run_baseline(*baseline, meter, on_entry),
            BenchSubject::Engine { name, specs, .. } => self
                .run_engine(specs, meter, on_entry)
                .await
                .map_err(|source| QualityError::Engine { subject: name.clone(), source }),
        }
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.recorded.branch().into_iter().filter(|record| is_history(record))
    }

    async fn run_engine(
        &self,
        specs: &[EngineSpec],
        meter: &mut RunMeter,
        mut on_entry: impl FnMut(&Entry<'_>, Option<&SeenContext>),
    ) -> Result<(), ContextError> {
        let options = run_options(self.config, self.subject, self.budget_tokens);
        let clock = HostClock::recorded();
        clock.set(self.recorded.branch().first().map_or(0, |record| record.timestamp_ms()));
        let session = Session::in_memory(self.recorded.header().clone());
        let mut context = options.open(session, specs, clock.clone())?;
        context.ingest().await?;
        let mut history_tokens = 0;
        for record in self.records() {
            clock.set(record.timestamp_ms());
            let mut seen = None;
            if is_answer(record) {
                let prompt = context.prepare(&options.target).await?;
                seen = Some(meter.request(&prompt, history_tokens, self.budget_tokens));
            }
            context.session_mut().append_record(record)?;
            let view = context.session_mut().view();
            // Not every record becomes an entry: settings and labels do not.
            if let Some(entry) = view.last().filter(|entry| entry.id() == record.id()) {
                history_tokens += entry.tokens();
                on_entry(&entry, seen.as_ref());
            }
        }
        Ok(())
    }

    fn run_baseline(
        &self,
        baseline: Baseline,
        meter: &mut RunMeter,
        mut on_entry: impl FnMut(&Entry<'_>, Option<&SeenContext>),
    ) -> Result<(), QualityError> {
        let mut live = LiveSession::new(Session::in_memory(self.recorded.header().clone()));
        let mut selection = RecordingSelection::default();
        for record in self.records() {
            let mut seen = None;
            if is_answer(record) {
                let view = live.view();
                let shown = selection.select(baseline, &view, self.budget_tokens);
                meter.observe(&shown, view.total_tokens(), self.budget_tokens);
                seen = Some(shown);
            }
            live.append_record(record)?;
            let view = live.view();
            if let Some(entry) = view.last().filter(|entry| entry.id() == record.id()) {
                selection.push(&entry, baseline);
                on_entry(&entry, seen.as_ref());
            }
        }
        Ok(())
    }
}

/// What a baseline knows of a growing recording.
#[derive(Default)]
struct RecordingSelection {
    history: Vec<BaselineEntry>,
    index: Bm25Index,
    /// The newest user message.
    prompt: Option<(usize, String)>,
}

impl RecordingSelection {
    fn push(&mut self, entry: &Entry<'_>, baseline: Baseline) {
        if entry.is_user_message() {
            self.prompt = Some((self.history.len(), entry.text().to_owned()));
        }
        if baseline.is_ranked() {
            self.index.push(&texts_of(&PlanItem::Kept(*entry)).join("\n"));
        }
        let entry = BaselineEntry { conversation: String::new(), tokens: entry.tokens() };
        self.history.push(entry);
    }

    fn select(&self, baseline: Baseline, view: &Transcript, budget_tokens: u64) -> SeenContext {
        let (at, query) = self.prompt.as_ref().map_or((None, ""), |(at, text)| (Some(*at), text));
        let scores = if baseline.is_ranked() { self.index.scores(query) } else { Vec::new() };
        let chosen = baseline.choose(&self.history, at, &scores, budget_tokens);
        SeenContext::of_entries(view, &chosen)
    }
}

/// Counters of one run.
#[derive(Default)]
struct StepMeter {
    seen_names: HashSet<String>,
    derivable: u64,
    derived: u64,
    needed_turns: u64,
    needed_share: f64,
    /// The entry that shows the newest whole content of each file: the result of a read, or a write.
    contents: HashMap<String, String>,
    /// The paths of reads without a result yet; no path for other calls.
    open_reads: OpenCalls<Option<String>>,
    edits: u64,
    rereads: u64,
    /// The user message that no request has been shaped for yet.
    pending_prompt: Option<String>,
}

impl StepMeter {
    fn row(self) -> RecordingRow {
        RecordingRow {
            derivable_percent: percent(self.derived as f64, self.derivable as f64),
            derivable: self.derivable,
            needed_percent: percent(self.needed_share, self.needed_turns as f64),
            needed_turns: self.needed_turns,
            reread_percent: (self.edits > 0)
                .then(|| percent(self.rereads as f64, self.edits as f64)),
            edits: self.edits,
            ..RecordingRow::default()
        }
    }

    /// Counts an entry; `seen` is the request that it answers.
    fn record_step(&mut self, entry: &Entry<'_>, seen: Option<&SeenContext>, turns: &NeededByTurn) {
        if let Some(seen) = seen {
            let upper = seen.all.to_uppercase();
            let is_shown = |name: &String| identifiers::is_shown(name, &seen.all, &upper);
            let used = identifiers::in_calls(entry);
            let known: Vec<&String> =
                used.iter().filter(|name| self.seen_names.contains(*name)).collect();
            self.derivable += known.len() as u64;
            self.derived += known.into_iter().filter(|name| is_shown(name)).count() as u64;
            if let Some(needed) = self
                .pending_prompt
                .take()
                .and_then(|id| turns.get(&id))
                .filter(|names| !names.is_empty())
            {
                let shown = needed.iter().filter(|name| is_shown(name)).count();
                self.needed_turns += 1;
                self.needed_share += shown as f64 / needed.len() as f64;
            }
            self.count_changes(entry, seen);
        }
        if entry.is_user_message() {
            self.pending_prompt = Some(entry.id().to_owned());
        }
        self.note_contents(entry);
        self.seen_names.extend(identifiers::in_entry(entry));
    }

    /// An edit of a file needs the content that was read or written before.
    fn count_changes(&mut self, entry: &Entry<'_>, seen: &SeenContext) {
        for call in entry.tool_calls() {
            let Some(path) =
                // Tool names differ between agents (Edit, edit_file, str_replace_editor).
                call.string_argument(&PATHS).filter(|_| call.name.to_lowercase().contains("edit"))
            else {
                continue;
            };
            let Some(content) = self.contents.get(&path) else { continue };
            self.edits += 1;
            self.rereads += u64::from(!seen.whole.contains(content));
        }
    }

    fn note_contents(&mut self, entry: &Entry<'_>) {
        let mut reads = Vec::new();
        for call in entry.tool_calls() {
            let path = call.string_argument(&PATHS);
            let name = call.name.to_lowercase();
            let is_read = name.contains("read");
            match &path {
                Some(path) if !is_read && name.contains("write") => {
                    self.contents.insert(path.clone(), entry.id().to_owned());
                }
                _ => {}
            }
            reads.push((call.id.into_owned(), path.filter(|_| is_read)));
        }
        self.open_reads.open(reads);
        if let Some(result) = entry.tool_result()
            && let Some(path) = self.open_reads.take(&result.call_id).flatten()
        {
            self.contents.insert(path, entry.id().to_owned());
        }
    }
}

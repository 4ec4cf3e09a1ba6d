//! Replays a recorded session: whether the identifiers and files that the next step uses are still
//! shown.

use std::collections::{BTreeSet, HashMap, HashSet};

use ctxhost_config::Config;
use ctxhost_context::{Context, ContextError, LiveSession};
use ctxhost_engine::{EngineSpec, HostClock};
use ctxhost_engine_api::{Entry, EntryKind, Plan, Role, Transcript};
use ctxhost_session::{Record, RecordKind, Session};

use crate::context::{RunMeter, SeenContext, percent, run_options};
use crate::identifiers;
use crate::report::RecordingRow;
use crate::{Baseline, BenchSubject, QualityError};

/// Argument names with which tools pass a path.
const PATHS: [&str; 3] = ["path", "file_path", "filePath"];

/// Measures an engine, or the newest entries that fit, on a recording at each budget. Other
/// baselines need a question and yield no rows.
///
/// # Errors
///
/// [`QualityError`] if an engine fails.
pub async fn measure_recording(
    file: &str,
    recorded: &Session,
    subject: &BenchSubject,
    budgets: &[u64],
    config: &Config,
    mut on_progress: impl FnMut(u64),
) -> Result<Vec<RecordingRow>, QualityError> {
    let specs = match subject {
        BenchSubject::Engine { specs, .. } => Some(specs.as_slice()),
        BenchSubject::Baseline(Baseline::Tail) => None,
        // The others rank turns by a question, which a recording does not have.
        BenchSubject::Baseline(_) => return Ok(Vec::new()),
    };
    let name = subject.name();
    let turns = needed_by_turn(recorded);
    let mut rows = Vec::new();
    for budget_tokens in budgets {
        let run = run(recorded, &turns, specs, *budget_tokens, config, &mut on_progress).await;
        let row =
            run.map_err(|source| QualityError::Engine { subject: name.to_owned(), source })?;
        rows.push(RecordingRow { file: file.to_owned(), subject: name.to_owned(), ..row });
    }
    Ok(rows)
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

/// Counters of one run.
#[derive(Default)]
struct StepMeter {
    seen_names: HashSet<String>,
    derivable: u64,
    derived: u64,
    needed_turns: u64,
    needed_share: f64,
    /// The newest read of each file: the id of its result, once it arrived.
    reads: HashMap<String, Option<String>>,
    open_reads: HashMap<String, String>,
    changes: u64,
    rereads: u64,
    /// The user message that no request has been shaped for yet.
    pending_prompt: Option<String>,
}

/// Replays the recording. Without an engine each request shows the newest entries that fit.
async fn run(
    recorded: &Session,
    turns: &NeededByTurn,
    specs: Option<&[EngineSpec]>,
    budget_tokens: u64,
    config: &Config,
    on_progress: &mut impl FnMut(u64),
) -> Result<RecordingRow, ContextError> {
    let options = run_options(config, budget_tokens);
    let clock = HostClock::recorded();
    clock.set(recorded.branch().first().map_or(0, |record| record.timestamp_ms()));
    let session = || Session::in_memory(recorded.header().clone());
    let opened = specs.map(|specs| options.open(session(), specs, clock.clone()));
    let mut context = opened.transpose()?;
    // The baseline has no engine and therefore no context.
    let mut live = LiveSession::new(session());
    if let Some(context) = &mut context {
        context.ingest().await?;
    }
    let (mut run, mut steps) = (RunMeter::default(), StepMeter::default());
    for record in recorded.branch().into_iter().filter(|record| is_history(record)) {
        let now_ms = record.timestamp_ms();
        clock.set(now_ms);
        let mut seen = None;
        if is_answer(record) {
            seen = Some(match &mut context {
                Some(context) => {
                    run.request(&context.prepare(&options.target).await?, budget_tokens)
                }
                None => newest_entries(&live.view(), budget_tokens),
            });
            on_progress(1);
        }
        let live = context.as_mut().map_or(&mut live, Context::session_mut);
        live.append_record(record)?;
        let view = live.view();
        if let Some(entry) = view.last().filter(|entry| entry.id() == record.id()) {
            steps.record_step(&entry, seen.as_ref(), turns);
        }
    }
    Ok(steps.row(budget_tokens, run))
}

fn newest_entries(view: &Transcript, budget_tokens: u64) -> SeenContext {
    let mut plan = Plan::default();
    plan.keep(view.tail_within(budget_tokens)..view.len() as u64);
    SeenContext::new(&plan.project(view))
}

impl StepMeter {
    fn row(self, budget_tokens: u64, run: RunMeter) -> RecordingRow {
        RecordingRow {
            budget_tokens,
            derivable_percent: percent(self.derived as f64, self.derivable as f64),
            derivable: self.derivable,
            needed_percent: percent(self.needed_share, self.needed_turns as f64),
            needed_turns: self.needed_turns,
            reread_percent: percent(self.rereads as f64, self.changes as f64),
            run: run.totals(),
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
        self.note_reads(entry);
        self.seen_names.extend(identifiers::in_entry(entry));
    }

    /// An edit of a file needs the content that was read before.
    fn count_changes(&mut self, entry: &Entry<'_>, seen: &SeenContext) {
        for call in entry.tool_calls() {
            let Some(path) =
                // Tool names differ between agents (Edit, edit_file, str_replace_editor).
                call.string_argument(&PATHS).filter(|_| call.name.to_lowercase().contains("edit"))
            else {
                continue;
            };
            let Some(Some(result)) = self.reads.get(&path) else { continue };
            self.changes += 1;
            self.rereads += u64::from(!seen.whole.contains(result));
        }
    }

    fn note_reads(&mut self, entry: &Entry<'_>) {
        for call in entry.tool_calls() {
            if let Some(path) =
                call.string_argument(&PATHS).filter(|_| call.name.to_lowercase().contains("read"))
            {
                self.open_reads.insert(call.id.to_string(), path);
            }
        }
        if let Some(result) = entry.tool_result()
            && let Some(path) = self.open_reads.remove(result.call_id.as_ref())
        {
            self.reads.insert(path, Some(entry.id().to_owned()));
        }
    }
}

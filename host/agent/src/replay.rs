//! Replays a recorded session through an engine: prepares every request that the recording made.
//!
//! A request is prepared before each assistant message. The recording's own compactions are skipped, since another engine
//! made them. The clock is the recording's; nothing is sent, and the recorded file is not written.

mod identifiers;
mod observer;
mod prefix;
pub mod report;

use futures_util::future::LocalBoxFuture;

use ctxhost_engine_api::{EntryKind, Role};

use self::observer::ReplayObserver;
use self::report::{EngineRun, ReplayedEngine};
use super::offline::OfflineOptions;
use ctxhost_context::{Context, ContextError, Prompt};
use ctxhost_engine::{ActiveEngine, EngineSpec, HostClock};
use ctxhost_session::{Record, RecordKind, Session};

/// The progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayProgress {
    /// Prepared requests.
    pub requests: u64,
    /// All requests.
    pub total: u64,
}

/// Replays a session through an engine or a chain.
///
/// # Errors
///
/// [`ContextError`]: the engine could not be opened, it failed with `on_engine_error = "fail"`, or the pinned entries do
/// not fit the window.
pub fn replay<'a>(
    recorded: &'a Session,
    engines: &'a (impl AsRef<[EngineSpec]> + ?Sized),
    options: &'a OfflineOptions,
    on_progress: impl FnMut(ReplayProgress) + 'a,
) -> LocalBoxFuture<'a, Result<EngineRun, ContextError>> {
    replay_through(recorded, engines.as_ref(), options, Box::new(on_progress))
}

/// Boxed and without type parameters: compiled once, with this crate's optimisation level, not in each caller.
fn replay_through<'a>(
    recorded: &'a Session,
    engines: &'a [EngineSpec],
    options: &'a OfflineOptions,
    mut on_progress: Box<dyn FnMut(ReplayProgress) + 'a>,
) -> LocalBoxFuture<'a, Result<EngineRun, ContextError>> {
    Box::pin(async move {
        let (mut context, clock) = open_replay(recorded, engines, options).await?;
        let branch: Vec<&Record> =
            recorded.branch().into_iter().filter(|r| is_history(r)).collect();
        let total = branch.iter().filter(|record| is_answer(record)).count() as u64;
        let budget_tokens = options.budget_tokens();
        let floor_tokens = options.context.invariants.floor_tokens(budget_tokens);
        let mut observer = ReplayObserver::new(budget_tokens, floor_tokens);
        for record in branch {
            let now_ms = record.timestamp_ms();
            clock.set(now_ms);
            let mut answered = None;
            if is_answer(record) {
                let prompt = context.prepare(&options.target).await?;
                observer.record_prompt(&prompt);
                on_progress(ReplayProgress { requests: observer.requests(), total });
                answered = Some(prompt);
            }
            context.session_mut().append_record(record)?;
            let view = context.view();
            if let Some(entry) = view.last().filter(|entry| entry.id() == record.id()) {
                observer.record_entry(&entry, answered.as_ref());
            }
        }
        let engine = context.engine();
        let quarantine = engine.quarantine_record().map(|record| record.reason).unwrap_or_default();
        Ok(observer.finish(engine_facts(engine, engines), quarantine))
    })
}

/// Replays a session up to a record, and returns the prompt that the engine makes for the request after it.
///
/// # Errors
///
/// As [`replay`], and if there is no such record.
pub fn replay_prompt<'a>(
    recorded: &'a Session,
    until: &'a str,
    engines: &'a (impl AsRef<[EngineSpec]> + ?Sized),
    options: &'a OfflineOptions,
) -> LocalBoxFuture<'a, Result<Prompt, ContextError>> {
    let engines = engines.as_ref();
    Box::pin(async move {
        let (mut context, clock) = open_replay(recorded, engines, options).await?;
        for record in recorded.branch_to(until)?.into_iter().filter(|record| is_history(record)) {
            clock.set(record.timestamp_ms());
            if is_answer(record) {
                context.prepare(&options.target).await?;
            }
            context.session_mut().append_record(record)?;
        }
        context.prepare(&options.target).await
    })
}

/// Opens a context for a replay, and the clock of the recording.
async fn open_replay(
    recorded: &Session,
    engines: &[EngineSpec],
    options: &OfflineOptions,
) -> Result<(Context, HostClock), ContextError> {
    let clock = HostClock::recorded();
    // Before the engine opens: it may read the time when it is created.
    clock.set(recorded.branch().first().map_or(0, |record| record.timestamp_ms()));
    // In memory, so that compactions do not touch the recorded file.
    let session = Session::in_memory(recorded.header().clone());
    let mut context = options.open(session, engines, clock.clone())?;
    // As for a live session: the engine is bootstrapped before its first request.
    context.ingest().await?;
    Ok((context, clock))
}

/// Counts the context-bearing entries, turns and requests of a session.
pub fn count_history(recorded: &Session) -> (u64, u64, u64) {
    let branch = recorded.branch();
    let history = branch.iter().filter(|record| is_history(record));
    let entries: Vec<_> = history.filter_map(|record| record.to_entry()).collect();
    let is_message = |kind, role, entry: &&ctxhost_engine_api::transcript::log::NewEntry| {
        entry.kind == kind && entry.role == role
    };
    let turns = entries.iter().filter(|entry| is_message(EntryKind::Message, Role::User, entry));
    let requests =
        entries.iter().filter(|entry| is_message(EntryKind::Message, Role::Assistant, entry));
    (entries.len() as u64, turns.count() as u64, requests.count() as u64)
}

/// Whether a record is part of the conversation, not of a recorded compaction.
fn is_history(record: &Record) -> bool {
    !matches!(record.kind(), RecordKind::Compaction)
}

/// Whether a record is the answer to a request.
fn is_answer(record: &Record) -> bool {
    let entry = record.to_entry();
    entry.is_some_and(|entry| entry.role == Role::Assistant && entry.kind == EntryKind::Message)
}

fn engine_facts(engine: &ActiveEngine, engines: &[EngineSpec]) -> ReplayedEngine {
    let (id, effective) = (engine.configured_id(), engine.serving_info());
    // The version of a fallback engine would be misleading here.
    let version = if effective.id == id { effective.version } else { String::new() };
    let mut sources: Vec<String> = engines.iter().map(|engine| engine.source.to_string()).collect();
    // A chain of bundled engines has one source.
    sources.dedup();
    ReplayedEngine { id, version, source: sources.join(", ") }
}

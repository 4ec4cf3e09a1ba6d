//! Measures one session: what its compactions lost, and what other engines would have kept.

use std::cmp::{Ordering, Reverse};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::agent_folders::{is_database_name, line_numbers};
use super::super::engine_open::registry_error;
use super::super::error::CliError;
use super::super::render::format::{group_digits, one_line};
use super::super::run_setup;
use super::find::{SessionToRead, is_opencode_database};
use super::stub::is_stub;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_agent::replay;
use ctxhost_config::Config;
use ctxhost_context::{Budget, ContextError};
use ctxhost_engine_api::PlanItem;
use ctxhost_history::{SessionLoss, has_time, history_before, measure_loss};
use ctxhost_import::{ImportError, ImportOpenError, ImportedSession};
use ctxhost_retention::{Category, CategoryShare, Shares, measure_retention};

/// The share of the smallest context at which the agent compacted that an engine gets, in percent. With all of
/// it, an engine would not have to leave anything out.
const BUDGET_PERCENT: u64 = 90;
/// Entries of a session that is replayed: about a minute.
const MAX_REPLAYED_ENTRIES: u64 = 20_000;

/// One session.
#[derive(Debug, Serialize)]
pub(in super::super) struct SessionMeasure {
    /// What to write on a command line: a short id, or the path.
    pub(in super::super) name: String,
    /// The same with all bytes of a path.
    #[serde(skip)]
    pub(in super::super) argument: PathBuf,
    /// The file.
    pub(in super::super) path: String,
    /// The agent that wrote it.
    pub(in super::super) agent: String,
    /// Its working folder; empty if unknown.
    pub(in super::super) cwd: String,
    /// The time of its newest message, in milliseconds since 1970.
    pub(in super::super) newest_ms: i64,
    /// Entries of the conversation, turns and requests.
    pub(in super::super) entries: u64,
    /// Lines that could not be read.
    pub(in super::super) unreadable_lines: usize,
    /// What its compactions lost; `None` without one.
    pub(in super::super) loss: Option<SessionLoss>,
    /// What engines would have kept.
    pub(in super::super) engines: Vec<EngineComparison>,
}

/// What an engine would have kept of the same history.
#[derive(Debug, Serialize)]
pub(in super::super) struct EngineComparison {
    /// The engine.
    pub(in super::super) engine: String,
    /// Its budget, in estimated tokens.
    pub(in super::super) budget_tokens: u64,
    /// The size of its prompt.
    pub(in super::super) prompt_tokens: u64,
    /// What its prompt still states; `None` if it was not measured.
    pub(in super::super) retention: Option<Shares>,
    /// Why it was not measured.
    pub(in super::super) reason: String,
}

/// What became of a file.
pub(super) enum MeasuredFile {
    Session(Box<SessionMeasure>),
    /// It is not a session.
    LeftOut(UnreadSession),
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// Why a file counts as no session.
pub(super) enum UnreadSession {
    /// It has no known format.
    Unknown,
    /// It has no message.
    Empty,
    /// It is a database that cannot be read.
    Database(String),
}

impl SessionMeasure {
    /// The greatest loss first: requests, then paths and identifiers, then the newest session.
    pub(super) fn compare_loss(&self, other: &SessionMeasure) -> Ordering {
        let key = |measured: &SessionMeasure| {
            let shares = measured.loss.as_ref().map(|loss| loss.retention).unwrap_or_default();
            let lost = |share: CategoryShare| share.total.saturating_sub(share.kept);
            let requests = Reverse(lost(shares.asks));
            (requests, Reverse(lost(names(&shares))), Reverse(measured.newest_ms))
        };
        key(self).cmp(&key(other)).then_with(|| self.path.cmp(&other.path))
    }
}

/// The paths and identifiers together.
pub(in super::super) fn names(shares: &Shares) -> CategoryShare {
    let (paths, ids) = (shares.of(Category::Paths), shares.of(Category::Ids));
    CategoryShare { kept: paths.kept + ids.kept, total: paths.total + ids.total }
}

/// Measures a session. An unreadable file is no error of the command, an unknown engine is.
pub(super) fn measure_session(
    session: &SessionToRead,
    config: &Config,
    engines: &[String],
) -> Result<MeasuredFile, CliError> {
    let recorded = match ctxhost_import::open_file(&session.path) {
        Ok(recorded) => recorded,
        Err(error) => return Ok(unread(&session.path, &error)),
    };
    let (entries, _, _) = replay::count_history(&recorded.session);
    if entries == 0 {
        return Ok(MeasuredFile::LeftOut(UnreadSession::Empty));
    }
    let loss = measure_loss(&recorded.session, line_numbers(&recorded))?;
    let engines = match &loss {
        Some(loss) => compare_engines(&recorded, loss, entries, config, engines)?,
        None => Vec::new(),
    };
    // Sessions of OpenClaw and ctxhost have Pi's format, so the folder tells more.
    let agent = session.agent.unwrap_or(recorded.format.as_str());
    Ok(MeasuredFile::Session(Box::new(SessionMeasure {
        name: session.name.clone(),
        argument: session.argument.clone(),
        path: session.path.display().to_string(),
        agent: agent.to_owned(),
        cwd: recorded.session.header().cwd().to_owned(),
        newest_ms: newest_ms(&recorded).unwrap_or(session.changed_ms),
        entries,
        unreadable_lines: recorded.problems.len(),
        loss,
        engines,
    })))
}

/// What a file is that cannot be opened as a session.
fn unread(path: &Path, error: &ImportOpenError) -> MeasuredFile {
    match error {
        ImportOpenError::Recording {
            source: ImportError::Empty | ImportError::NoMessage { .. },
            ..
        } => MeasuredFile::LeftOut(UnreadSession::Empty),
        ImportOpenError::Recording { .. } if is_stub(path) => {
            MeasuredFile::LeftOut(UnreadSession::Empty)
        }
        ImportOpenError::Recording { .. } => MeasuredFile::LeftOut(UnreadSession::Unknown),
        ImportOpenError::Unreadable { source, .. } if is_database_name(path) => {
            let reason = one_line(&error.to_string());
            // One of another program has no session that opencode could print.
            let is_other = source.kind() == ErrorKind::InvalidData;
            MeasuredFile::LeftOut(UnreadSession::Database(
                if is_opencode_database(path) && !is_other {
                    format!("{reason} (`opencode export ID` prints a session of it for --path)")
                } else {
                    reason
                },
            ))
        }
        ImportOpenError::Unreadable { source, .. } => MeasuredFile::Unreadable(source.to_string()),
        ImportOpenError::LongLine { line, .. } => {
            MeasuredFile::Unreadable(format!("line {}: {}", line.line, line.message()))
        }
        ImportOpenError::Session(error) => MeasuredFile::Unreadable(error.to_string()),
    }
}

/// The time of the newest record; `None` for a recording without times.
fn newest_ms(recorded: &ImportedSession) -> Option<i64> {
    let records = recorded.session.branch().into_iter().filter(|record| has_time(record));
    records.map(|record| record.timestamp_ms()).max()
}

/// Why no prompt of an engine fits.
fn describe_misfit(needed_tokens: u64, budget_tokens: u64) -> String {
    format!(
        "the newest messages alone need {} tokens, more than its budget of {} ({BUDGET_PERCENT}% of the \
         smallest context at which the agent compacted)",
        group_digits(needed_tokens),
        group_digits(budget_tokens)
    )
}

/// The budget of an engine: a share of the smallest context at which the agent compacted, since that is the most
/// that it worked with. An agent clears results at any size, so this counts only where it did nothing else.
fn compared_budget(loss: &SessionLoss) -> u64 {
    let (pruned, compacted): (Vec<_>, Vec<_>) =
        loss.compactions.iter().partition(|compaction| compaction.is_prune());
    let counted = if compacted.is_empty() { pruned } else { compacted };
    let smallest = counted.into_iter().map(|compaction| compaction.before_tokens).min();
    smallest.unwrap_or_default() * BUDGET_PERCENT / 100
}

fn compare_engines(
    recorded: &ImportedSession,
    loss: &SessionLoss,
    entries: u64,
    config: &Config,
    engines: &[String],
) -> Result<Vec<EngineComparison>, CliError> {
    let budget_tokens = compared_budget(loss);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let history = history_before(&recorded.session, &loss.newest)?;
    let registry = EngineRegistry::load(config);
    let mut compared = Vec::new();
    for name in engines {
        let mut comparison = EngineComparison {
            engine: name.clone(),
            budget_tokens,
            prompt_tokens: 0,
            retention: None,
            reason: String::new(),
        };
        let specs = registry.chain(config, name);
        let specs = specs.map_err(|error| registry_error(config, name, error))?;
        // A replay asks the engine for one prompt only, but the engine reads all entries before it.
        if entries > MAX_REPLAYED_ENTRIES {
            comparison.reason = format!("more than {MAX_REPLAYED_ENTRIES} entries");
            compared.push(comparison);
            continue;
        }
        let model = recorded.session.model();
        let (mut options, window) =
            run_setup::run_options(config, &registry, model, None, recorded.window_tokens)?;
        // Nothing is sent, whatever the config says about models.
        options.engines.completer = None;
        options.engines.embedder = None;
        options.engines.must_open = true;
        let budget = Budget { tokens: budget_tokens, reserve_tokens: 0, spare_tokens: 0 };
        options.target.budget = Some(budget);
        let prompt = replay::replay_prompt(&recorded.session, &loss.newest, &specs, &options);
        match runtime.block_on(prompt) {
            Ok(prompt) if prompt.fallback.is_none() => {
                let items = prompt.items();
                let retained = measure_retention(&history, &items);
                comparison.prompt_tokens = items.iter().map(PlanItem::tokens).sum();
                comparison.retention = Some(retained.shares);
            }
            Ok(prompt) => comparison.reason = prompt.fallback.unwrap_or_default(),
            // An engine that cannot be opened fails for each session.
            Err(error @ ContextError::Slot(_)) => {
                return Err(run_setup::run_error(config, name, &window, error));
            }
            // Its advice is for a request to a model, and here the budget is that of the agent.
            Err(ContextError::CannotFit(error)) => {
                comparison.reason = describe_misfit(error.needed_tokens, budget_tokens);
            }
            Err(error) => comparison.reason = error.to_string(),
        }
        compared.push(comparison);
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_history::CompactionLoss;

    fn loss(compactions: &[(&str, u64)]) -> SessionLoss {
        let compactions = compactions.iter().map(|(trigger, before_tokens)| CompactionLoss {
            number: 1,
            trigger: (*trigger).to_owned(),
            time: String::new(),
            before_tokens: *before_tokens,
            after_tokens: 0,
            retention: Shares::default(),
            rebilled_tokens: None,
        });
        SessionLoss {
            count: compactions.len(),
            compactions: compactions.collect(),
            retention: Shares::default(),
            lost: Vec::new(),
            newest: String::new(),
        }
    }

    #[test]
    fn cleared_results_do_not_set_the_budget() {
        assert_eq!(
            compared_budget(&loss(&[("prune", 100), ("auto", 20_000), ("", 10_000)])),
            9_000
        );
        assert_eq!(compared_budget(&loss(&[("prune", 100), ("prune", 200)])), 90);
    }

    #[test]
    fn what_cannot_be_read_is_no_unknown_format() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let error = ctxhost_import::open_file(&path).unwrap_err();
            unread(&path, &error)
        };
        let truncated = write("s.jsonl.zst", b"\x28\xB5\x2F\xFD\x04");
        assert!(matches!(&truncated, MeasuredFile::Unreadable(reason) if !reason.is_empty()));
        let title = br#"{"type":"summary","summary":"Mend it","leafUuid":"u"}"#;
        assert!(matches!(write("title.jsonl", title), MeasuredFile::LeftOut(UnreadSession::Empty)));
        assert!(matches!(
            write("log.jsonl", b"{\"level\":\"info\"}"),
            MeasuredFile::LeftOut(UnreadSession::Unknown)
        ));
        assert!(matches!(
            write("opencode.db", b"no database"),
            MeasuredFile::LeftOut(UnreadSession::Database(_))
        ));
    }

    #[test]
    fn the_database_of_another_program_has_no_session_to_export() {
        let hint = |kind| {
            let path = Path::new("opencode.db").to_owned();
            let source = std::io::Error::new(kind, "another program");
            match unread(&path, &ImportOpenError::Unreadable { path: path.clone(), source }) {
                MeasuredFile::LeftOut(UnreadSession::Database(reason)) => {
                    reason.contains("opencode export")
                }
                _ => panic!("it is a database"),
            }
        };
        assert!(hint(ErrorKind::Other) && !hint(ErrorKind::InvalidData));
    }
}

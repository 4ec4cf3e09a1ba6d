//! `ctxhost compact`: a session compacted by hand.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::chat::blob_dirs;
use super::clock::now_ms;
use super::engine_open::registry_error;
use super::error::CliError;
use super::output::Output;
use super::render::format::format_count;
use super::render::retention;
use super::run_setup;
use super::window::parse_tokens;
use ctxhost_agent::compact_session;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, SessionDirectory};
use ctxhost_engine::{OnEngineError, state_folder};
use ctxhost_session::{CompactionRecovery, Session};

/// Compact a Pi session: its history is folded into what the engine makes of it.
///
/// One entry is appended to the session and nothing is taken away; Pi opens the result. If the engine
/// makes no progress or anything fails, the file is as it was.
#[derive(Debug, clap::Args)]
pub(super) struct CompactArgs {
    /// The session.
    file: PathBuf,
    /// Work it out and show it, but write nothing.
    #[arg(long)]
    dry_run: bool,
    /// The context window to compact for, such as 200k; by default the window of its model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// The engine, by id or by the path of its library, or several in a row, such as mask+legacy; by
    /// default the one of the slot.
    #[arg(long, value_name = "ID|PATH")]
    engine: Option<String>,
    /// What the summary should look after.
    #[arg(long, value_name = "TEXT")]
    focus: Option<String>,
}

impl CompactArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let config = run_setup::find_config(config_path, &self.file, output)?;
        let mut session = self.open()?;
        if let CompactionRecovery::Applied { id } = session.recover_compaction() {
            // What was asked for before the crash is there; a summary of a summary is nobody's wish.
            output.print(&describe_recovered(&session, &id))?;
            return Ok(ExitCode::SUCCESS);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcomes = runtime.block_on(async {
            let roster = EngineRegistry::load(&config);
            let name = run_setup::named_engine_or_slot(self.engine.as_deref(), &config, output)?;
            let specs = roster.chain(&config, &name);
            let mut specs = specs.map_err(|error| registry_error(&config, &name, error))?;
            let (mut options, window) =
                run_setup::run_options(&config, &roster, session.model(), self.window, None)?;
            run_setup::add_workspace_rules(&session, &mut specs, &mut options, output);
            if !self.dry_run {
                options.engines.failure_log = Some(Arc::new(failure_log(&config, &state_folder())));
            }
            if self.engine.is_some() {
                // Who names an engine wants that one or none in their session.
                options.engines.on_error = OnEngineError::Fail;
            }
            options.context.sessions = Arc::new(SessionDirectory::new(blob_dirs()));
            let focus = self.focus.as_deref();
            let compaction = compact_session(session, &specs, &options, focus, now_ms()).await;
            compaction.map_err(|error| run_setup::run_error(&config, &name, &window, error))
        })?;
        let Some(last) = outcomes.last() else { return Ok(ExitCode::FAILURE) };
        output.print(&self.describe_outcome(last))?;
        let applied = last.verdict == CompactionVerdict::Applied;
        Ok(if applied { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// A dry run works on a copy in memory.
    fn open(&self) -> Result<Session, CliError> {
        if !self.dry_run {
            return Ok(Session::open(&self.file)?);
        }
        Ok(Session::read(&self.file)?.into_memory())
    }

    fn describe_outcome(&self, outcome: &CompactionOutcome) -> String {
        let CompactionOutcome { engine, before_tokens, after_tokens, folded, summary, .. } =
            outcome;
        let written = if self.dry_run { "dry run - nothing written\n" } else { "" };
        match &outcome.verdict {
            CompactionVerdict::Applied => format!(
                "{written}{engine}: {before_tokens} -> {after_tokens} tokens, {} folded{}{}\n\n\
                 {summary}\n",
                format_count(folded.len() as u64, "entry"),
                fallback_line(outcome),
                retention_line(outcome),
            ),
            CompactionVerdict::Rejected { reason } | CompactionVerdict::NotTried { reason } => {
                format!("{written}{engine}: not compacted: {reason}\n")
            }
        }
    }
}

/// A compaction of an earlier run that had been worked out when it was cut short.
fn describe_recovered(session: &Session, id: &str) -> String {
    let tokens = session.live(0).total_tokens();
    format!(
        "compaction {id} of an earlier run, which was cut short, is in the session now: {tokens} tokens\n\
         run the command again to compact further\n"
    )
}

/// Says so where another engine than the configured one made it.
fn fallback_line(outcome: &CompactionOutcome) -> String {
    let why = outcome.fallback.as_ref();
    why.map(|why| format!("\nit stood in for another engine: {why}")).unwrap_or_default()
}

/// How much of what was said is still said.
fn retention_line(outcome: &CompactionOutcome) -> String {
    let shares = outcome.retention.as_ref();
    shares.map(|shares| format!("\nkept: {}", retention::category_line(shares))).unwrap_or_default()
}

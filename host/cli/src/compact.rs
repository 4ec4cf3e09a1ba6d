//! `ctxhost compact`: compacts a session on command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::chat::blob_dirs;
use super::clock::now_ms;
use super::engine_open::registry_error;
use super::error::CliError;
use super::migration::note_migration;
use super::output::Output;
use super::render::diff::summary_lines;
use super::render::format::{format_count, group_digits};
use super::render::retention;
use super::run_setup;
use super::session_file::{open_to_change, read_session};
use super::store::find_session;
use super::window::parse_tokens;
use ctxhost_agent::compact_session;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, SessionDirectory};
use ctxhost_engine::{OnEngineError, state_folder};
use ctxhost_import::recorded_window;
use ctxhost_retention::KnownSecrets;
use ctxhost_session::{CompactionRecovery, Session};

/// Compact a Pi session with an engine.
///
/// Appends one entry and removes nothing; Pi can open the result. If the engine makes no progress
/// or fails, the file is not changed.
#[derive(Debug, clap::Args)]
pub(super) struct CompactArgs {
    /// Session file.
    file: PathBuf,
    /// Show the result, but write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Show the whole summary.
    #[arg(long)]
    all: bool,
    /// Context window to compact for, such as 200k; by default the window of the session's model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Engine, by id or library path, or a chain such as mask+legacy; by default the active engine.
    #[arg(long, value_name = "ID|PATH")]
    engine: Option<String>,
    /// What the summary should focus on.
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
        let mut session = self.open(config_path)?;
        let migration = session.pending_migration();
        if let CompactionRecovery::Applied { id } = session.recover_compaction() {
            // The interrupted compaction is what the user asked for; compacting again would
            // summarise its summary.
            output.print(&describe_recovered(&session, &id))?;
            note_migration(migration.as_ref(), output);
            return Ok(ExitCode::SUCCESS);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcomes = runtime.block_on(async {
            let registry = EngineRegistry::load(&config);
            let name = run_setup::named_engine_or_slot(self.engine.as_deref(), &config, output)?;
            let specs = registry.chain(&config, &name);
            let mut specs = specs.map_err(|error| registry_error(&config, &name, error))?;
            let recorded = recorded_window(&session);
            let (mut options, window) =
                run_setup::run_options(&config, &registry, session.model(), self.window, recorded)?;
            run_setup::add_workspace_rules(&session, &mut specs, &mut options, output);
            // A dry run must not change the quarantine of an engine either.
            if !self.dry_run {
                options.engines.failure_log = Some(Arc::new(failure_log(&config, &state_folder())));
            }
            if self.engine.is_some() {
                // The user named this engine, so no other one may compact the session.
                options.engines.on_error = OnEngineError::Fail;
            }
            options.context.sessions = Arc::new(SessionDirectory::new(blob_dirs()));
            let focus = self.focus.as_deref();
            let compaction = compact_session(session, &specs, &options, focus, now_ms()).await;
            compaction.map_err(|error| run_setup::run_error(&config, &name, &window, error))
        })?;
        // Several attempts are possible; the last one tells how the session ends.
        let Some(last) = outcomes.last() else { return Ok(ExitCode::FAILURE) };
        output.print(&self.describe_outcome(last))?;
        note_migration(migration.as_ref(), output);
        let applied = last.verdict == CompactionVerdict::Applied;
        Ok(if applied { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Opens the session; a dry run uses a copy in memory.
    fn open(&self, config_path: Option<&Path>) -> Result<Session, CliError> {
        let file = find_session(&self.file, config_path)?;
        if !self.dry_run {
            return open_to_change(&self.file, &file);
        }
        // In memory, so that a dry run also works on a session that is open in a chat.
        Ok(read_session(&self.file, &file)?.into_memory())
    }

    fn describe_outcome(&self, outcome: &CompactionOutcome) -> String {
        let CompactionOutcome { engine, before_tokens, after_tokens, folded, summary, .. } =
            outcome;
        let written = if self.dry_run { "dry run - nothing written\n" } else { "" };
        match &outcome.verdict {
            CompactionVerdict::Applied => format!(
                "{written}{engine}: {} → {} tokens, {} folded{}{}\n\n{}",
                group_digits(*before_tokens),
                group_digits(*after_tokens),
                format_count(folded.len() as u64, "entry"),
                fallback_line(outcome),
                retention_line(outcome),
                // Printed and passed on; the session has it in full.
                summary_lines(&KnownSecrets::default().redact(summary), self.all),
            ),
            CompactionVerdict::Rejected { reason } | CompactionVerdict::NotTried { reason } => {
                format!("{written}{engine}: not compacted: {reason}\n")
            }
        }
    }
}

/// Reports a compaction that an earlier run computed and did not write.
fn describe_recovered(session: &Session, id: &str) -> String {
    let tokens = format_count(session.live(0).total_tokens(), "token");
    format!(
        "recovered compaction {id} of an interrupted run: {tokens} now\n\
         run the command again to compact further\n"
    )
}

/// The reason why another engine than the configured one compacted.
fn fallback_line(outcome: &CompactionOutcome) -> String {
    let why = outcome.fallback.as_ref();
    why.map(|why| format!("\nmade by the fallback engine: {why}")).unwrap_or_default()
}

fn retention_line(outcome: &CompactionOutcome) -> String {
    let shares = outcome.retention.as_ref();
    shares
        .map(|shares| format!("\nretention: {}", retention::category_line(shares)))
        .unwrap_or_default()
}

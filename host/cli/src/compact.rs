//! `ctxhost compact`: a session compacted by hand.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::chat::media_home;
use super::failure::Failure;
use super::moment::now_ms;
use super::opening::unlisted;
use super::output::Output;
use super::render::phrase::counted;
use super::render::survival;
use super::setup;
use super::window::parse_tokens;
use ctxhost_context::{CompactionOutcome, KnownSessions, Verdict};
use ctxhost_engine::{OnEngineError, state_folder};
use ctxhost_runtime::compact_session;
use ctxhost_runtime::engine_options::failure_book;
use ctxhost_runtime::roster::Roster;
use ctxhost_session::{Recovered, Session};

/// Compact a Pi session: its history is folded into what the engine makes of it.
///
/// One entry is appended to the session and nothing is taken away; Pi opens the result. If the engine
/// makes no progress or anything fails, the file is as it was.
#[derive(Debug, clap::Args)]
pub(super) struct Compact {
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

impl Compact {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let config = setup::find_config(config_path, &self.file, output)?;
        let mut session = self.open()?;
        if let Recovered::Redone { id } = session.recover_compaction() {
            // What was asked for before the crash is there; a summary of a summary is nobody's wish.
            output.print(&redone(&session, &id))?;
            return Ok(ExitCode::SUCCESS);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcomes = runtime.block_on(async {
            let roster = Roster::of(&config);
            let name = setup::engine_or_slot(self.engine.as_deref(), &config, output)?;
            let specs = roster.stack(&config, &name);
            let mut specs = specs.map_err(|error| unlisted(&config, &name, error))?;
            let (mut options, window) =
                setup::of(&config, &roster, session.model(), self.window, None)?;
            setup::give_rules(&session, &mut specs, &mut options, output);
            if !self.dry_run {
                options.engines.failures = Some(Arc::new(failure_book(&config, &state_folder())));
            }
            if self.engine.is_some() {
                // Who names an engine wants that one or none in their session.
                options.engines.on_error = OnEngineError::Fail;
            }
            options.context.sessions = Arc::new(KnownSessions::new(media_home()));
            let focus = self.focus.as_deref();
            let compaction = compact_session(session, &specs, &options, focus, now_ms()).await;
            compaction.map_err(|error| setup::broken_off(&config, &name, &window, error))
        })?;
        let Some(last) = outcomes.last() else { return Ok(ExitCode::FAILURE) };
        output.print(&self.told(last))?;
        let applied = last.verdict == Verdict::Applied;
        Ok(if applied { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// A dry run works on a copy in memory.
    fn open(&self) -> Result<Session, Failure> {
        if !self.dry_run {
            return Ok(Session::open(&self.file)?);
        }
        Ok(Session::read(&self.file)?.in_memory_alone())
    }

    fn told(&self, outcome: &CompactionOutcome) -> String {
        let CompactionOutcome { engine, before_tokens, after_tokens, folded, summary, .. } =
            outcome;
        let written = if self.dry_run { "dry run - nothing written\n" } else { "" };
        match &outcome.verdict {
            Verdict::Applied => format!(
                "{written}{engine}: {before_tokens} -> {after_tokens} tokens, {} folded{}{}\n\n\
                 {summary}\n",
                counted(folded.len() as u64, "entry"),
                stood_in(outcome),
                kept(outcome),
            ),
            Verdict::Rejected { reason } | Verdict::NotTried { reason } => {
                format!("{written}{engine}: not compacted: {reason}\n")
            }
        }
    }
}

/// A compaction of an earlier run that had been worked out when it was cut short.
fn redone(session: &Session, id: &str) -> String {
    let tokens = session.live(0).total_tokens();
    format!(
        "compaction {id} of an earlier run, which was cut short, is in the session now: {tokens} tokens\n\
         run the command again to compact further\n"
    )
}

/// Says so where another engine than the configured one made it.
fn stood_in(outcome: &CompactionOutcome) -> String {
    let why = outcome.fallback.as_ref();
    why.map(|why| format!("\nit stood in for another engine: {why}")).unwrap_or_default()
}

/// How much of what was said is still said.
fn kept(outcome: &CompactionOutcome) -> String {
    let shares = outcome.survival.as_ref();
    shares.map(|shares| format!("\nkept: {}", survival::line(shares))).unwrap_or_default()
}

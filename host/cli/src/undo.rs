//! `ctxhost undo`: undoes a compaction.

use std::path::Path;
use std::process::ExitCode;

use super::error::CliError;
use super::migration::note_migration;
use super::output::Output;
use super::render::format::format_count;
use super::session_arg::{SessionArg, parse_compaction};
use super::session_file::open_to_change;
use super::store::find_session;
use ctxhost_history::{self as history, BranchCompaction, TranscriptMeasure, UndoReport};

/// Undo a compaction.
///
/// The model sees the folded entries again, and everything added since. Nothing is removed from the
/// session. Newer compactions are undone as well, since they built on this one. Prints both
/// digests; they are equal if nothing was added since.
#[derive(Debug, clap::Args)]
pub(super) struct UndoArgs {
    /// Session, as `session.jsonl` or `session.jsonl@2`.
    #[arg(value_name = "SESSION[@N]")]
    session: SessionArg,
    /// Compaction of the branch: @1 is the first.
    #[arg(value_name = "@N", value_parser = parse_compaction, conflicts_with = "last")]
    number: Option<i64>,
    /// Undo the last one. The default.
    #[arg(long)]
    last: bool,
}

impl UndoArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        // `SESSION@2` and `SESSION @2` are both accepted, but not at once.
        let number = match (self.number, self.session.number) {
            (Some(_), Some(_)) => {
                return Err(CliError::user("the compaction is given twice; give SESSION@N or @N"));
            }
            (_, Some(_)) if self.last => {
                return Err(CliError::user("give the compaction or --last, not both"));
            }
            (number, of_session) => number.or(of_session),
        };
        let path = &self.session.path;
        let file = find_session(path, config_path)?;
        let mut session = open_to_change(path, &file)?;
        let migration = session.pending_migration();
        let undone = history::undo_compaction(&mut session, number)?;
        output.print(&describe_undo(&undone))?;
        note_migration(migration.as_ref(), output);
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_undo(undone: &UndoReport) -> String {
    let UndoReport { compaction, newer, before, now } = undone;
    let taken: String = [compaction].into_iter().chain(newer).map(compaction_line).collect();
    let note = if before.digest == now.digest {
        "equal: nothing was added since".to_owned()
    } else {
        format!("includes {} added since", now.entries.saturating_sub(before.entries))
    };
    format!(
        "{taken}before it  {}\nnow        {}\n           {note}\n\
         the next turn compacts again if this does not fit its window\n",
        describe_measure(before),
        describe_measure(now),
    )
}

fn compaction_line(compaction: &BranchCompaction) -> String {
    format!("undone     {compaction}\n")
}

fn describe_measure(measure: &TranscriptMeasure) -> String {
    let TranscriptMeasure { digest, entries, tokens } = measure;
    let entries = format_count(*entries as u64, "entry");
    format!("sha256 {digest}, {entries}, {}", format_count(*tokens, "token"))
}

//! `ctxhost restore`: brings compacted turns back into the context.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::clock::now_ms;
use super::error::CliError;
use super::migration::note_migration;
use super::output::Output;
use super::render::format::format_count;
use super::session_arg::shell_quote;
use super::session_file::{open_to_change, read_session};
use super::store::find_session;
use ctxhost_history::{RestoreRequest, RestoredMessage, TurnRange, build_restoration};

/// Bring compacted turns back into the context.
///
/// Appends them as one message of quoted text, with tool calls and results described in words.
/// Entries that are still in the context are skipped. `ctxhost sessions show` numbers the turns.
#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// Session file, or an id that `ctxhost doctor` prints.
    session: PathBuf,
    /// Turns, such as 3 or 3..5. Results longer than 2,000 characters are truncated.
    #[arg(long, value_name = "A..B", required_unless_present = "entry", conflicts_with = "entry")]
    turn: Option<TurnRange>,
    /// One entry by its id, not truncated.
    #[arg(long, value_name = "ID")]
    entry: Option<String>,
    /// Show what would be restored, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl RestoreArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let shown_as = shell_quote(&self.session);
        let path = find_session(&self.session, config_path)?;
        let wanted = match (self.turn, self.entry) {
            (Some(range), _) => RestoreRequest::Turns(range),
            (None, Some(id)) => RestoreRequest::Entry(id),
            (None, None) => {
                return Err(CliError::user("give --turn or --entry"));
            }
        };
        if self.dry_run {
            // Read without a lock, so that a dry run works while a chat has the session open.
            let found =
                build_restoration(&read_session(&self.session, &path)?, &wanted, &shown_as)?;
            output.print(&format!(
                "dry run - nothing written\n{}\n{}\n",
                describe_restoration(&found, "would restore"),
                found.text
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut session = open_to_change(&self.session, &path)?;
        let migration = session.pending_migration();
        let found = build_restoration(&session, &wanted, &shown_as)?;
        session.append_at(found.to_body()?, now_ms())?;
        output.print(&format!("{}\n", describe_restoration(&found, "restored")))?;
        note_migration(migration.as_ref(), output);
        Ok(ExitCode::SUCCESS)
    }
}

/// `verb` says whether it has happened.
fn describe_restoration(found: &RestoredMessage, verb: &str) -> String {
    let RestoredMessage { entries, live, tokens, .. } = found;
    let live = match live {
        0 => String::new(),
        live => format!("; {live} skipped, still in context"),
    };
    let entries = format_count(entries.len() as u64, "entry");
    format!("{verb} {entries}, {}{live}", format_count(*tokens, "token"))
}

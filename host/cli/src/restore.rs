//! `ctxhost restore`: turns that were compacted away, back in context.

use std::path::PathBuf;
use std::process::ExitCode;

use super::clock::now_ms;
use super::error::CliError;
use super::output::Output;
use super::render::format::format_count;
use super::session_arg::shell_quote;
use ctxhost_history::{RestoreRequest, RestoredMessage, TurnRange, build_restoration};
use ctxhost_session::Session;

/// Bring turns back into the context after they were compacted away.
///
/// They are appended as one message of quoted text, with calls and results told in words. What is still
/// in context is not told twice. `ctxhost sessions show` counts the turns.
#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// The session.
    session: PathBuf,
    /// The turns, such as 3 or 3..5. Results of more than 2,000 characters are cut.
    #[arg(long, value_name = "A..B", required_unless_present = "entry", conflicts_with = "entry")]
    turn: Option<TurnRange>,
    /// One entry by its id, uncut.
    #[arg(long, value_name = "ID")]
    entry: Option<String>,
    /// Show what would be brought back, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl RestoreArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let shown_as = shell_quote(&self.session);
        let wanted = match (self.turn, self.entry) {
            (Some(range), _) => RestoreRequest::Turns(range),
            (None, Some(id)) => RestoreRequest::Entry(id),
            (None, None) => {
                return Err(CliError::user("name turns with --turn or an entry with --entry"));
            }
        };
        if self.dry_run {
            let found = build_restoration(&Session::read(&self.session)?, &wanted, &shown_as)?;
            output.print(&format!(
                "dry run - nothing written\n{}\n{}\n",
                describe_restoration(&found),
                found.text
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut session = Session::open(&self.session)?;
        let found = build_restoration(&session, &wanted, &shown_as)?;
        session.append_at(found.to_body()?, now_ms())?;
        output.print(&format!("{}\n", describe_restoration(&found)))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_restoration(found: &RestoredMessage) -> String {
    let RestoredMessage { entries, live, tokens, .. } = found;
    let live = match live {
        0 => String::new(),
        live => format!("; {live} still in context, not told twice"),
    };
    let entries = format_count(entries.len() as u64, "entry");
    format!("{entries} brought back, {}{live}", format_count(*tokens, "token"))
}

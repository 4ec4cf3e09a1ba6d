//! `ctxhost restore`: turns that were compacted away, back in context.

use std::path::PathBuf;
use std::process::ExitCode;

use super::failure::Failure;
use super::moment::now_ms;
use super::named::for_shell;
use super::output::Output;
use super::render::phrase::counted;
use ctxhost_history::{Restoration, TurnRange, Wanted, restoration};
use ctxhost_session::Session;

/// Bring turns back into the context after they were compacted away.
///
/// They are appended as one message of quoted text, with calls and results told in words. What is still
/// in context is not told twice. `ctxhost sessions show` counts the turns.
#[derive(Debug, clap::Args)]
pub(super) struct Restore {
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

impl Restore {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let shown_as = for_shell(&self.session);
        let wanted = match (self.turn, self.entry) {
            (Some(range), _) => Wanted::Turns(range),
            (None, Some(id)) => Wanted::Entry(id),
            (None, None) => {
                return Err(Failure::caller("name turns with --turn or an entry with --entry"));
            }
        };
        if self.dry_run {
            let found = restoration(&Session::read(&self.session)?, &wanted, &shown_as)?;
            output.print(&format!(
                "dry run - nothing written\n{}\n{}\n",
                told(&found),
                found.text
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut session = Session::open(&self.session)?;
        let found = restoration(&session, &wanted, &shown_as)?;
        session.append_at(found.body()?, now_ms())?;
        output.print(&format!("{}\n", told(&found)))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn told(found: &Restoration) -> String {
    let Restoration { entries, live, tokens, .. } = found;
    let live = match live {
        0 => String::new(),
        live => format!("; {live} still in context, not told twice"),
    };
    let entries = counted(entries.len() as u64, "entry");
    format!("{entries} brought back, {}{live}", counted(*tokens, "token"))
}

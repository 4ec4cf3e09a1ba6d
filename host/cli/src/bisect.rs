//! `ctxhost bisect`: which compaction lost a text.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::failure::Failure;
use super::named::for_shell;
use super::output::Output;
use super::render::phrase::clean;
use ctxhost_history::{Compacted, Fate, Place, Search, bisect};
use ctxhost_session::recording;

/// Find out which compaction lost a text, and how to bring it back.
///
/// Upper case and white space do not count. Exit code 1 where nothing in the session says it.
#[derive(Debug, clap::Args)]
pub(super) struct Bisect {
    /// The session, or a recording of another agent.
    session: PathBuf,
    /// What was said.
    text: String,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

impl Bisect {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let session = recording::read(&self.session)?.session;
        let search = bisect(&session, &self.text)?;
        let commands = commands(&search, &self.session);
        let text = match self.json {
            true => {
                let value = json!({ "text": self.text, "found": search, "commands": commands });
                format!("{value:#}\n")
            }
            false => told(&self.text, &search, &commands),
        };
        output.print(&text)?;
        let is_there = search.fate != Fate::NeverSaid;
        Ok(if is_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What brings it back, the most of it first.
fn commands(search: &Search, session: &Path) -> Vec<String> {
    let session = for_shell(session);
    let mut commands = Vec::new();
    if let Fate::Lost { by, .. } = &search.fate {
        commands.push(format!("ctxhost undo {session}@{}", by.number));
    }
    if let Some(first) = search.first.as_ref().filter(|_| !is_in_context(search)) {
        match first.turn {
            Some(turn) => commands.push(format!("ctxhost restore {session} --turn {turn}")),
            None => commands.push(format!("ctxhost branch {session} --at {}", first.entry)),
        }
        commands.push(format!("ctxhost fetch {session} {}", first.entry));
    }
    commands
}

fn is_in_context(search: &Search) -> bool {
    matches!(search.fate, Fate::InContext { .. })
}

fn told(text: &str, search: &Search, commands: &[String]) -> String {
    let mut lines = vec![match &search.first {
        Some(first) => format!("first said        {}", place(first)),
        None if search.fate == Fate::NeverSaid => format!("{:?} was never said", clean(text)),
        None => "said by a summary only".to_owned(),
    }];
    match &search.fate {
        Fate::NeverSaid => {}
        Fate::InContext { at } => lines.push(format!("still in context  {}", place(at))),
        Fate::Lost { by, last_seen } => {
            lines.push(format!("last in context   {}", place(last_seen)));
            lines.push(format!("lost by           {}", lost_by(by)));
        }
        Fate::OnAnotherBranch => {
            lines.push("not on this branch, which no compaction changes".into())
        }
        Fate::LeftOut => {
            lines.push(
                "no compaction lost it: an edit took it out, or it was never in context".into(),
            );
        }
    }
    if !commands.is_empty() {
        lines.push("\nto bring it back".into());
        lines.extend(commands.iter().map(|command| format!("  {command}")));
    }
    format!("{}\n", lines.join("\n"))
}

fn place(place: &Place) -> String {
    let line = place.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let turn = place.turn.map(|turn| format!(", turn {turn}")).unwrap_or_default();
    format!("entry {} ({}{line}{turn})", place.entry, clean(&place.speaker))
}

fn lost_by(by: &Compacted) -> String {
    clean(&by.to_string())
}

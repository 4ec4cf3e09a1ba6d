//! `ctxhost bisect`: which compaction lost a text.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::error::CliError;
use super::output::Output;
use super::render::format::one_line;
use super::session_arg::shell_quote;
use ctxhost_history::{BisectResult, BranchCompaction, TextFate, TextLocation, bisect};
use ctxhost_session::import;

/// Find out which compaction lost a text, and how to bring it back.
///
/// Upper case and white space do not count. Exit code 1 where nothing in the session says it.
#[derive(Debug, clap::Args)]
pub(super) struct BisectArgs {
    /// The session, or a recording of another agent.
    session: PathBuf,
    /// What was said.
    text: String,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

impl BisectArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let session = import::open_file(&self.session)?.session;
        let search = bisect(&session, &self.text)?;
        let commands = commands(&search, &self.session);
        let text = match self.json {
            true => {
                let value = json!({ "text": self.text, "found": search, "commands": commands });
                format!("{value:#}\n")
            }
            false => describe_search(&self.text, &search, &commands),
        };
        output.print(&text)?;
        let is_there = search.fate != TextFate::NeverAppeared;
        Ok(if is_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What brings it back, the most of it first.
fn commands(search: &BisectResult, session: &Path) -> Vec<String> {
    let session = shell_quote(session);
    let mut commands = Vec::new();
    if let TextFate::Lost { by, .. } = &search.fate {
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

fn is_in_context(search: &BisectResult) -> bool {
    matches!(search.fate, TextFate::InContext { .. })
}

fn describe_search(text: &str, search: &BisectResult, commands: &[String]) -> String {
    let mut lines = vec![match &search.first {
        Some(first) => format!("first said        {}", format_location(first)),
        None if search.fate == TextFate::NeverAppeared => {
            format!("{:?} was never said", one_line(text))
        }
        None => "said by a summary only".to_owned(),
    }];
    match &search.fate {
        TextFate::NeverAppeared => {}
        TextFate::InContext { at } => {
            lines.push(format!("still in context  {}", format_location(at)))
        }
        TextFate::Lost { by, last_seen } => {
            lines.push(format!("last in context   {}", format_location(last_seen)));
            lines.push(format!("lost by           {}", describe_loss(by)));
        }
        TextFate::OnAnotherBranch => {
            lines.push("not on this branch, which no compaction changes".into())
        }
        TextFate::LeftOut => {
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

fn format_location(place: &TextLocation) -> String {
    let line = place.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let turn = place.turn.map(|turn| format!(", turn {turn}")).unwrap_or_default();
    format!("entry {} ({}{line}{turn})", place.entry, one_line(&place.speaker))
}

fn describe_loss(by: &BranchCompaction) -> String {
    one_line(&by.to_string())
}

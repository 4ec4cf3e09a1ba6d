//! `ctxhost bisect`: which compaction lost a text.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::agent_folders::{is_of_openclaw, line_numbers, open_session, resolve_session};
use super::error::CliError;
use super::output::Output;
use super::render::format::one_line;
use super::session_arg::shell_quote;
use super::store::stored_hint;
use ctxhost_history::{
    BisectResult, BranchCompaction, LineNumbers, TextFate, TextLocation, bisect,
};

/// Find the compaction that lost a text.
///
/// Also prints the commands that restore it. Ignores case and white space. Exit code 1 if the
/// session does not contain the text.
#[derive(Debug, clap::Args)]
pub(super) struct BisectArgs {
    /// Session or recording of another agent: a file, or an id that `ctxhost doctor` prints.
    session: PathBuf,
    /// Text to search for.
    text: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl BisectArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let recorded = open_session(&self.session, output)
            .map_err(|error| stored_hint(error, &self.session, config_path))?;
        let lines = line_numbers(&recorded);
        let search = bisect(&recorded.session, &self.text, lines)?;
        // OpenClaw's files have the lines of Pi's.
        let is_openclaw = resolve_session(&self.session).is_ok_and(|file| is_of_openclaw(&file));
        let is_imported = lines == LineNumbers::None || is_openclaw;
        let commands = commands(&search, &self.session, is_imported);
        if self.json {
            let value = json!({ "text": self.text, "found": search, "commands": commands });
            output.print_json(&value)?;
        } else {
            output.print(&describe_search(&self.text, &search, &commands))?;
        }
        let is_there = search.fate != TextFate::NeverAppeared;
        Ok(if is_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The commands that restore the text, the one that restores most first. A recording of another agent is never
/// written: its text can be printed, and a copy of it can be changed.
fn commands(search: &BisectResult, session: &Path, is_imported: bool) -> Vec<String> {
    let session = shell_quote(session);
    let mut commands = Vec::new();
    if is_imported {
        if let Some(first) = search.first.as_ref().filter(|_| !is_in_context(search)) {
            commands.push(format!("ctxhost fetch {session} {}", first.entry));
            commands.push(format!("ctxhost export {session} --out session.jsonl"));
            commands.extend(
                first.turn.map(|turn| format!("ctxhost restore session.jsonl --turn {turn}")),
            );
        }
        return commands;
    }
    if let TextFate::Lost { by, .. } = &search.fate {
        commands.push(format!("ctxhost undo {session}@{}", by.number));
    }
    if let Some(first) = search.first.as_ref().filter(|_| !is_in_context(search)) {
        match first.turn {
            Some(turn) => commands.push(format!("ctxhost restore {session} --turn {turn}")),
            // On another branch it has no turn that `restore` could name.
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
        Some(first) => format!("first appears     {}", format_location(first)),
        None if search.fate == TextFate::NeverAppeared => {
            format!("{:?} does not occur in the session", one_line(text))
        }
        None => "only in a summary".to_owned(),
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
            lines.push("only on another branch, which compactions of this one do not change".into())
        }
        TextFate::LeftOut => {
            lines.push(
                "no compaction dropped it: an edit removed it, or it was never in the context"
                    .into(),
            );
        }
    }
    if !commands.is_empty() {
        lines.push("\nto restore it".into());
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

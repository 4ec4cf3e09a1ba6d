//! `ctxhost sessions`: the sessions that are kept, and what is in one.

mod du;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ctxhost_engine_api::Role;

use super::chat::sessions_of;
use super::failure::Failure;
use super::output::Output;
use super::render::phrase::grouped;
use crate::history::{compactions, turns};
use crate::session::{Kept, Record, Session};

pub(super) use du::bytes_of;

/// The sessions that `chat` keeps.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Sessions {
    /// List those of this folder, the newest first.
    List {
        /// The working folder they belong to; by default this one.
        #[arg(long, value_name = "FOLDER")]
        cwd: Option<PathBuf>,
    },
    /// Show what was said in one, turn by turn, and where it was compacted.
    Show {
        /// The session file.
        file: PathBuf,
    },
    Du(du::Du),
}

impl Sessions {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let text = match self {
            Sessions::List { cwd } => list(&cwd.map_or_else(std::env::current_dir, Ok)?),
            Sessions::Show { file } => show(&Session::read(&file)?),
            Sessions::Du(du) => du.run()?,
        };
        output.print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn list(cwd: &Path) -> String {
    let kept = sessions_of(cwd).list();
    if kept.is_empty() {
        return "no sessions of this folder yet; `ctxhost chat` begins one\n".into();
    }
    kept.iter().map(line).collect()
}

/// One session: its file, its size, how it began.
fn line(kept: &Kept) -> String {
    let path = kept.path.display();
    match Session::read(&kept.path) {
        Ok(session) => {
            let view = session.live(0).snapshot();
            let task = view.iter().find(|entry| entry.role() == Role::User);
            let began = task.map(|entry| first_line(entry.text())).unwrap_or_default();
            let (entries, tokens) = (view.len(), grouped(view.total_tokens()));
            format!("{path}\n  {entries} entries, {tokens} tokens: {began}\n")
        }
        Err(error) => format!("{path}\n  {error}\n"),
    }
}

/// What was said, turn by turn, with the compactions between.
fn show(session: &Session) -> String {
    let compactions = compactions(session);
    let mut text = String::new();
    for turn in turns(session) {
        text.push_str(&format!("turn {}\n", turn.number));
        for record in turn.records {
            match compactions.iter().find(|compaction| compaction.id == record.id()) {
                Some(compaction) => text.push_str(&format!("{} {compaction}\n", record.id())),
                None => text.push_str(&said(record).unwrap_or_default()),
            }
        }
    }
    text
}

fn said(record: &Record) -> Option<String> {
    let entry = record.to_entry()?;
    let calls = entry.calls.len();
    let text = match calls {
        0 => entry.text,
        _ => format!("{} [{calls} tool calls]", entry.text),
    };
    Some(format!("{} {} {}\n", entry.id, entry.role.name(), first_line(text.trim())))
}

fn first_line(text: &str) -> String {
    const MOST_CHARS: usize = 100;
    text.lines().next().unwrap_or_default().chars().take(MOST_CHARS).collect()
}

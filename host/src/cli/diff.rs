//! `ctxhost diff`: what a compaction dropped, where that is, and what it kept.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::failure::Failure;
use super::output::Output;
use super::render;
use crate::runtime::difference::difference;
use crate::session::recording;

/// The last compaction.
const LAST: i64 = -1;

/// Show what a compaction dropped, where it is, what stands for it, and how much of what was said is
/// still said.
///
/// Reads the session and writes nothing. A compaction of Pi is told as well as one of ctxhost.
#[derive(Debug, clap::Args)]
pub(super) struct Diff {
    /// The session, and which of its compactions: `session.jsonl@2` is the second, `@-1` the last, which
    /// is meant where none is named.
    #[arg(value_name = "SESSION[@N]")]
    session: PathBuf,
    /// List everything.
    #[arg(long)]
    all: bool,
    /// Print it as JSON, which always lists everything.
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let (path, number) = numbered(&self.session);
        let mut session = recording::read(&path)?.session;
        let difference = difference(&mut session, number.unwrap_or(LAST))?;
        let text = match self.json {
            true => {
                let json = serde_json::to_string_pretty(&difference);
                json.map_err(|error| Failure::internal(error.to_string()))? + "\n"
            }
            false => {
                let name = path.display().to_string();
                render::diff::render(&difference, &name, self.all, output.style())
            }
        };
        output.print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A session and the number of one of its compactions. A file that is named like that is meant itself.
fn numbered(session: &Path) -> (PathBuf, Option<i64>) {
    let parts = || {
        let (path, number) = session.to_str()?.rsplit_once('@')?;
        Some((PathBuf::from(path), number.parse().ok()?))
    };
    match parts() {
        Some((path, number)) if !session.exists() => (path, Some(number)),
        _ => (session.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_behind_the_last_at() {
        let check = |given: &str, path: &str, number| {
            assert_eq!(numbered(Path::new(given)), (PathBuf::from(path), number), "{given}");
        };
        check("s.jsonl", "s.jsonl", None);
        check("s.jsonl@2", "s.jsonl", Some(2));
        check("me@home/s.jsonl@-1", "me@home/s.jsonl", Some(-1));
        check("me@home", "me@home", None);
    }
}

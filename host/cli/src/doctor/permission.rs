//! Asks whether to read the folders of agents, which are outside the current folder.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use super::super::agent_folders::AgentFolder;
use super::super::error::CliError;
use super::super::output::Output;
use super::super::render::doctor::short_path;
use super::super::render::format::format_count;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    Denied,
}

impl Permission {
    /// Asks on a terminal. Elsewhere only `--yes` allows it, and nothing in the folders is looked at before.
    pub(super) fn ask(
        folders: &[AgentFolder],
        is_granted: bool,
        output: &mut Output,
    ) -> Result<Permission, CliError> {
        if is_granted {
            return Ok(Permission::Granted);
        }
        // There is nothing to ask about; the report says where it looked.
        if folders.iter().all(|folder| !folder.path.exists()) {
            return Ok(Permission::Granted);
        }
        // The question goes to standard error, the answer comes from standard input.
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if !is_terminal {
            output.note(
                "not read: the sessions of your agents, which are outside the current folder; \
                 --yes reads them, --path DIR reads a folder",
            );
            return Ok(Permission::Denied);
        }
        let counted = count_sessions(folders);
        // There is nothing to ask about; the report says where it looked.
        if counted.is_empty() {
            return Ok(Permission::Granted);
        }
        let mut terminal = std::io::stderr();
        write!(terminal, "{}", question(&counted))?;
        terminal.flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        Ok(read_answer(&answer))
    }
}

/// The number of sessions of each folder that has any. Two layouts may be of one folder.
fn count_sessions(folders: &[AgentFolder]) -> Vec<(String, usize)> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for folder in folders {
        let (path, sessions) = (short_path(&folder.path), folder.list().len());
        match counted.iter_mut().find(|(known, _)| *known == path) {
            Some((_, count)) => *count += sessions,
            None => counted.push((path, sessions)),
        }
    }
    counted.retain(|(_, sessions)| *sessions > 0);
    counted
}

/// The question about folders and their numbers of sessions.
fn question(counted: &[(String, usize)]) -> String {
    let width = counted.iter().map(|(path, _)| path.chars().count()).max().unwrap_or_default();
    let rows = counted.iter().map(|(path, sessions)| {
        let sessions = format_count(*sessions as u64, "session");
        format!("  {path:<width$}  {sessions}\n")
    });
    let rows: String = rows.collect();
    format!(
        "ctxhost doctor reads sessions outside the current folder:\n{rows}\
         It changes nothing and sends nothing. Read them? [y/N] "
    )
}

/// Anything but a yes is a no.
fn read_answer(answer: &str) -> Permission {
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Permission::Granted,
        // Anything else, an empty line and the end of input included.
        _ => Permission::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_folders_and_sessions() {
        let counted = [("~/.claude/projects".to_owned(), 41), ("~/.codex/sessions".to_owned(), 1)];
        insta::assert_snapshot!(question(&counted), @r"
        ctxhost doctor reads sessions outside the current folder:
          ~/.claude/projects  41 sessions
          ~/.codex/sessions   1 session
        It changes nothing and sends nothing. Read them? [y/N] 
        ");
    }

    #[test]
    fn only_a_yes_is_one() {
        for (answer, expected) in [
            ("y\n", Permission::Granted),
            (" YES \n", Permission::Granted),
            ("", Permission::Denied),
            ("\n", Permission::Denied),
            ("yeah\n", Permission::Denied),
        ] {
            assert_eq!(read_answer(answer), expected, "{answer:?}");
        }
    }
}

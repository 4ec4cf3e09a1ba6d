//! The read-eval loop of the chat.

use std::io::{ErrorKind, IsTerminal as _};
use std::process::ExitCode;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::command::{self, ChatCommand};
use super::is_whole;
use crate::error::CliError;
use crate::output::Output;
use ctxhost_agent::{Runtime, SessionId};
use ctxhost_config::Config;

/// Reads lines until the input ends. A failed turn is reported, and the loop continues.
pub(super) async fn run_repl(
    runtime: &Runtime,
    session: &SessionId,
    config: &Config,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    output.note(&format!("engine {}, session {session}; /help lists commands", runtime.engine()));
    let mut lines = InputLines::new()?;
    let mut has_failure = false;
    while let Some(line) = lines.next().await? {
        match ChatCommand::parse(&line) {
            Some(Ok(ChatCommand::Quit)) => break,
            Some(Ok(command)) => {
                let answer = command::run(command, runtime, session, config).await;
                // A failing command must not end the conversation.
                let answer = answer.unwrap_or_else(|error| {
                    has_failure = true;
                    error.to_string()
                });
                if !answer.is_empty() {
                    output.note(&answer);
                }
            }
            Some(Err(mistake)) => {
                has_failure = true;
                output.note(&mistake);
            }
            None if line.trim().is_empty() => {}
            None => has_failure |= !send_message(runtime, session, &line, output).await,
        }
    }
    // A person has read the errors; a script has only the exit code.
    Ok(ExitCode::from(u8::from(has_failure && !std::io::stdin().is_terminal())))
}

/// Runs one turn; returns whether it has a whole answer. Ctrl-C cancels it; the session stays valid and keeps the answer so
/// far.
async fn send_message(
    runtime: &Runtime,
    session: &SessionId,
    line: &str,
    output: &mut Output,
) -> bool {
    // Dropping the turn cancels it at its next await; what was appended so far stays in the
    // session.
    tokio::select! {
        outcome = runtime.send(session, line) => {
            match outcome.map_err(super::turn_error) {
                Ok(reply) => is_whole(&reply),
                Err(error) => {
                    output.note(&error.to_string());
                    false
                }
            }
        }
        _ = tokio::signal::ctrl_c() => {
            output.note("(cancelled)");
            true
        }
    }
}

/// Input lines, read on a separate thread because the editor blocks on keys.
struct InputLines {
    editor: Option<DefaultEditor>,
}

impl InputLines {
    fn new() -> Result<InputLines, CliError> {
        let editor = DefaultEditor::new().map_err(input_error)?;
        Ok(InputLines { editor: Some(editor) })
    }

    /// `None` at the end of the input.
    async fn next(&mut self) -> Result<Option<String>, CliError> {
        let Some(mut editor) = self.editor.take() else { return Ok(None) };
        let (editor, line) = tokio::task::spawn_blocking(move || {
            let line = editor.readline("> ");
            if let Ok(line) = &line {
                let _ = editor.add_history_entry(line);
            }
            (editor, line)
        })
        .await
        .map_err(|error| CliError::internal(error.to_string()))?;
        self.editor = Some(editor);
        match line {
            Ok(line) => Ok(Some(line)),
            // Ctrl-C at the prompt ends the chat, as Ctrl-D does.
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(input_error(error)),
        }
    }
}

fn input_error(error: ReadlineError) -> CliError {
    if let ReadlineError::Io(error) = &error
        && error.kind() == ErrorKind::InvalidData
    {
        let error =
            CliError::user("a line of the input is not UTF-8 text; the chat ends before it");
        return error.hint("convert the input, for example with `iconv -t UTF-8`");
    }
    CliError::internal(format!("cannot read from the terminal: {error}"))
}

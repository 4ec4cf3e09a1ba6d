//! The conversation of a person with a model, line by line.

use std::process::ExitCode;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::command::{self, Command};
use crate::failure::Failure;
use crate::output::Output;
use ctxhost_config::Config;
use ctxhost_runtime::{Runtime, SessionId};

/// Reads lines until there are no more. A turn that fails is told of, and the conversation goes on.
pub(super) async fn talk(
    runtime: &Runtime,
    session: &SessionId,
    config: &Config,
    output: &mut Output,
) -> Result<ExitCode, Failure> {
    output.remark(&format!("engine {}, session {session}; /help lists commands", runtime.engine()));
    let mut lines = Lines::new()?;
    while let Some(line) = lines.next().await? {
        match Command::parse(&line) {
            Some(Ok(Command::Quit)) => break,
            Some(Ok(command)) => {
                let answer = command::run(command, runtime, session, config).await;
                let answer = answer.unwrap_or_else(|failure| failure.to_string());
                if !answer.is_empty() {
                    output.remark(&answer);
                }
            }
            Some(Err(mistake)) => output.remark(&mistake),
            None if line.trim().is_empty() => {}
            None => say(runtime, session, &line, output).await,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One turn. Ctrl-C breaks it off; the session stays valid.
async fn say(runtime: &Runtime, session: &SessionId, line: &str, output: &mut Output) {
    tokio::select! {
        outcome = runtime.send(session, line) => {
            if let Err(error) = outcome {
                output.remark(&format!("error: {error}"));
            }
        }
        _ = tokio::signal::ctrl_c() => output.remark("(broken off)"),
    }
}

/// Lines of the person, read on a thread of their own: an editor waits for keys.
struct Lines {
    editor: Option<DefaultEditor>,
}

impl Lines {
    fn new() -> Result<Lines, Failure> {
        let editor = DefaultEditor::new().map_err(unreadable)?;
        Ok(Lines { editor: Some(editor) })
    }

    /// `None` at the end of the input.
    async fn next(&mut self) -> Result<Option<String>, Failure> {
        let Some(mut editor) = self.editor.take() else { return Ok(None) };
        let (editor, line) = tokio::task::spawn_blocking(move || {
            let line = editor.readline("> ");
            if let Ok(line) = &line {
                let _ = editor.add_history_entry(line);
            }
            (editor, line)
        })
        .await
        .map_err(|error| Failure::internal(error.to_string()))?;
        self.editor = Some(editor);
        match line {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(unreadable(error)),
        }
    }
}

fn unreadable(error: ReadlineError) -> Failure {
    Failure::internal(format!("cannot read from the terminal: {error}"))
}

//! Standard output for results, standard error for everything else.

use std::io::{IsTerminal as _, Write as _};

use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde::Serialize;

use super::error::CliError;
use super::render::sanitize::sanitize;
use super::render::style::TextStyle;

/// The output streams and their style.
#[derive(Debug)]
pub(super) struct Output {
    color: ColorChoice,
}

impl Output {
    pub(super) fn new(color: ColorChoice) -> Self {
        Output { color }
    }

    /// Writes text for people, sanitized. A closed pipe is not an error.
    pub(super) fn print(&mut self, text: &str) -> std::io::Result<()> {
        self.write(sanitize(text, self.style().color).as_bytes())
    }

    /// Writes data, such as JSON: unchanged into a pipe or file, sanitized on a terminal.
    pub(super) fn print_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if std::io::stdout().is_terminal() {
            return self.write(sanitize(&String::from_utf8_lossy(bytes), false).as_bytes());
        }
        self.write(bytes)
    }

    /// Writes a value as indented JSON.
    pub(super) fn print_json(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value);
        let text = text.map_err(|error| CliError::internal(error.to_string()))?;
        Ok(self.print_bytes(format!("{text}\n").as_bytes())?)
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut stdout = std::io::stdout().lock();
        // Flushed at once: a chat shows text as it arrives, and the process may end by a signal.
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        match written {
            // `ctxhost ... | head` closes the pipe early, which is not a failure.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Writes a line to standard error. A failure to write it is ignored, since there is no other
    /// stream to report it on.
    pub(super) fn note(&mut self, line: &str) {
        let _ = writeln!(std::io::stderr(), "{}", sanitize(line, false));
    }

    /// The style of text on standard output. A terminal wraps long lines itself.
    pub(super) fn style(&self) -> TextStyle {
        let color = match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                // https://no-color.org: any value of the variable disables colour.
                std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
            }
        };
        // Tables are not cut to the terminal's width: output that depends on it could not be
        // compared or grepped.
        TextStyle { color, width: None }
    }

    /// A progress bar on standard error, hidden without a terminal.
    pub(super) fn progress_bar(&self, engine: &str) -> ProgressBar {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_message(engine.to_owned());
        bar
    }
}

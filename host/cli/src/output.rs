//! Standard output for results, standard error for everything else.

use std::io::{IsTerminal as _, Write as _};

use clap::ColorChoice;
use ctxhost_platform::terminal::terminal_width;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde::Serialize;

use super::error::CliError;
use super::render::sanitize::sanitize;
use super::render::style::TextStyle;
use super::render::wrap::wrap;

/// Width of tables that no terminal shows.
const DEFAULT_WIDTH: u16 = 100;

/// Redraws of a progress bar in a second: more would flicker.
const DRAWS_PER_SECOND: u8 = 5;

/// The output streams and their style.
#[derive(Debug)]
pub(super) struct Output {
    color: ColorChoice,
}

impl Output {
    pub(super) fn new(color: ColorChoice) -> Self {
        Output { color }
    }

    /// Writes text for people, sanitized and as wide as the terminal at most. A closed pipe is not
    /// an error.
    pub(super) fn print(&mut self, text: &str) -> std::io::Result<()> {
        let text = sanitize(text, self.style().color);
        match prose_width() {
            Some(width) => self.write(wrap(&text, width.into()).as_bytes()),
            None => self.write(text.as_bytes()),
        }
    }

    /// Writes sanitized text with its own line ends: what is pasted into a document, a path.
    pub(super) fn print_unwrapped(&mut self, text: &str) -> std::io::Result<()> {
        self.write(sanitize(text, false).as_bytes())
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
        write_stdout(bytes)
    }

    /// Writes a line to standard error. A failure to write it is ignored, since there is no other
    /// stream to report it on.
    pub(super) fn note(&mut self, line: &str) {
        let line = sanitize(line, false);
        let line = match terminal_width(std::io::stderr()) {
            Some(width) => wrap(&line, width.into()),
            None => line.into_owned(),
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    /// The style of text on standard output.
    pub(super) fn style(&self) -> TextStyle {
        let color = match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                // https://no-color.org: any value of the variable disables colour. A dumb terminal shows the codes.
                std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none()
                    && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
            }
        };
        TextStyle { color, width: Some(prose_width().unwrap_or(DEFAULT_WIDTH)) }
    }

    /// A progress bar on standard error, hidden without a terminal.
    pub(super) fn progress_bar(&self, engine: &str) -> ProgressBar {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_message(engine.to_owned());
        bar
    }
}

/// Writes to standard output, whose reader may have closed it.
pub(super) fn write_stdout(bytes: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    // Flushed at once: a chat shows text as it arrives, and the process may end by a signal.
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match written {
        // `ctxhost ... | head` closes the pipe early, which is not a failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(name_stdout),
    }
}

/// The error of a write to standard output with what could not be written.
pub(super) fn name_stdout(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Width at which text is wrapped: that of the terminal, else the variable COLUMNS. Without either,
/// lines stay whole, since a program reads them.
fn prose_width() -> Option<u16> {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    terminal_width(std::io::stdout()).or_else(columns)
}

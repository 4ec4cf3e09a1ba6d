//! Where words go: standard output for what was asked, standard error for everything else.

use std::io::{IsTerminal as _, Write as _};

use clap::ColorChoice;

use super::render::sanitize::sanitize;
use super::render::style::TextStyle;

/// The two streams and how they look.
#[derive(Debug)]
pub(super) struct Output {
    color: ColorChoice,
}

impl Output {
    pub(super) fn new(color: ColorChoice) -> Self {
        Output { color }
    }

    /// Writes what was asked for. A reader that closed the pipe has had enough: that is success.
    ///
    /// Text for people, which cannot steer a terminal whatever foreign words stand in it.
    pub(super) fn print(&mut self, text: &str) -> std::io::Result<()> {
        self.write(sanitize(text, self.style().color).as_bytes())
    }

    /// The same for data, such as JSON or a file: a program gets each byte of it, a terminal only text.
    pub(super) fn print_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match std::io::stdout().is_terminal() {
            true => self.write(sanitize(&String::from_utf8_lossy(bytes), false).as_bytes()),
            false => self.write(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Writes a line beside the output. Where even that fails there is nobody left to tell.
    pub(super) fn note(&mut self, line: &str) {
        let _ = writeln!(std::io::stderr(), "{}", sanitize(line, false));
    }

    /// How text on standard output should look. A terminal wraps long lines by itself.
    pub(super) fn style(&self) -> TextStyle {
        let color = match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
            }
        };
        TextStyle { color, width: None }
    }

    /// Whether a person watches, so that a progress bar is of use.
    pub(super) fn is_watched(&self) -> bool {
        std::io::stderr().is_terminal()
    }
}

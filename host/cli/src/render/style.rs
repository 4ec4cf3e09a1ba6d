//! Colours and widths. Colour never carries information alone.

use clap::builder::styling::{AnsiColor, Style as Ansi};

use super::sanitize::color_mark;

/// The style of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextStyle {
    /// Whether to use colour.
    pub color: bool,
    /// Columns of the terminal; `None` for unlimited.
    pub width: Option<u16>,
}

/// The meaning of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Quiet,
    Good,
    Warning,
    Bad,
}

impl TextStyle {
    /// Text in a given colour.
    pub(crate) fn color_text(self, color: AnsiColor, text: &str) -> String {
        self.write(color.on_default(), text)
    }

    /// Text in the colour of its tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let ansi = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => Ansi::new().bold(),
            Tone::Quiet => Ansi::new().dimmed(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
        };
        self.write(ansi, text)
    }

    fn write(self, ansi: Ansi, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let marked = |codes: String| codes.replace('\u{1b}', &format!("{}\u{1b}", color_mark()));
        format!("{}{text}{}", marked(ansi.to_string()), marked(format!("{ansi:#}")))
    }
}

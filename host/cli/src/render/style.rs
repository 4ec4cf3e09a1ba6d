//! Colours and widths. Colour never carries information alone.

use clap::builder::styling::{AnsiColor, Style as Ansi};

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
        let ansi = color.on_default();
        if self.color { format!("{ansi}{text}{ansi:#}") } else { text.to_owned() }
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
        if self.color { format!("{ansi}{text}{ansi:#}") } else { text.to_owned() }
    }
}

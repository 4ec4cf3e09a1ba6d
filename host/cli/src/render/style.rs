//! Colour, where the caller wants any. Colour never says what the words do not say as well.

use clap::builder::styling::{AnsiColor, Style as Ansi};

/// How text is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextStyle {
    /// Whether to colour.
    pub color: bool,
    /// Columns of the terminal; `None` for as many as the text needs.
    pub width: Option<u16>,
}

/// What a piece of text is.
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
    /// Text in a colour of its own, where there is any.
    pub(crate) fn color_text(self, color: AnsiColor, text: &str) -> String {
        let ansi = color.on_default();
        if self.color { format!("{ansi}{text}{ansi:#}") } else { text.to_owned() }
    }

    /// Text in its tone.
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

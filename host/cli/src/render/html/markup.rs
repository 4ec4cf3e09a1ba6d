//! Builds HTML: our tags are constants, everything else is escaped.

use std::fmt::{Display, Write};

/// HTML under construction. Only a `&'static str` becomes markup, so text of a session cannot.
#[derive(Debug, Default)]
pub(super) struct HtmlWriter {
    html: String,
}

impl HtmlWriter {
    /// Adds markup.
    pub(super) fn raw(&mut self, html: &'static str) -> &mut Self {
        self.html.push_str(html);
        self
    }

    /// Adds text, safe between tags and in quoted attributes.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(HtmlEscaper(&mut self.html), "{text}");
        self
    }

    pub(super) fn finish(self) -> String {
        self.html
    }
}

struct HtmlEscaper<'a>(&'a mut String);

impl Write for HtmlEscaper<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for char in text.chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Kept for <pre>, where summaries are shown as they are.
                '\n' | '\t' => self.0.push(char),
                // HTML forbids control characters, even as entities.
                control if control.is_control() => self.0.push('\u{fffd}'),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

//! Wraps lines at the width of a terminal.

use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Indentation of a continued line, relative to its first one.
const HANGING_INDENT: usize = 2;

/// Added to the lines of a wrapped command, so that a copy of them still runs.
const COMMAND_CONTINUES: &str = " \\";

/// Wraps lines that are wider than `width` at their blanks, with a hanging indent.
///
/// A word that is wider, such as a path, stays whole: cut in two it could not be copied.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    text.split_inclusive('\n').map(|line| wrap_line(line, width)).collect()
}

/// Width of the widest line, in columns of a terminal.
pub(crate) fn widest_line(text: &str) -> usize {
    text.lines().map(|line| display_width(line.trim_end())).max().unwrap_or(0)
}

fn wrap_line(line: &str, width: usize) -> String {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    if display_width(text) <= width {
        return line.to_owned();
    }
    let blanks = text.chars().take_while(|char| *char == ' ').count();
    // A deep indent would leave no room for the text.
    let indent = " ".repeat((blanks + HANGING_INDENT).min(width / 2));
    let is_command = text.trim_start().starts_with("ctxhost ");
    let joint = if is_command { COMMAND_CONTINUES } else { "" };
    let options = Options::new(width.saturating_sub(joint.len()))
        .subsequent_indent(&indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).join(&format!("{joint}\n")) + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_hang_and_short_ones_stay() {
        let text = "  note: one two three four five\nshort\n\n/a/path/that/is/longer/than/that x\n";
        let expected = "  note: one two\n    three four five\nshort\n\n\
                        /a/path/that/is/longer/than/that\n  x\n";
        assert_eq!(wrap(text, 20), expected);
        assert_eq!(wrap(text, 200), text);
    }

    #[test]
    fn a_wrapped_command_can_be_copied() {
        let text = "  ctxhost fetch session.jsonl 0123abcd\n";
        assert_eq!(wrap(text, 32), "  ctxhost fetch session.jsonl \\\n    0123abcd\n");
    }

    #[test]
    fn colours_take_no_room() {
        let text = "\u{1b}[1mone\u{1b}[0m two three";
        assert_eq!(wrap(text, 13), text);
        assert_eq!(widest_line("日本\nabc   \n"), 4);
    }
}

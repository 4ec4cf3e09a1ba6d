//! Wraps lines at the width of a terminal.

use std::borrow::Cow;

use textwrap::core::{Word, display_width};
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Indentation of a continued line, relative to its first one.
const HANGING_INDENT: usize = 2;

/// Columns between the stops of a terminal's tabulator.
const TAB_WIDTH: usize = 8;

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
    text.lines().map(|line| display_width(&expand_tabs(line.trim_end()))).max().unwrap_or(0)
}

/// A line with blanks in place of its tabs, which have no width of their own.
fn expand_tabs(line: &str) -> Cow<'_, str> {
    if !line.contains('\t') {
        return Cow::Borrowed(line);
    }
    let mut expanded = String::with_capacity(line.len() + TAB_WIDTH);
    // The column, counted on: measuring all before each tab would take long on lines with many.
    let mut column = 0;
    for (at, part) in line.split('\t').enumerate() {
        if at > 0 {
            let blanks = TAB_WIDTH - column % TAB_WIDTH;
            expanded.extend(std::iter::repeat_n(' ', blanks));
            column += blanks;
        }
        expanded.push_str(part);
        column += display_width(part);
    }
    Cow::Owned(expanded)
}

fn wrap_line(line: &str, width: usize) -> String {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    let expanded = expand_tabs(text);
    if display_width(&expanded) <= width {
        return line.to_owned();
    }
    let text = expanded.as_ref();
    let blanks = text.chars().take_while(|char| *char == ' ').count();
    // A deep indent would leave no room for the text.
    let indent = " ".repeat((blanks + HANGING_INDENT).min(width / 2));
    let is_command = text.trim_start().starts_with("ctxhost ");
    let (joint, separator) = if is_command {
        (COMMAND_CONTINUES, WordSeparator::Custom(command_words))
    } else {
        ("", WordSeparator::Custom(prose_words))
    };
    let options = Options::new(width.saturating_sub(joint.len()))
        .subsequent_indent(&indent)
        .break_words(false)
        .word_separator(separator)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).join(&format!("{joint}\n")) + end
}

/// The arguments of a command with the blanks behind them. A break inside a quoted argument would be part of it.
fn command_words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    Box::new(split(line, true).into_iter().map(Word::from))
}

/// The words of a sentence with the blanks behind them. Commands between backticks and names between quotes are one
/// word: they are copied as a whole.
fn prose_words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    Box::new(split(line, false).into_iter().map(Word::from))
}

/// The words of a sentence without the blanks.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    split(text, false).into_iter().map(str::trim).filter(|word| !word.is_empty())
}

/// What ends a quotation, and whether a backslash before it does not.
#[derive(Clone, Copy)]
struct Quotation {
    end: char,
    has_escapes: bool,
}

fn split(line: &str, is_command: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut before) = (0, ' ');
    let mut quotation: Option<Quotation> = None;
    let mut is_escaped = false;
    for (at, current) in line.char_indices() {
        let rest = line.get(at + current.len_utf8()..).unwrap_or_default();
        let follows_blank = current != ' ' && before == ' ';
        // Scripts without spaces write a command directly between their own words.
        let begins_command = current == '`' && !before.is_ascii() && rest.contains('`');
        let follows_command = before == '`' && !current.is_ascii();
        let is_start = follows_blank || (begins_command || follows_command) && !is_command;
        if quotation.is_none() && is_start && at > start {
            words.push(line.get(start..at).unwrap_or_default());
            start = at;
        }
        match quotation {
            _ if is_escaped => is_escaped = false,
            Some(Quotation { has_escapes: true, .. }) if current == '\\' => is_escaped = true,
            Some(Quotation { end, .. }) if current == end => quotation = None,
            Some(_) => {}
            None if is_command => match current {
                '\\' => is_escaped = true,
                '\'' => quotation = Some(Quotation { end: '\'', has_escapes: before == '$' }),
                '"' => quotation = Some(Quotation { end: '"', has_escapes: true }),
                _ => {}
            },
            // Without an end it is a mark like any other, such as an apostrophe.
            None if current == '`' && rest.contains('`') => {
                quotation = Some(Quotation { end: '`', has_escapes: false });
            }
            None if current == '\'' && before == ' ' && ends_as_quotation(rest) => {
                quotation = Some(Quotation { end: '\'', has_escapes: false });
            }
            None => {}
        }
        before = if quotation.is_none() { current } else { '\0' };
    }
    words.extend(line.get(start..).filter(|word| !word.is_empty()));
    words
}

/// Whether the next apostrophe ends a word.
fn ends_as_quotation(rest: &str) -> bool {
    let end = rest.split_once('\'').map(|(_, behind)| behind.chars().next());
    end.is_some_and(|next| next.is_none_or(|next| !next.is_alphanumeric()))
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
    fn a_command_breaks_between_its_arguments_only() {
        let text = "  ctxhost diff 'a folder/my notes' b\\ c $'caf\\' e' 'it'\\'' is'\n";
        let expected = "  ctxhost diff \\\n    'a folder/my notes' \\\n    b\\ c \\\n    $'caf\\' e' \\\n    'it'\\'' is'\n";
        assert_eq!(wrap(text, 20), expected);
        let prose = "it's one; run `ctxhost fsck 'my notes'` or cd 'my notes' && don't stop\n";
        let expected =
            "it's one; run\n  `ctxhost fsck 'my notes'`\n  or cd 'my notes'\n  && don't stop\n";
        assert_eq!(wrap(prose, 18), expected);
        assert_eq!(
            wrap("  下一件：`ctxhost fsck`，谢谢\n", 18),
            "  下一件：\n    `ctxhost fsck`\n    ，谢谢\n"
        );
        assert_eq!(wrap("an `open mark of a text\n", 12), "an `open\n  mark of a\n  text\n");
    }

    #[test]
    fn a_tab_takes_room_to_the_next_stop() {
        assert_eq!(widest_line("a\tb\n\t\u{1b}[1mc\u{1b}[0m\td"), 17);
        assert_eq!(wrap("12\tone two\n", 16), "12\tone two\n");
        let wrapped = wrap("12\tone two three\n", 16);
        assert_eq!(wrapped, "12      one two\n  three\n");
        assert!(widest_line(&wrapped) <= 16);
    }

    #[test]
    fn colours_take_no_room() {
        let text = "\u{1b}[1mone\u{1b}[0m two three";
        assert_eq!(wrap(text, 13), text);
        assert_eq!(widest_line("日本\nabc   \n"), 4);
    }
}

//! Short values in quotation marks, in prose.

use super::characters::{closing_quote, is_unspaced};

/// Length of a quoted value, in bytes.
const QUOTED_BYTES: usize = 160;
/// Words of a quoted value; more are a sentence.
const QUOTED_WORDS: usize = 5;
/// Words of a line of prose.
const MIN_WORDS: usize = 3;

/// The text between the quotation mark at the beginning of `rest` and the one that ends it.
pub(super) fn quoted(rest: &str) -> Option<&str> {
    let open = rest.chars().next()?;
    let closing = closing_quote(open)?;
    let inside = rest.get(open.len_utf8()..)?;
    let end = inside.floor_char_boundary(inside.len().min(QUOTED_BYTES));
    let inside = inside.get(..end)?;
    let end = match closing {
        [close] => inside.find(*close),
        _ => inside.find(closing),
    };
    inside.get(..end?).filter(|text| !text.trim().is_empty())
}

/// Whether a line is prose, in which quotation marks show a value.
pub(super) fn is_prose(line: &str) -> bool {
    let is_word = |word: &&str| word.chars().all(char::is_alphabetic);
    // Such characters are of code.
    !line.bytes().any(|byte| matches!(byte, b'{' | b'}' | b'=' | b'<' | b'>' | b'\\' | b'|'))
        && (line.split_whitespace().filter(is_word).count() >= MIN_WORDS
            || line.contains(is_unspaced))
}

/// Whether a quoted text between two characters is a value: a name, a title, a phrase.
pub(super) fn is_value(quoted: &str, before: Option<char>, after: Option<char>) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() && !is_unspaced(c);
    let text = quoted.trim();
    text.len() == quoted.len()
        && text.len() >= 3
        && before.is_none_or(|c| !is_inside(c) && !matches!(c, '(' | '[' | ',' | ':' | '_' | '/'))
        // `import a from "b";` is code.
        && after.is_none_or(|c| !is_inside(c) && !matches!(c, '(' | ':' | ';'))
        && text.contains(char::is_alphanumeric)
        && text.split_whitespace().count() <= QUOTED_WORDS
        // A sentence is not a value.
        && !text.ends_with(['.', '?', '!', ','])
        // A list of values is joined by this.
        && !text.contains(", ")
}

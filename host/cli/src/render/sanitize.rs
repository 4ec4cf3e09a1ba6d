//! Sanitizes text for a terminal: foreign text must not control it.

use std::borrow::Cow;

/// The colour and weight codes that our reports use. Others could hide text.
const OUR_CODES: [u8; 20] =
    [0, 1, 2, 30, 31, 32, 33, 34, 35, 36, 37, 39, 90, 91, 92, 93, 94, 95, 96, 97];

/// Replaces control characters except line feeds and tabs, and bidirectional or invisible
/// characters. `is_painted` keeps the colours of our reports.
pub(crate) fn sanitize(text: &str, is_painted: bool) -> Cow<'_, str> {
    // The common case allocates nothing; a chat calls this for every piece of text.
    if !text.chars().any(is_unsafe_char) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        // Our own colours were added before this point and must survive.
        if is_painted && let Some(code) = own_color_code(rest) {
            let (code, behind) = rest.split_at(code);
            written.push_str(code);
            rest = behind;
            continue;
        }
        rest = rest.get(char.len_utf8()..).unwrap_or_default();
        match char {
            // A Windows line ending.
            '\r' if rest.starts_with('\n') => {}
            char if is_unsafe_char(char) => written.push(char::REPLACEMENT_CHARACTER),
            char => written.push(char),
        }
    }
    Cow::Owned(written)
}

/// Whether a character could control a terminal, change the writing direction, begin a line or be
/// invisible. The log escapes the same ones.
///
/// U+200C and U+200D are invisible too, but words of some languages and many emoji need them.
pub(crate) fn is_unsafe_char(char: char) -> bool {
    let is_control = char.is_control() && !matches!(char, '\n' | '\t');
    let is_format = matches!(
        char,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    is_control || is_format
}

/// The length of one of our colour codes at the start of a text.
fn own_color_code(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find(|char: char| !char.is_ascii_digit() && char != ';')?;
    let (codes, behind) = codes.split_at_checked(end)?;
    let is_ours = |code: &str| {
        code.is_empty() || code.parse().is_ok_and(|code: u8| OUR_CODES.contains(&code))
    };
    (behind.starts_with('m') && codes.split(';').all(is_ours)).then_some(2 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_colours_pass() {
        let red = "\u{1b}[1;31mbad\u{1b}[0m";
        assert_eq!(sanitize(red, true), red);
        assert_eq!(sanitize(red, false), "\u{fffd}[1;31mbad\u{fffd}[0m");
        for foreign in
            ["\u{1b}]0;title\u{7}", "\u{1b}[2J", "\u{1b}[8mhidden", "\u{9b}2J", "\u{1b}[", "\u{1b}"]
        {
            let shown = sanitize(foreign, true);
            assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{shown:?}");
        }
    }

    #[test]
    fn plain_text_is_not_changed() {
        let text = "naïve 你好 🙂\n\tمرحبا";
        assert!(matches!(sanitize(text, false), Cow::Borrowed(same) if same == text));
        for unseen in ["\u{200e}", "\u{61c}", "\u{2028}", "\u{2069}", "\u{feff}", "\u{e0041}"] {
            assert_eq!(sanitize(unseen, true), "\u{fffd}", "{unseen:?}");
        }
        let joined = "👩\u{200d}🔬 می\u{200c}خواهم";
        assert_eq!(sanitize(joined, true), joined);
        assert_eq!(sanitize("a\r\nb\rc\u{202e}d", false), "a\nb\u{fffd}c\u{fffd}d");
    }
}

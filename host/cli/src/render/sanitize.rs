//! Sanitizes text for a terminal: foreign text must not control it.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

/// What stands before our own colour codes until a text is written: invisible characters that differ in each process, so that
/// foreign text cannot contain them.
pub(crate) fn color_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| {
        // The standard library seeds it from the system's random numbers.
        let mut random = RandomState::new().hash_one(0_u8);
        let mut mark = String::new();
        while mark.chars().count() < MARK_CHARS {
            let selector = FIRST_SELECTOR + (random % SELECTORS) as u32;
            mark.extend(char::from_u32(selector));
            random /= SELECTORS;
        }
        mark
    });
    &MARK
}

/// Variation selectors have no width, so a marked text is laid out like any other.
const FIRST_SELECTOR: u32 = 0xE0100;
const SELECTORS: u64 = 240;

/// One of 3e9 marks.
const MARK_CHARS: usize = 4;

/// Replaces control characters except line feeds and tabs, and bidirectional or invisible
/// characters. `is_painted` keeps the colours that our reports have [marked](color_mark).
pub(crate) fn sanitize(text: &str, is_painted: bool) -> Cow<'_, str> {
    // The common case allocates nothing; a chat calls this for every piece of text.
    if !text.chars().any(is_unsafe_char) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        // Our own colours were added before this point and must survive.
        if is_painted && let Some((code, behind)) = split_own_code(rest) {
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

/// One of our colour codes at the start of a text, without its mark, and the text behind it.
fn split_own_code(text: &str) -> Option<(&str, &str)> {
    let code = text.strip_prefix(color_mark())?;
    let end = code.find('m').filter(|_| code.starts_with("\u{1b}["))?;
    code.split_at_checked(end + 1)
}

#[cfg(test)]
mod tests {
    use super::super::style::{TextStyle, Tone};
    use super::*;

    #[test]
    fn only_our_colours_pass() {
        let style = TextStyle { color: true, width: None };
        let bad = style.paint(Tone::Bad, "bad \u{1b}[32mgood\u{1b}[0m");
        assert_eq!(
            sanitize(&bad, true),
            "\u{1b}[1m\u{1b}[31mbad \u{fffd}[32mgood\u{fffd}[0m\u{1b}[0m"
        );
        assert!(!sanitize(&bad, false).contains('\u{1b}'));
        assert_eq!(textwrap::core::display_width(color_mark()), 0);
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

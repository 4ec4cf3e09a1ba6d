//! Classes of characters: what ends a word, scripts without spaces, punctuation around a word.

/// Whether a character separates words of every kind.
pub(super) fn is_break(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_whitespace()
            || character.is_ascii_control()
            || is_quote(character)
            || matches!(
                character,
                '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '|' | ';' | '*' | '!' | '^'
            );
    }
    character.is_whitespace()
        || character.is_control()
        || is_quote(character)
        // Punctuation of Chinese and Japanese, which has no spaces around it.
        || matches!(character, '、' | '。' | '，' | '；' | '：' | '！' | '？' | '（' | '）' | '【' | '】' | '〈' | '〉' | '…' | '·' | '–' | '—')
}

/// Whether a character opens or closes a quotation.
pub(super) fn is_quote(character: char) -> bool {
    closing_quote(character).is_some()
        || matches!(character, '”' | '’' | '»' | '›' | '」' | '』' | '》')
}

/// The character that ends a quotation which begins with `open`.
pub(super) fn closing_quote(open: char) -> Option<&'static [char]> {
    Some(match open {
        '"' => &['"'],
        '\'' => &['\''],
        '`' => &['`'],
        '“' => &['”', '“'],
        '„' => &['“', '”'],
        '‘' => &['’'],
        '‚' => &['‘', '’'],
        '«' => &['»'],
        '‹' => &['›'],
        '「' => &['」'],
        '『' => &['』'],
        '《' => &['》'],
        _ => return None,
    })
}

/// Whether a character belongs to a script without spaces: Thai, kana, Han, Hangul.
// Hangul has spaces, but its words take suffixes.
pub fn is_unspaced(character: char) -> bool {
    matches!(character as u32,
        0x0E00..=0x0E7F | 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF
        | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// A word without the punctuation around it.
pub(super) fn bare(word: &str) -> &str {
    let mut rest = word.as_bytes();
    while let [
        inside @ ..,
        b'.' | b':' | b',' | b'?' | b'~' | b'$' | b'%' | b'&' | b'-' | b'+' | b'/' | b'\\',
    ] = rest
    {
        rest = inside;
    }
    let end = rest.len();
    while let [b':' | b',' | b'?' | b'$' | b'%' | b'&' | b'-' | b'+' | b'@' | b'=', inside @ ..] =
        rest
    {
        rest = inside;
    }
    word.get(end - rest.len()..end).unwrap_or_default()
}

/// Whether all bytes are decimal digits.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Length in bytes of the decimal digits at the beginning of a text.
pub(super) fn digits_len(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The number of a text of at most four digits.
pub(super) fn small_number(text: &str) -> Option<u32> {
    if text.len() <= 4 && is_number(text) { text.parse().ok() } else { None }
}

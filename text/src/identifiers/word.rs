//! Which characters a word has, so that a check is made only where what it needs occurs.

use super::characters::is_break;

/// Kinds of characters, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks(u16);

impl Marks {
    pub(super) const DIGIT: Marks = Marks(1);
    pub(super) const UPPER: Marks = Marks(1 << 1);
    pub(super) const LOWER: Marks = Marks(1 << 2);
    pub(super) const POINT: Marks = Marks(1 << 3);
    pub(super) const SLASH: Marks = Marks(1 << 4);
    pub(super) const BACKSLASH: Marks = Marks(1 << 5);
    pub(super) const COLON: Marks = Marks(1 << 6);
    pub(super) const HYPHEN: Marks = Marks(1 << 7);
    pub(super) const UNDERSCORE: Marks = Marks(1 << 8);
    pub(super) const AT: Marks = Marks(1 << 9);
    /// `=` and `,`, which separate names.
    pub(super) const SEPARATOR: Marks = Marks(1 << 10);
    /// Any other character of ASCII.
    pub(super) const OTHER: Marks = Marks(1 << 11);
    pub(super) const NON_ASCII: Marks = Marks(1 << 12);
    const ALL: Marks = Marks(u16::MAX);

    /// The kinds of the characters of a word; all kinds for one longer than `most_bytes`, so that the time is
    /// bounded.
    pub(super) fn of(word: &str, most_bytes: usize) -> Marks {
        if word.len() > most_bytes {
            return Marks::ALL;
        }
        word.bytes().fold(Marks(0), |marks, byte| marks.and(Marks::of_byte(byte)))
    }

    /// The kinds of both sets.
    pub(super) const fn and(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }

    /// Whether one of `kinds` occurs.
    pub(super) fn has(self, kinds: Marks) -> bool {
        self.0 & kinds.0 != 0
    }

    fn of_byte(byte: u8) -> Marks {
        match byte {
            b'0'..=b'9' => Marks::DIGIT,
            b'A'..=b'Z' => Marks::UPPER,
            b'a'..=b'z' => Marks::LOWER,
            b'.' => Marks::POINT,
            b'/' => Marks::SLASH,
            b'\\' => Marks::BACKSLASH,
            b':' => Marks::COLON,
            b'-' => Marks::HYPHEN,
            b'_' => Marks::UNDERSCORE,
            b'@' => Marks::AT,
            b'=' | b',' => Marks::SEPARATOR,
            0x80.. => Marks::NON_ASCII,
            _ => Marks::OTHER,
        }
    }
}

/// Length in bytes of the word at the beginning of a text: up to a break.
pub(super) fn word_len(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        at += rest.iter().take_while(|byte| is_inside(**byte)).count();
        // A break of ASCII, the end, or a character that has to be decoded.
        match text.get(at..).and_then(|rest| rest.chars().next()) {
            Some(next) if !is_break(next) => at += next.len_utf8(),
            _ => return at,
        }
    }
}

/// Whether a character belongs to a word.
pub(super) fn is_inside_word(character: char) -> bool {
    match u8::try_from(character) {
        Ok(byte) if byte.is_ascii() => is_inside(byte),
        _ => !is_break(character),
    }
}

/// Whether a byte is an ASCII character other than a break.
fn is_inside(byte: u8) -> bool {
    match byte {
        b'"' | b'\'' | b'`' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b'|'
        | b';' => false,
        b'*' | b'!' | b'^' => false,
        b'!'..=b'~' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_ends_at_the_breaks_of_every_script() {
        for character in ('\0'..='\u{ffff}').chain(['😀']) {
            let text = format!("a{character}b");
            let expected = text.find(is_break).unwrap_or(text.len());
            assert_eq!(word_len(&text), expected, "{character:?}");
        }
    }

    #[test]
    fn marks_are_those_of_all_characters() {
        let marks = Marks::of("a-1é", 10);
        assert!(marks.has(Marks::HYPHEN) && marks.has(Marks::NON_ASCII) && marks.has(Marks::DIGIT));
        assert!(!marks.has(Marks::UPPER.and(Marks::SLASH)));
        assert!(Marks::of("a-1é", 3).has(Marks::AT), "what is not read may have all");
    }
}

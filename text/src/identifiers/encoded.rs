//! Encoded data: base64 and lines without spaces, whose parts look like identifiers by chance.

/// A shorter run, in bytes, may be a name.
const MIN_ENCODED_BYTES: usize = 24;
/// A shorter line, in bytes, is written by a person or is a line of code.
const MIN_DENSE_BYTES: usize = 1_000;
/// Bytes per space from which a line is data: prose has a space every six bytes, code every ten.
const DENSE_BYTES_PER_SPACE: usize = 20;
/// In an encoded run the class of its characters changes at least once in this many bytes.
// Random base64 changes six times in ten; `CamelCaseNames` twice a word.
const BYTES_PER_CHANGE: usize = 3;

/// Whether a word is base64 or a random key.
pub(super) fn is_encoded(word: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte);
    if word.len() < MIN_ENCODED_BYTES || !word.bytes().all(is_base64) {
        return false;
    }
    let class = |byte: u8| match byte {
        b'a'..=b'z' => Some(0),
        b'A'..=b'Z' => Some(1),
        b'0'..=b'9' => Some(2),
        _ => None,
    };
    let (mut changes, mut found, mut last) = (0, 0, None);
    for class in word.bytes().filter_map(class) {
        changes += usize::from(last.is_some_and(|last| last != class));
        found |= 1 << class;
        last = Some(class);
    }
    let has_each = found == 0b111;
    has_each && changes * BYTES_PER_CHANGE >= word.len()
}

/// Whether a line is data, such as minified code: it is long and has hardly a space. Other scripts have none.
pub(super) fn is_dense(line: &str) -> bool {
    if line.len() < MIN_DENSE_BYTES {
        return false;
    }
    let ascii = line.bytes().filter(u8::is_ascii).count();
    let spaces = line.bytes().filter(|byte| *byte == b' ').count();
    ascii * 2 > line.len() && spaces * DENSE_BYTES_PER_SPACE < ascii
}

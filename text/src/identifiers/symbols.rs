//! Symbols of code: `parse_body`, `parseBody`, `http::Body`.

use super::IDENTIFIER_BYTES;

/// Minimum length of a symbol, in bytes; shorter ones are found in any text.
const SYMBOL_BYTES: usize = 5;

/// The symbols of an expression: `this.agent?.setModel:` names `setModel`, `http::Body` is one name.
pub(super) fn symbols_in(word: &str) -> impl Iterator<Item = &str> {
    let is_part =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | ':');
    // A shorter run has no symbol, and needs no look.
    let runs = word.split(move |character| !is_part(character));
    let runs = runs.filter(|run| run.len() >= SYMBOL_BYTES);
    let parts = runs.flat_map(|run| {
        // A single colon separates a name from its type, a double one belongs to the name.
        let is_path = has_double_colon(run);
        run.split(move |character| character == ':' && !is_path)
    });
    let parts = parts.map(|part| part.trim_matches(':'));
    parts.filter(|part| IDENTIFIER_BYTES.contains(&part.len()) && is_symbol(part))
}

/// `parse_body`, `parseBody`, `ParseBody`, `http::Body`, `MAX_SIZE`.
fn is_symbol(name: &str) -> bool {
    if name.len() < SYMBOL_BYTES || !name.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return false;
    }
    let bytes = name.as_bytes();
    let last = bytes.rsplit(|byte| *byte == b':').next().unwrap_or_default();
    let has_hump = last
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    has_hump || name.trim_matches('_').contains('_') || has_double_colon(name)
}

/// Whether a text has `::`.
pub(super) fn has_double_colon(text: &str) -> bool {
    text.as_bytes().windows(2).any(|pair| pair == b"::")
}

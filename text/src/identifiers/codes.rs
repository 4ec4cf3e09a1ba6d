//! Hashes, UUIDs, long numbers and versions.

use super::characters::is_number;

/// File modes of git.
// They are frequent in listings and look like numbers of 6 digits.
const FILE_MODES: [&str; 4] = ["100644", "100755", "120000", "040000"];
/// Digits in a row from which a number is not a count.
const LONG_DIGITS: usize = 6;
/// Hex digits in a row that are not a word.
const LONG_HEX: usize = 8;
/// Digits of a bare number.
const MIN_DIGITS: usize = 5;

/// Whether a name is a code.
pub(super) fn is_code(name: &str) -> bool {
    // Most names are words.
    if !name.bytes().any(|byte| byte.is_ascii_digit()) {
        return is_hex_word(name);
    }
    // A number with a point or an exponent is a measurement.
    if FILE_MODES.contains(&name) || is_measured(name) {
        return false;
    }
    is_hash(name) || is_long_number(name) || is_version(name) || has_long_run(name)
}

/// Whether a code is unlike a word and a small number: 6 digits or 8 hex digits in a row.
pub(super) fn is_long(name: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_hexdigit();
    longest_run(name, |byte| byte.is_ascii_digit()) >= LONG_DIGITS
        || longest_run(name, hex) >= LONG_HEX
}

/// A hash without decimal digits, such as `deadbeef`.
pub(super) fn is_hex_word(name: &str) -> bool {
    name.len() >= LONG_HEX
        && name.bytes().all(|byte| byte.is_ascii_alphabetic() && byte.is_ascii_hexdigit())
}

/// Seven or more hex digits of both sorts.
fn is_hash(name: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    name.len() >= 7
        && name.bytes().all(is_hex)
        && name.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// `48213`, `12345-67890`, but no date.
fn is_long_number(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let is_date = name.contains('-') && digits <= 8;
    digits >= MIN_DIGITS && name.bytes().all(|b| b.is_ascii_digit() || b == b'-') && !is_date
}

/// `v2.4.1`, `1.0.0-beta.2`.
fn is_version(name: &str) -> bool {
    let core = name.strip_prefix('v').unwrap_or(name).split(['-', '+']).next().unwrap_or_default();
    let parts = core.split('.').count();
    let most = if name.starts_with('v') { 2 } else { 3 };
    (most..=4).contains(&parts) && core.split('.').all(|part| is_number(part) && part.len() <= 6)
}

/// A token with a long run of digits, or of hex digits with a decimal one: `call_00123456`.
fn has_long_run(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    if !name.bytes().all(is_token) {
        return false;
    }
    let is_run = |run: &&[u8]| run.len() >= LONG_HEX && run.iter().any(u8::is_ascii_digit);
    longest_run(name, |byte| byte.is_ascii_digit()) >= LONG_DIGITS
        || name.as_bytes().split(|byte| !byte.is_ascii_hexdigit()).any(|run| is_run(&run))
}

/// `3.14159265`, `1.5e10`, `+0.25`.
fn is_measured(name: &str) -> bool {
    let number = name.trim_start_matches(['+', '-']);
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.trim_start_matches(['+', '-']))),
        None => (number, None),
    };
    let is_decimal = match mantissa.split_once('.') {
        Some((whole, part)) => is_number(whole) && is_number(part),
        None => exponent.is_some() && is_number(mantissa),
    };
    // `1234567e8` may be a hash, but `1.5e10` is none.
    is_decimal && exponent.is_none_or(|exponent| is_number(exponent) && exponent.len() <= 3)
}

fn longest_run(text: &str, is_in: impl Fn(u8) -> bool) -> usize {
    text.as_bytes().split(|byte| !is_in(*byte)).map(<[u8]>::len).max().unwrap_or(0)
}

//! Numbers of orders, tickets and invoices, booking codes, IBANs.

use super::characters::is_number;

/// Prefixes of standards and sizes that look like references.
const STANDARDS: [&str; 36] = [
    "UTF", "ISO", "SHA", "MD", "RFC", "AES", "HTTP", "HTTPS", "X", "ASCII", "IPV", "CP", "TLS",
    "SSL", "ES", "ARM", "GPT", "CRC", "RSA", "BASE", "UTC", "GMT", "ANSI", "IEEE", "DIN", "EN",
    "USB", "PEP", "H", "CSS", "HTML", "MP", "PCM", "INT", "UINT", "FLOAT",
];
/// Length of a booking code.
const CODE_CHARS: std::ops::RangeInclusive<usize> = 5..=8;
/// Length of an IBAN without blanks.
const IBAN_CHARS: std::ops::RangeInclusive<usize> = 15..=34;
/// Digits behind `#`.
const ISSUE_DIGITS: std::ops::RangeInclusive<usize> = 1..=9;

/// Whether a name is a reference.
pub(super) fn is_reference(name: &str) -> bool {
    is_numbered(name) || is_booking_code(name)
}

/// The number behind `#`, with it.
pub(super) fn issue_in(word: &str) -> Option<&str> {
    let rest = word.strip_prefix('#')?;
    let number = rest.trim_end_matches([':', ',', '.', '?']);
    let is_issue = ISSUE_DIGITS.contains(&number.len()) && is_number(number);
    is_issue.then(|| word.get(..1 + number.len())).flatten()
}

/// `ORD-2024-00817`, `INV/2023/55`, `PROJ-1234`: a key in capitals, then parts of which one is a number.
fn is_numbered(name: &str) -> bool {
    let Some(separator) = name.chars().find(|c| !c.is_ascii_alphanumeric()) else { return false };
    if !"-/_".contains(separator) {
        return false;
    }
    let mut parts = name.split(separator);
    let key = parts.next().unwrap_or_default();
    let is_upper =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let has_capital = key.bytes().any(|byte| byte.is_ascii_uppercase());
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    if !has_capital || !(1..=10).contains(&key.len()) || !is_upper(key) || STANDARDS.contains(&stem)
    {
        return false;
    }
    let rest: Vec<&str> = parts.collect();
    let numbers = rest.iter().filter(|part| is_number(part)).count();
    let digits: usize =
        rest.iter().map(|part| part.bytes().filter(u8::is_ascii_digit).count()).sum();
    let is_part = |part: &&str| (1..=12).contains(&part.len()) && is_upper(part);
    if rest.is_empty() || rest.len() > 4 || !rest.iter().all(is_part) || numbers == 0 {
        return false;
    }
    match separator {
        // `MAX_SIZE_2` is a constant, and `A/B/3` are choices.
        '_' | '/' => {
            key.len() >= 2 && digits >= 2 && rest.last().is_some_and(|part| is_number(part))
        }
        // A key of one character needs a longer number: `A-1` is a place in a table.
        _ => key.len() >= 2 || digits >= 4,
    }
}

/// `LX8K2P`, `LH1234`: capitals and digits mixed.
fn is_booking_code(name: &str) -> bool {
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if !CODE_CHARS.contains(&name.len()) || !name.bytes().all(is_code) {
        return false;
    }
    let changes = name
        .as_bytes()
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a.is_ascii_digit() != b.is_ascii_digit()))
        .count();
    let capitals = name.bytes().filter(u8::is_ascii_uppercase).count();
    let key = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_keyed = changes == 1 && (2..=4).contains(&key.len()) && name.len() - key.len() >= 3;
    let is_mixed = changes >= 2 && capitals >= 2;
    (is_mixed || is_keyed) && !STANDARDS.contains(&key) && !is_hex_number(name)
}

/// `0X1F2A`, or a colour without its mark.
fn is_hex_number(name: &str) -> bool {
    name.starts_with("0X") || (name.len() == 6 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Length in bytes of the IBAN at the beginning of a text, written in one piece or in groups of four; 0 if there is
/// none.
pub(super) fn iban_len(rest: &str) -> usize {
    let [a, b, c, d, ..] = rest.as_bytes() else { return 0 };
    let is_start = a.is_ascii_uppercase()
        && b.is_ascii_uppercase()
        && c.is_ascii_digit()
        && d.is_ascii_digit();
    if !is_start {
        return 0;
    }
    let is_part = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    let run = |from: usize| {
        rest.as_bytes().get(from..).unwrap_or_default().iter().take_while(|b| is_part(b)).count()
    };
    let mut end = run(0);
    let mut chars = end;
    // Groups of four; the last one may be shorter.
    while end >= 4 && chars % 4 == 0 && chars < *IBAN_CHARS.end() {
        let next = if rest.as_bytes().get(end) == Some(&b' ') { run(end + 1) } else { 0 };
        if !(1..=4).contains(&next) {
            break;
        }
        end += 1 + next;
        chars += next;
    }
    let behind = rest.get(end..).unwrap_or_default();
    let digits = rest.get(..end).unwrap_or_default().bytes().filter(u8::is_ascii_digit).count();
    let is_whole = !behind.starts_with(|c: char| c.is_alphanumeric() || "_-/".contains(c));
    if IBAN_CHARS.contains(&chars) && digits >= 10 && is_whole { end } else { 0 }
}

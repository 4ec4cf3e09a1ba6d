//! Mail addresses and phone numbers.

use super::characters::digits_len;

/// Digits of a phone number with its prefix.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;
/// Length of a phone number with its separators, in bytes.
const PHONE_BYTES: usize = 28;
/// Digits of one group of a phone number.
const GROUP_DIGITS: usize = 11;

/// The mail address in a word.
pub(super) fn mail_in(word: &str) -> Option<&str> {
    let at = word.find('@')?;
    let is_local = |c: char| c.is_alphanumeric() || "._%+-".contains(c);
    let local = word.get(..at)?;
    let local_len: usize =
        local.chars().rev().take_while(|c| is_local(*c)).map(char::len_utf8).sum();
    let is_domain = |c: &char| c.is_alphanumeric() || ".-".contains(*c);
    let domain = word.get(at + 1..)?;
    let domain_len: usize = domain.chars().take_while(is_domain).map(char::len_utf8).sum();
    let domain = domain.get(..domain_len)?.trim_end_matches(['.', '-']);
    let behind = word.get(at + 1 + domain.len()..)?;
    let (host, top) = domain.rsplit_once('.')?;
    let is_top = top.chars().count() >= 2 && top.chars().all(char::is_alphabetic);
    let is_whole = !behind.starts_with(['@', '/', ':']) || behind.len() == 1;
    let is_address = is_whole && is_top && !host.is_empty() && !host.starts_with('.');
    let start = at - local_len;
    let address = word.get(start..at + 1 + domain.len())?;
    (is_address && local_len > 0 && !address.starts_with('.')).then_some(address)
}

/// Length in bytes of the phone number at the beginning of a text; 0 if there is none.
pub(super) fn phone_len(rest: &str) -> usize {
    let is_plus = rest.starts_with('+');
    let mut end = usize::from(is_plus);
    let (mut digits, mut groups) = (0, 0);
    loop {
        let group = digits_len(rest.get(end..).unwrap_or_default());
        if group == 0 || group > GROUP_DIGITS || end + group > PHONE_BYTES {
            break;
        }
        digits += group;
        groups += 1;
        end += group;
        // One separator, or a bracket and a blank.
        let behind = rest.get(end..).unwrap_or_default();
        let separators = behind.bytes().take_while(|byte| b" -/().".contains(byte)).count();
        if separators == 0
            || separators > 2
            || digits_len(behind.get(separators..).unwrap_or_default()) == 0
        {
            break;
        }
        end += separators;
    }
    let number =
        rest.get(..end).unwrap_or_default().trim_end_matches([' ', '-', '/', '(', ')', '.']);
    let behind = rest.get(number.len()..).unwrap_or_default();
    // A number that runs on is another kind: a hash, a version, an amount.
    let is_whole = !behind.starts_with(|c: char| c.is_alphanumeric() || "_:@".contains(c));
    if PHONE_DIGITS.contains(&digits) && is_whole && is_dialled(number, is_plus, groups) {
        number.len()
    } else {
        0
    }
}

/// Whether a number begins as a phone number does: `+49`, `0049`, `030/`, or has three groups such as `555-867-5309`.
fn is_dialled(number: &str, is_plus: bool, groups: usize) -> bool {
    let first = digits_len(number.trim_start_matches('+'));
    let is_point = number.contains('.');
    match number.as_bytes() {
        // `+2026-11-23` is a line of a diff.
        [b'+', b'1'..=b'9', ..] => (first != 4 || !number.contains('-')) && !is_point,
        [b'0', b'1'..=b'9', ..] => !is_plus && groups >= 2 && (3..=5).contains(&first) && !is_point,
        [b'0', b'0', b'1'..=b'9', ..] => !is_plus && groups >= 2,
        _ => {
            let sizes: Vec<usize> =
                number.split(|c: char| !c.is_ascii_digit()).map(str::len).collect();
            !is_plus && sizes == [3, 3, 4]
        }
    }
}

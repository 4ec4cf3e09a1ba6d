//! URLs, hosts with their ports, IP and MAC addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::IDENTIFIER_BYTES;
use super::characters::{bare, is_break, is_number, is_unspaced};
use super::files::is_ending;
use super::symbols::has_double_colon;

/// Characters of a URL beyond those of a word.
const URL_CHARS: &str = "()[]!*;";
/// Length of a MAC address.
const MAC_BYTES: usize = 17;
/// The word before a port.
const PORT_WORDS: [&str; 9] =
    ["port", "ports", "puerto", "porta", "порт", "端口", "埠", "ポート", "포트"];

/// The URL that begins in the word at the start of `rest`, with its position; `Some("")` for one that is data or
/// has a password.
pub(super) fn url_in<'t>(word: &str, rest: &'t str) -> Option<(usize, &'t str)> {
    let colon = word.find("://")?;
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let scheme = word.get(..colon)?;
    let scheme_len: usize =
        scheme.chars().rev().take_while(|c| is_scheme(*c)).map(char::len_utf8).sum();
    let start = colon - scheme_len;
    let url = rest.get(start..)?;
    let mut previous = ' ';
    let mut len = 0;
    for character in url.chars() {
        let is_inside = !is_break(character) || URL_CHARS.contains(character);
        // Text in a script without spaces may follow directly; inside a URL it follows a separator.
        let is_text = is_unspaced(character) && !is_unspaced(previous) && !"/=".contains(previous);
        if !is_inside || is_text || character == '\\' {
            break;
        }
        len += character.len_utf8();
        // A longer one is data.
        if len > 2 * IDENTIFIER_BYTES.end() {
            return Some((start, ""));
        }
        previous = character;
    }
    let whole = url.get(..len)?;
    let mut name = whole.trim_end_matches(|c: char| ".:,?~$&-+/!*;'".contains(c));
    for (open, close) in [('(', ')'), ('[', ']')] {
        // `(see https://a.example)` ends before the bracket, `/Rust_(language)` behind it.
        while name.ends_with(close) && name.matches(open).count() < name.matches(close).count() {
            name = name.strip_suffix(close).unwrap_or(name);
        }
    }
    let behind = name.get(scheme_len + 3..)?;
    let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
    let has_password = authority.split_once('@').is_some_and(|(user, _)| user.contains(':'))
        || url.get(len..)?.starts_with("[redacted:");
    if has_password
        || scheme_len == 0
        || behind.is_empty()
        || !IDENTIFIER_BYTES.contains(&name.len())
    {
        return Some((start, ""));
    }
    Some((start, name))
}

/// The IP or MAC address, or the host with a port, that a word is.
pub(super) fn address_in(word: &str) -> Option<&str> {
    let bare =
        if has_double_colon(word) { word.trim_end_matches(['.', ',', '?']) } else { bare(word) };
    // Every other kind has a colon.
    let may_be_address = bare.contains(':')
        || bare.len() == MAC_BYTES
        || bare.starts_with(|c: char| c.is_ascii_digit());
    let is_address = may_be_address
        && (is_ipv4(bare) || is_ipv6(bare) || is_mac(bare) || is_host(bare) || is_remote(bare));
    is_address.then_some(bare)
}

/// `8080` behind the word port, of a word without the punctuation around it.
pub(super) fn port_in<'t>(bare: &'t str, previous: &str) -> Option<&'t str> {
    if !is_port(bare) {
        return None;
    }
    let before = previous.trim_end_matches([':', '=', '.', '#']);
    let is_named = PORT_WORDS.iter().any(|named| {
        before.eq_ignore_ascii_case(named) || (!named.is_ascii() && before.ends_with(named))
    });
    is_named.then_some(bare)
}

fn is_port(text: &str) -> bool {
    (2..=5).contains(&text.len()) && is_number(text) && text.parse::<u16>().is_ok()
}

/// `192.168.178.20`, with a port or the length of a network.
fn is_ipv4(text: &str) -> bool {
    let (host, rest) = text.split_once([':', '/']).unwrap_or((text, "0"));
    host.parse::<Ipv4Addr>().is_ok() && is_number(rest) && rest.len() <= 5
}

/// `2001:db8::1`, with a zone or the length of a network.
fn is_ipv6(text: &str) -> bool {
    let host = text.split(['%', '/']).next().unwrap_or_default();
    // `dead::beef` may be a path of code, and `::` is one.
    let is_plausible =
        host.matches(':').count() >= 2 && host.contains(|c: char| c.is_ascii_digit());
    is_plausible && host.len() >= 3 && host.parse::<Ipv6Addr>().is_ok()
}

/// `00:1a:2b:3c:4d:5e`.
fn is_mac(text: &str) -> bool {
    text.len() == MAC_BYTES
        && [':', '-'].iter().any(|separator| {
            let mut parts = text.split(*separator);
            parts.clone().count() == 6
                && parts.all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        })
}

/// `localhost:8080`, `db.example.com:5432`, but no line of a source file.
fn is_host(text: &str) -> bool {
    let Some((host, port)) = text.split_once(':') else { return false };
    let is_label = |c: char| c.is_alphanumeric() || c == '-' || c == '.';
    let is_name = host.chars().all(is_label) && host.contains(char::is_alphabetic);
    let ending = host.rsplit('.').next().unwrap_or_default();
    let is_named = host == "localhost" || (host.contains('.') && !is_ending(ending));
    is_name && is_named && is_port(port)
}

/// `git@github.com:owner/name.git`.
fn is_remote(text: &str) -> bool {
    let Some((user, (host, path))) =
        text.split_once('@').and_then(|(user, rest)| Some((user, rest.split_once(':')?)))
    else {
        return false;
    };
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
    !user.is_empty() && is_name(user) && host.contains('.') && is_name(host) && path.contains('/')
}

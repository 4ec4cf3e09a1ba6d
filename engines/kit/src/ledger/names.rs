//! Names for the ledger: identifiers, project paths, tickets, ports and versions, labelled by the
//! words before them.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

use super::items::LedgerItem;
use crate::identifiers;
use crate::redact::redact;
use crate::text::{clip, prefix};

/// Project paths, tickets, local ports and versions.
const MORE: &str = concat!(
    r#"(?:^|[\s"'`(\[=:,<|])(?:\./)?(?<path>(?:[A-Za-z0-9_.@+-]+/)+[A-Za-z0-9_.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7})\b"#,
    r"|(?-u:\b)(?<ticket>[A-Z][A-Z0-9]{1,9}-\d{1,6})(?-u:\b)",
    r"|(?:^|[\s(])(?<issue>#\d{1,6})(?-u:\b)",
    r"|(?-u:\b)(?<host>localhost:\d{2,5})(?-u:\b)",
    r"|(?-u:\b)(?i:port)[ :=]+(?<port>\d{2,5})(?-u:\b)",
    r"|(?-u:\b)(?<version>v\d+\.\d+(?:\.\d+)?|\d+\.\d+\.\d+)(?:(?-u:\b)|$)",
);

/// Length of a label, in weighted characters.
const WORD_CHARS: u64 = 24;
/// Prefixes of standards that look like tickets.
const NO_TICKETS: [&str; 8] = ["UTF-", "ISO-", "SHA-", "MD-", "RFC-", "AES-", "HTTP-", "X-"];

static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(MORE).ok());

/// The unique names in the first `max_chars` weighted characters of a text, in order.
pub(super) fn extract_names(text: &str, max_chars: u64) -> Vec<LedgerItem> {
    let clean = redact(prefix(text, max_chars, 1));
    let mut seen = HashSet::new();
    let exact = identifiers::find_in_redacted(&clean).filter(|name| is_name(name));
    let found: Vec<String> = exact.chain(more(&clean)).filter(|n| seen.insert(n.clone())).collect();
    found.into_iter().map(|name| named(name, &clean)).collect()
}

/// The names of an output or a file, without bare numbers, versions and the `a/` and `b/` of diffs,
/// which fill logs.
pub(super) fn extract_output_names(text: &str, max_chars: u64) -> Vec<LedgerItem> {
    let mut items = extract_names(text, max_chars);
    items.retain(|item| {
        let has_letter = item.text.contains(|c: char| c.is_ascii_alphabetic() && c != 'v');
        has_letter && !["a/", "b/"].iter().any(|side| item.text.starts_with(side))
    });
    items
}

/// Whether a text contains a name as a whole and not as a part of a longer one.
pub(super) fn is_mentioned(name: &str, text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-/\\".contains(c);
    text.match_indices(name).any(|(at, found)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + found.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn more(text: &str) -> impl Iterator<Item = String> {
    let found = NAMES.iter().flat_map(move |pattern| pattern.captures_iter(text));
    let names = found.filter_map(|parts| {
        let group = ["path", "ticket", "issue", "host", "port", "version"];
        let found = group.into_iter().find_map(|name| Some((name, parts.name(name)?.as_str())))?;
        Some(match found {
            ("port", number) => format!("port {number}"),
            (_, text) => text.to_owned(),
        })
    });
    names.filter(|name| !NO_TICKETS.iter().any(|standard| name.starts_with(standard)))
}

/// Excludes placeholders of secrets, and markup.
fn is_name(name: &str) -> bool {
    !name.contains("redacted:") && !name.contains(['<', '>'])
}

/// A path or URL needs no label; other names are labelled with the words before them.
fn named(name: String, text: &str) -> LedgerItem {
    if name.contains('/') || name.contains('\\') || name.starts_with("port ") {
        return LedgerItem::new(name);
    }
    // Hex identifiers were changed to upper case, so the original may be in lower case.
    let at = text.find(&name).or_else(|| text.find(&name.to_lowercase()));
    let before = at.and_then(|at| text.get(..at)).unwrap_or("");
    let line = before.rsplit(['\n', '.', ';', ',', '(', '|']).next().unwrap_or("");
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphabetic()) && !word.is_empty();
    let words: Vec<&str> = line.split_whitespace().rev().take(2).take_while(is_word).collect();
    let words: Vec<&str> = words.into_iter().rev().collect();
    LedgerItem::new(name).with_label(clip(&words.join(" "), WORD_CHARS).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        extract_names(text, 1_000).iter().map(|item| item.line()).collect()
    }

    #[test]
    fn the_pattern_compiles() {
        assert!(NAMES.is_some());
    }

    #[test]
    fn names_come_with_the_words_before_them() {
        for (text, lines) in [
            ("at commit deadbeefcafe", &["- [at commit] DEADBEEFCAFE"][..]),
            ("fixes PROJ-1234 and #88", &["- [fixes] PROJ-1234", "- [and] #88"]),
            ("listens on port 8080", &["- port 8080"]),
            ("see localhost:3000", &["- [see] localhost:3000"]),
            ("upgraded to v2.4.1", &["- [upgraded to] v2.4.1"]),
            ("edit ./src/main.rs, /srv/app/a.rs", &["- /srv/app/a.rs", "- src/main.rs"]),
            ("and/or 1/2.5, UTF-8, 3.5 s", &[]),
            ("use sk-1234567890abcdef", &[]),
        ] {
            assert_eq!(found(text), lines, "{text}");
        }
    }

    #[test]
    fn a_part_of_a_longer_name_does_not_mention_it() {
        assert!(is_mentioned("src/a.rs", "(src/a.rs:12)"));
        assert!(!is_mentioned("src/a.rs", "lib/src/a.rs and src/a.rs2"));
    }
}

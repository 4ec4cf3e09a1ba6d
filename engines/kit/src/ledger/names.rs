//! Names for the ledger, labelled by the words before them.

use std::collections::HashSet;

use super::items::{LedgerItem, NameAuthor};
use ctxhost_text::identifiers::{
    Identifier, IdentifierKind, for_each_identifier, for_each_stated_fact, for_each_stated_id,
};
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{clip, prefix};

/// Length of a label, in weighted characters.
const WORD_CHARS: u64 = 24;
/// Bytes before a name that are searched for its label.
const LABEL_BYTES: usize = 120;

/// The unique names in the first `max_chars` weighted characters of a text, in order.
pub(super) fn extract_names(text: &str, max_chars: u64) -> Vec<LedgerItem> {
    extract(text, max_chars, is_listed).into_iter().map(|(_, item)| item).collect()
}

/// The names that the user writes: the same with the names of documents and quoted values.
pub(super) fn extract_facts(text: &str, max_chars: u64) -> Vec<LedgerItem> {
    let is_wanted = |identifier: &Identifier<'_>| identifier.is_fact() || is_listed(identifier);
    let mut items = extract(text, max_chars, is_wanted);
    for_each_stated_fact(text, |fact| add_stated(&mut items, text, fact, NameAuthor::User));
    items.into_iter().map(|(_, item)| item).collect()
}

/// The names in an answer of the model, with its ids.
pub(super) fn extract_statements(text: &str, max_chars: u64) -> Vec<LedgerItem> {
    let mut items = extract(text, max_chars, is_listed);
    for_each_stated_id(text, |id| add_stated(&mut items, text, id, NameAuthor::Model));
    items.into_iter().map(|(_, item)| item).collect()
}

/// Sets the author of a name, which is added if only its surroundings show that it is one.
fn add_stated(
    items: &mut Vec<(bool, LedgerItem)>,
    text: &str,
    stated: Identifier<'_>,
    author: NameAuthor,
) {
    let start = text.find(stated.text).unwrap_or_default();
    let item = labelled(&Identifier { start, ..stated }, text);
    match items.iter_mut().find(|(_, known)| known.text == item.text) {
        Some((_, known)) => known.author = author,
        None if stated.text.contains(['<', '>']) => {}
        None => items.push((true, LedgerItem { author, ..item })),
    }
}

/// The names of an output or a file, without bare numbers, versions and the `a/` and `b/` of diffs,
/// which fill logs. Those that stand for one thing wherever they are read come first, since only a part is listed.
pub(super) fn extract_output_names(text: &str, max_chars: u64) -> Vec<LedgerItem> {
    let is_wanted = |identifier: &Identifier<'_>| {
        is_listed(identifier) && !identifier.kind.is_noise_in_output()
    };
    let mut items = extract(text, max_chars, is_wanted);
    items.sort_by_key(|(is_distinct, _)| !is_distinct);
    let mut items: Vec<LedgerItem> = items.into_iter().map(|(_, item)| item).collect();
    items.retain(|item| {
        let has_word = item.text.contains(|c: char| c.is_alphabetic() && c != 'v');
        has_word && !["a/", "b/"].iter().any(|side| item.text.starts_with(side))
    });
    items
}

/// Whether a name has a line of its own. File names alone and variables are in the list of further names, with
/// their frequency.
fn is_listed(identifier: &Identifier<'_>) -> bool {
    match identifier.kind {
        IdentifierKind::File => identifier.is_path(),
        IdentifierKind::Variable => false,
        kind => kind.is_exact(),
    }
}

/// The names, each with whether it is exact without its surroundings.
fn extract(
    text: &str,
    max_chars: u64,
    is_wanted: impl Fn(&Identifier<'_>) -> bool,
) -> Vec<(bool, LedgerItem)> {
    let clean = redact(whole_words(text, max_chars));
    let mut seen = HashSet::new();
    let mut items = Vec::new();
    for_each_identifier(&clean, |identifier| {
        // Markup would end a block.
        let is_listed = is_wanted(&identifier) && !identifier.text.contains(['<', '>']);
        if is_listed && seen.insert(identifier.canonical().into_owned()) {
            items.push((identifier.is_distinct(), labelled(&identifier, &clean)));
        }
    });
    items
}

/// The beginning of a text up to a whole word: half a name is another one.
fn whole_words(text: &str, max_chars: u64) -> &str {
    let head = prefix(text, max_chars, 1);
    if head.len() == text.len() {
        return text;
    }
    head.rsplit_once(char::is_whitespace).map_or(head, |(whole, _)| whole)
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

/// A path or URL needs no label; other names are labelled with the words before them.
fn labelled(identifier: &Identifier<'_>, text: &str) -> LedgerItem {
    let name = identifier.text.to_owned();
    match identifier.kind {
        IdentifierKind::Port => return LedgerItem::new(format!("port {name}")),
        IdentifierKind::File => return LedgerItem::new(name),
        _ if name.contains("://") => return LedgerItem::new(name),
        _ => {}
    }
    let from = text.ceil_char_boundary(identifier.start.saturating_sub(LABEL_BYTES));
    let before = text.get(from..identifier.start).unwrap_or("");
    let line = before.rsplit(['\n', '.', ';', ',', '(', '|']).next().unwrap_or("");
    let is_word = |word: &&str| word.chars().all(char::is_alphabetic) && !word.is_empty();
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
    fn names_come_with_the_words_before_them() {
        for (text, lines) in [
            ("at commit deadbeefcafe", &["- [at commit] deadbeefcafe"][..]),
            ("fixes PROJ-1234 and #88", &["- [fixes] PROJ-1234", "- [and] #88"]),
            ("listens on port 8080", &["- port 8080"]),
            ("see localhost:3000", &["- [see] localhost:3000"]),
            ("upgraded to v2.4.1", &["- [upgraded to] v2.4.1"]),
            ("edit ./src/main.rs, /srv/app/a.rs", &["- src/main.rs", "- /srv/app/a.rs"]),
            ("and/or 1/2.5, UTF-8, 3.5 s", &[]),
            ("use sk-1234567890abcdef", &[]),
            (
                "invoice INV/2023/55 of € 1.249,50",
                &["- [invoice] INV/2023/55", "- [of] € 1.249,50"],
            ),
        ] {
            assert_eq!(found(text), lines, "{text}");
        }
    }

    #[test]
    fn absolute_paths_and_addresses_of_an_output_come_first() {
        let items = extract_output_names("src/a.rs:1, at /srv/b.rs, https://c.example/d", 1_000);
        let names: Vec<&str> = items.iter().map(|item| &*item.text).collect();
        assert_eq!(names, ["/srv/b.rs", "https://c.example/d", "src/a.rs"]);
    }

    #[test]
    fn a_name_at_the_end_of_what_is_read_is_whole_or_missing() {
        let names = extract_names("src/a.rs and src/webhook/save_auth.py", 20);
        assert_eq!(names.iter().map(|item| &*item.text).collect::<Vec<_>>(), ["src/a.rs"]);
    }

    #[test]
    fn a_part_of_a_longer_name_does_not_mention_it() {
        assert!(is_mentioned("src/a.rs", "(src/a.rs:12)"));
        assert!(!is_mentioned("src/a.rs", "lib/src/a.rs and src/a.rs2"));
    }
}

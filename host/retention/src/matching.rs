//! Searches facts in texts: without case and white space, as whole words.

use aho_corasick::{AhoCorasick, MatchKind};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::facts::Fact;

/// The form in which texts are compared: lower case, one blank for each run of white space, and
/// accents as part of their characters: file names of macOS have them apart.
pub fn normalize(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !normal.is_empty() {
            normal.push(' ');
        }
        normal.extend(word.chars().flat_map(char::to_lowercase));
    }
    // Most texts are composed already.
    if is_nfc_quick(normal.chars()) == IsNormalized::Yes { normal } else { normal.nfc().collect() }
}

/// The numbers of the facts that occur in the texts, in one pass over them.
pub(super) fn find_mentions<'a>(
    facts: &[(usize, &Fact)],
    texts: impl Iterator<Item = &'a str>,
) -> Vec<usize> {
    if facts.is_empty() {
        return Vec::new();
    }
    let keys = facts.iter().map(|(_, fact)| fact.key.as_str());
    let Ok(searcher) = AhoCorasick::builder().match_kind(MatchKind::Standard).build(keys) else {
        // More keys than the searcher holds: counting them as lost never flatters a compaction.
        tracing::warn!(facts = facts.len(), "too many facts to search for");
        return Vec::new();
    };
    let mut found = Vec::new();
    for text in texts.map(normalize) {
        // Overlapping, because a command may contain a path that is a fact of its own.
        for at in searcher.find_overlapping_iter(&text) {
            let Some((number, fact)) = facts.get(at.pattern().as_usize()) else { continue };
            if is_whole_word(&text, at.start(), at.end(), fact.is_beginning) {
                found.push(*number);
            }
        }
    }
    found
}

/// Whether a match ends at word boundaries; a fact known by its beginning may continue.
fn is_whole_word(text: &str, start: usize, end: usize, is_beginning: bool) -> bool {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let before = text.get(..start).and_then(|before| before.chars().next_back());
    let after = text.get(end..).and_then(|after| after.chars().next());
    !before.is_some_and(is_word) && (is_beginning || !after.is_some_and(is_word))
}

#[cfg(test)]
mod tests {
    use super::super::Category;
    use super::*;

    fn is_found(key: &str, text: &str) -> bool {
        let key = normalize(key);
        let fact = Fact { category: Category::Paths, text: key.clone(), key, is_beginning: false };
        !find_mentions(&[(0, &fact)], std::iter::once(text)).is_empty()
    }

    #[test]
    fn blanks_and_case_do_not_count_and_words_are_whole() {
        assert!(is_found("cargo test\n  -q", "ran `Cargo test -q`, fine"));
        assert!(is_found("src/a.rs", "see (./src/a.rs:12)"));
        assert!(!is_found("src/a.rs", "see src/a.rs2"));
        assert!(!is_found("a.rs", "see data.rs"));
        assert!(!is_found("DEADBEEF", "0deadbeef"));
    }

    #[test]
    fn accents_apart_from_their_characters_are_the_same() {
        assert!(is_found("docs/caf\u{e9}_3.md", "read docs/Cafe\u{301}_3.md"));
        assert!(is_found("docs/cafe\u{301}_3.md", "read docs/caf\u{e9}_3.md"));
        assert!(!is_found("docs/cafe", "read docs/cafe\u{301}"));
    }

    #[test]
    fn a_match_may_contain_another() {
        let fact = |key: &str| Fact {
            category: Category::Commands,
            text: String::new(),
            key: key.into(),
            is_beginning: false,
        };
        let (inner, outer) = (fact("src/a.rs"), fact("cat src/a.rs"));
        let mut found =
            find_mentions(&[(7, &inner), (9, &outer)], std::iter::once("now cat src/a.rs"));
        found.sort_unstable();
        assert_eq!(found, [7, 9]);
    }
}

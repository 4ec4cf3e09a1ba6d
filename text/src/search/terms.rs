//! Terms of a text: the keys of the index.
//!
//! A term is the hash of a lower-case word without common English suffixes. A word with other letters, whose endings are not known,
//! also gives its beginning. `parseHttp_body` gives its parts and itself; so do order numbers, amounts and mail addresses. Scripts
//! without spaces give pairs of characters.

use std::borrow::Cow;

use crate::hash;
use crate::identifiers::{IdentifierKind, for_each_identifier, is_unspaced};

/// A longer run, in bytes, is data such as base64.
const LONGEST_WORD_BYTES: usize = 48;

/// English suffixes without influence on the subject.
const ENDINGS: [&str; 5] = ["ing", "ed", "es", "s", "ly"];
/// Minimum stem, in bytes.
const SHORTEST_STEM_BYTES: usize = 3;

/// Letters that forms of one word share at its beginning. Pieces of four letters find about as much as stemmers, in any
/// European language (McNamee and Mayfield, 2004).
const BEGINNING_CHARS: usize = 4;

/// Arabic articles, with the prepositions and conjunctions that are written with them.
const ARABIC_ARTICLES: [&str; 6] = ["وال", "بال", "كال", "فال", "ال", "لل"];

/// English stop words. Other languages rely on the weight of rare terms.
const STOP_WORDS: [&str; 94] = [
    "a", "about", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being",
    "but", "by", "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he",
    "her", "here", "him", "his", "how", "i", "if", "in", "is", "it", "its", "just", "ll", "me",
    "my", "no", "not", "of", "on", "or", "our", "re", "s", "she", "should", "so", "some", "t",
    "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those",
    "to", "us", "ve", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "why",
    "will", "with", "would", "you", "your", "d", "m", "don", "didn", "doesn", "into", "out", "up",
    "down", "over", "again",
];

/// Calls `found` with each term of a text, in order, repetitions included.
pub fn for_each_term(text: &str, mut found: impl FnMut(u64)) {
    for_each_form(text, |term, _| found(term));
}

/// The unique terms of a text, one for each word, in order of first occurrence.
pub fn distinct_terms(text: &str) -> Vec<u64> {
    let mut terms = Vec::new();
    for_each_form(text, |term, form| {
        if form == TermForm::Word && !terms.contains(&term) {
            terms.push(term);
        }
    });
    terms
}

/// What a term stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TermForm {
    /// A word, a name or a pair of characters.
    Word,
    /// Its beginning, which other forms of the word share.
    Beginning,
}

fn for_each_form(text: &str, mut found: impl FnMut(u64, TermForm)) {
    let mut buffer = String::new();
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    for run in text.split(|character: char| !is_word(character)) {
        // A run of this length is encoded data: its terms would fill the index, and no prompt asks for them.
        if run.is_empty() || run.len() > 4 * LONGEST_WORD_BYTES {
            continue;
        }
        if run.is_ascii() {
            add_word(run, &mut buffer, &mut found);
        } else {
            add_mixed(run, &mut buffer, &mut found);
        }
    }
    for_each_identifier(text, |identifier| {
        // Their parts are numbers and words that many entries have.
        let is_whole = matches!(
            identifier.kind,
            IdentifierKind::Contact | IdentifierKind::Reference | IdentifierKind::Amount
        );
        if is_whole && !identifier.text.chars().all(is_word) {
            lower(identifier.text, &mut buffer);
            found(hash::fnv1a(&buffer), TermForm::Word);
        }
    });
}

/// A run with other scripts: parts without spaces become pairs of characters.
fn add_mixed(run: &str, buffer: &mut String, found: &mut impl FnMut(u64, TermForm)) {
    let mut word_start = 0;
    let mut pair: Option<(usize, char)> = None;
    let mut is_paired = false;
    for (at, character) in run.char_indices() {
        if !is_unspaced(character) {
            if let Some((start, _)) = pair.take()
                && !is_paired
            {
                let single = run.get(start..at).unwrap_or_default();
                found(hash::fnv1a(single), TermForm::Word);
            }
            continue;
        }
        match pair {
            None => {
                add_word(run.get(word_start..at).unwrap_or_default(), buffer, found);
                is_paired = false;
            }
            Some((start, _)) => {
                let end = at + character.len_utf8();
                // Scripts without spaces are indexed by pairs of characters: a dictionary for word borders would be larger than the engine.
                let pair = run.get(start..end).unwrap_or_default();
                found(hash::fnv1a(pair), TermForm::Word);
                is_paired = true;
            }
        }
        pair = Some((at, character));
        word_start = at + character.len_utf8();
    }
    if let Some((start, _)) = pair.filter(|_| !is_paired) {
        found(hash::fnv1a(run.get(start..).unwrap_or_default()), TermForm::Word);
    }
    add_word(run.get(word_start..).unwrap_or_default(), buffer, found);
}

/// A word or identifier: its parts, and itself if there are several.
fn add_word(word: &str, buffer: &mut String, found: &mut impl FnMut(u64, TermForm)) {
    if word.is_empty() || word.len() > LONGEST_WORD_BYTES {
        return;
    }
    let mut parts = 0;
    let mut start = 0;
    let mut previous = '_';
    let ends = word.char_indices().chain([(word.len(), '_')]);
    for (at, character) in ends {
        let is_hump = previous.is_lowercase() && character.is_uppercase();
        if is_hump || character == '_' {
            let part = word.get(start..at).unwrap_or_default();
            if !part.is_empty() {
                parts += 1;
                add_part(part, buffer, found);
            }
            start = if character == '_' { at + 1 } else { at };
        }
        previous = character;
    }
    // The whole name as well, so that `maxTokens` finds `maxTokens` before `tokens`.
    if parts > 1 {
        lower(word, buffer);
        found(hash::fnv1a(buffer), TermForm::Word);
    }
}

fn add_part(part: &str, buffer: &mut String, found: &mut impl FnMut(u64, TermForm)) {
    lower(part, buffer);
    // BM25 gives them no weight, but each would have a list as long as the history.
    if STOP_WORDS.contains(&buffer.as_str()) {
        return;
    }
    if buffer.is_ascii() {
        found(hash::fnv1a(&stem(buffer)), TermForm::Word);
        return;
    }
    found(hash::fnv1a(buffer), TermForm::Word);
    let beginning = beginning(buffer);
    if beginning.len() < buffer.len() {
        found(hash::fnv1a(beginning), TermForm::Beginning);
    }
}

/// What forms of a word with letters beyond ASCII have in common.
fn beginning(word: &str) -> &str {
    let is_long = |rest: &&str| rest.chars().count() >= SHORTEST_STEM_BYTES;
    let bare =
        ARABIC_ARTICLES.iter().find_map(|article| word.strip_prefix(*article).filter(is_long));
    let word = bare.unwrap_or(word);
    word.char_indices().nth(BEGINNING_CHARS).and_then(|(end, _)| word.get(..end)).unwrap_or(word)
}

fn lower(word: &str, buffer: &mut String) {
    buffer.clear();
    buffer.extend(word.chars().flat_map(char::to_lowercase));
}

/// An English word without what forms of it differ in: `study`, `studies` and `studied` give `studi`, `plan` and `planned` `plan`.
fn stem(word: &str) -> Cow<'_, str> {
    let long = |stem: &&str| stem.len() >= SHORTEST_STEM_BYTES;
    // The endings are English; of `v2s` they would cut what matters.
    if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Cow::Borrowed(word);
    }
    let cut = |ending: &&str| word.strip_suffix(*ending).filter(long);
    let stem = ENDINGS.iter().find_map(cut).unwrap_or(word);
    if let Some(before) = stem.strip_suffix('y').filter(long) {
        return Cow::Owned(format!("{before}i"));
    }
    let stem = stem.strip_suffix('e').filter(long).unwrap_or(stem);
    let is_doubled = matches!(stem.as_bytes(), [.., before, last] if before == last);
    let single = stem.get(..stem.len() - 1).filter(|single| is_doubled && long(single));
    Cow::Borrowed(single.unwrap_or(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(left: &str, right: &str) -> usize {
        let right = distinct_terms(right);
        distinct_terms(left).iter().filter(|term| right.contains(term)).count()
    }

    fn finds(text: &str, prompt: &str) -> bool {
        let mut terms = Vec::new();
        for_each_term(text, |term| terms.push(term));
        let mut is_found = false;
        for_each_term(prompt, |term| is_found |= terms.contains(&term));
        is_found
    }

    #[test]
    fn endings_and_case_do_not_count() {
        assert_eq!(shared("Booking flights", "the flight was booked"), 2);
        assert_eq!(distinct_terms("the of and I"), Vec::<u64>::new());
    }

    #[test]
    fn forms_of_a_word_give_one_term() {
        for forms in [
            "surcharge surcharges",
            "file files filed filing",
            "study studies studied studying",
            "plan plans planned planning",
            "call calls called",
            "process processes",
            "berry berries",
            "bridge bridges bridged",
            "class classes",
        ] {
            assert_eq!(distinct_terms(forms).len(), 1, "{forms}");
        }
        for (one, other) in [
            ("ключ", "ключами"),
            ("сервер", "сервера"),
            ("مفتاح", "والمفتاح"),
            ("Schlüssel", "Schlüsseln"),
            ("größe", "Größen"),
            ("θερμοκρασία", "θερμοκρασίας"),
        ] {
            assert!(finds(one, other), "{one}");
        }
        assert!(!finds("red", "read") && !finds("bus", "business"));
    }

    #[test]
    fn an_identifier_is_found_by_its_parts_and_as_a_whole() {
        for query in ["parse", "http", "body", "parseHttp_body"] {
            assert!(shared("call parseHttp_body()", query) >= 1, "{query}");
        }
        assert_eq!(distinct_terms("parseHttp_body").len(), 4);
        assert_eq!(shared("src/main.rs", "open main"), 1);
    }

    #[test]
    fn scripts_without_blanks_give_pairs() {
        assert_eq!(distinct_terms("数据库端口").len(), 4);
        assert_eq!(shared("数据库端口是八千", "端口"), 1);
        assert_eq!(distinct_terms("你").len(), 1);
        assert_eq!(shared("使用redis缓存", "redis"), 1);
        assert_eq!(distinct_terms("redis缓存v2").len(), 3);
    }

    #[test]
    fn other_languages_are_words() {
        assert_eq!(shared("Der Schlüssel liegt unter Größe", "größe schlüssel"), 2);
        assert_eq!(shared("где лежит ключ", "КЛЮЧ"), 1);
    }

    #[test]
    fn a_reference_is_found_as_a_whole_before_its_parts() {
        let text = "order ORD-2024-00817 of max@example.com";
        assert_eq!(shared(text, "ORD-2024-00817"), 4);
        assert_eq!(shared(text, "ORD-2024-00916"), 2);
        assert_eq!(shared(text, "max@example.com"), 4);
    }

    #[test]
    fn data_has_no_terms() {
        assert_eq!(distinct_terms(&"a1B".repeat(100)), Vec::<u64>::new());
    }
}

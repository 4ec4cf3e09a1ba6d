//! Which requests repeat others: "handle item 7 of the list" among a hundred like it. They give way to requests that are
//! said once.

use std::collections::HashMap;

use ctxhost_text::hash::fnv1a;

/// Words of a request that are compared; the beginning of a pasted text says what it is.
const COMPARED_WORDS: u8 = 40;
/// Requests with one wording that count as said once: the newest ones.
const NEWEST: usize = 3;
/// Share of the words of a request that its repetitions have, at least.
// One in five: the name of a page or a component.
const COMMON_SHARE: f64 = 0.8;

/// Which words of each request newer ones have, the oldest request first.
#[derive(Debug, Default)]
pub(crate) struct WordingCounts {
    requests: Vec<WordCount>,
    /// Numbers of the newest requests with a word, from 1, the oldest first; 0 where there are fewer.
    newest: HashMap<u32, [u32; NEWEST]>,
}

/// The different words of a request.
#[derive(Clone, Copy, Debug, Default)]
struct WordCount {
    words: u8,
    /// Those that at least as many newer requests as count have, each word its own.
    common: u8,
}

impl WordingCounts {
    /// Adds the next request.
    pub(crate) fn add(&mut self, text: &str) {
        let words = words(text);
        let number = u32::try_from(self.requests.len() + 1).unwrap_or(u32::MAX);
        for word in &words {
            let newest = self.newest.entry(*word).or_default();
            let [oldest, second, third] = *newest;
            *newest = [second, third, number];
            // The newest few requests with the word are now all newer than this one. Counted here, so that a
            // choice among thousands of requests reads none of their words.
            let oldest = oldest.checked_sub(1).and_then(|at| self.requests.get_mut(at as usize));
            oldest.into_iter().for_each(|request| request.common += 1);
        }
        self.requests.push(WordCount { words: words.len() as u8, common: 0 });
    }

    /// Whether newer requests have nearly all words of this one.
    pub(crate) fn is_repeated(&self, at: usize) -> bool {
        let counted = self.requests.get(at).filter(|request| request.words > 0);
        counted.is_some_and(|request| {
            f64::from(request.common) >= COMMON_SHARE * f64::from(request.words)
        })
    }

    /// Memory use in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let row = size_of::<(u32, [u32; NEWEST])>() + 1;
        self.requests.capacity() * size_of::<WordCount>() + self.newest.capacity() * row
    }
}

/// The positions of the texts that newer ones repeat. `oldest_first` is their order.
pub(crate) fn find_repeated<'a>(oldest_first: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let mut counts = WordingCounts::default();
    oldest_first.for_each(|text| counts.add(text));
    (0..counts.requests.len()).map(|at| counts.is_repeated(at)).collect()
}

/// The different words of a text, without those that contain digits: numbers distinguish repetitions.
fn words(text: &str) -> Vec<u32> {
    let words = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()));
    // Half of the hash: two words that share it only make two requests look more alike.
    let hash = |word: &str| (fnv1a(&word.to_lowercase()) >> u32::BITS) as u32;
    let mut words: Vec<u32> = words.take(usize::from(COMPARED_WORDS)).map(hash).collect();
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether enough newer requests have nearly all words of one, found by reading them all.
    fn is_repeated_by_reading(texts: &[String], at: usize) -> bool {
        let own = words(&texts[at]);
        let newer: Vec<Vec<u32>> = texts[at + 1..].iter().map(|text| words(text)).collect();
        let having = |word: &u32| newer.iter().filter(|words| words.contains(word)).count();
        let common = own.iter().filter(|word| having(word) >= NEWEST).count();
        !own.is_empty() && common as f64 >= COMMON_SHARE * own.len() as f64
    }

    proptest! {
        #[test]
        fn counts_agree_with_reading_all_requests(
            texts in prop::collection::vec("([a-f][a-c]?[0-9]? ){0,8}", 0..24)
        ) {
            let repeated = find_repeated(texts.iter().map(String::as_str));
            let read: Vec<bool> =
                (0..texts.len()).map(|at| is_repeated_by_reading(&texts, at)).collect();
            prop_assert_eq!(repeated, read);
        }
    }

    #[test]
    fn what_is_said_once_is_not_repeated() {
        let mut texts: Vec<String> = (0..10)
            .map(|n| format!("Please handle item {n} of the list, file src/part_{n}.rs, now."))
            .collect();
        texts.insert(2, "My name is Ilse Brandt.".to_owned());
        texts.insert(4, "The API returns amounts in cents, file by file.".to_owned());
        texts.insert(6, "私の名前は田中です。".to_owned());
        let repeated = find_repeated(texts.iter().map(String::as_str));
        let shown: Vec<usize> = (0..repeated.len()).filter(|at| !repeated[*at]).collect();
        assert_eq!(shown, [2, 4, 6, 10, 11, 12], "and the newest three of each wording");
        assert!(!find_repeated(["go on", "go on", "go on"].into_iter()).contains(&true));
        assert_eq!(find_repeated(["7", "8"].into_iter()), [false, false]);
    }

    #[test]
    fn one_other_word_is_still_the_same_request() {
        let pages = ["login", "logout", "start", "help", "error"];
        let texts: Vec<String> = pages
            .iter()
            .map(|page| format!("Please translate the {page} page into French and check it"))
            .collect();
        let repeated = find_repeated(texts.iter().map(String::as_str));
        assert_eq!(repeated, [true, true, false, false, false]);
    }
}

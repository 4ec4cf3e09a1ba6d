//! Which requests repeat others: "handle item 7 of the list" among a hundred like it. They give way to requests that are
//! said once.

use std::collections::HashMap;

use crate::hash::fnv1a;

/// Words of a request that are compared; the beginning of a pasted text says what it is.
const COMPARED_WORDS: usize = 40;
/// Requests with one wording that count as said once: the newest ones.
const NEWEST: usize = 3;
/// Share of the words of a request that its repetitions have, at least.
// One in five: the name of a page or a component.
const COMMON_SHARE: f64 = 0.8;

/// The words of requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct WordingCounts {
    /// The words of each request.
    requests: Vec<Box<[u32]>>,
    /// Numbers of the newest requests with a word, from 1, the oldest first; 0 where there are fewer.
    newest: HashMap<u32, [u32; NEWEST]>,
}

impl WordingCounts {
    /// Adds the next request.
    pub(crate) fn add(&mut self, text: &str) {
        let words = words(text);
        let number = u32::try_from(self.requests.len() + 1).unwrap_or(u32::MAX);
        for word in &words {
            let [_, second, third] = self.newest.get(word).copied().unwrap_or_default();
            self.newest.insert(*word, [second, third, number]);
        }
        self.requests.push(words);
    }

    /// Whether at least as many newer requests as count have nearly all words of this one, each of them its own.
    pub(crate) fn is_repeated(&self, at: usize) -> bool {
        let Some(words) = self.requests.get(at).filter(|words| !words.is_empty()) else {
            return false;
        };
        // The newest few requests with the word are all newer than this one.
        let is_common = |word: &&u32| {
            self.newest.get(*word).is_some_and(|[oldest, ..]| *oldest as usize > at + 1)
        };
        let common = words.iter().filter(is_common).count();
        common as f64 >= COMMON_SHARE * words.len() as f64
    }

    /// Memory use in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let words: usize = self.requests.iter().map(|words| words.len()).sum();
        (words + self.newest.len() * (1 + NEWEST)) * size_of::<u32>()
    }
}

/// The positions of the texts that newer ones repeat. `oldest_first` is their order.
pub(crate) fn find_repeated<'a>(oldest_first: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let mut counts = WordingCounts::default();
    oldest_first.for_each(|text| counts.add(text));
    (0..counts.requests.len()).map(|at| counts.is_repeated(at)).collect()
}

/// The different words of a text, without those that contain digits: numbers distinguish repetitions.
fn words(text: &str) -> Box<[u32]> {
    let words = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()));
    // Half of the hash: two words that share it only make two requests look more alike.
    let hash = |word: &str| (fnv1a(&word.to_lowercase()) >> u32::BITS) as u32;
    let mut words: Vec<u32> = words.take(COMPARED_WORDS).map(hash).collect();
    words.sort_unstable();
    words.dedup();
    words.into()
}

#[cfg(test)]
mod tests {
    use super::*;

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

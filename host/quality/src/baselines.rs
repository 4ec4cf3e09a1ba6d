//! Baselines: selections of whole entries without an engine, comparable with published figures.

use std::collections::{BTreeSet, HashMap, HashSet};

/// The usual constants of BM25.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// English stop words.
const STOP_WORDS: &str = " a about all also am an and any are as at be been being but by can could did do does for from had has have he her here him his how i if in is it its just me my no not of on or our she should so some than that the their them then there these they this those to us was we were what when where which who whom why will with would you your ";

/// A selection of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The newest turns.
    Tail,
    /// The turns with the highest BM25 score.
    Bm25,
    /// The same, each with the turn before and after it.
    Neighbours,
    /// All turns, whatever the budget.
    Whole,
}

impl Baseline {
    /// All baselines.
    pub const ALL: [Baseline; 4] =
        [Baseline::Tail, Baseline::Bm25, Baseline::Neighbours, Baseline::Whole];

    /// The name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Tail => "tail",
            Baseline::Bm25 => "bm25",
            Baseline::Neighbours => "bm25-neighbours",
            Baseline::Whole => "whole",
        }
    }

    /// The baseline with this name.
    pub fn parse(name: &str) -> Option<Baseline> {
        Baseline::ALL.into_iter().find(|baseline| baseline.name() == name)
    }

    /// The entries of a history that it shows. The prompt is among them whenever entries are ranked by it.
    pub(crate) fn choose(
        self,
        history: &[BaselineEntry],
        prompt: Option<usize>,
        scores: &[f64],
        budget_tokens: u64,
    ) -> BTreeSet<usize> {
        let cost = |at: usize| history.get(at).map_or(0, |entry| entry.tokens);
        let mut room = budget_tokens;
        match self {
            Baseline::Whole => (0..history.len()).collect(),
            Baseline::Tail => (0..history.len())
                .rev()
                .map_while(|at| {
                    room = room.checked_sub(cost(at))?;
                    Some(at)
                })
                .collect(),
            Baseline::Bm25 | Baseline::Neighbours => {
                let mut order: Vec<usize> = (0..history.len()).collect();
                let score = |at: &usize| scores.get(*at).copied().unwrap_or(0.0);
                // Entries without a common word are never relevant for BM25, even if the budget has
                // room.
                order.retain(|at| score(at) > 0.0);
                order.sort_by(|left, right| {
                    // Ties by position, so that runs are reproducible.
                    score(right).total_cmp(&score(left)).then(left.cmp(right))
                });
                let ranked = order.into_iter().flat_map(|at| self.around(history, at));
                let mut chosen = BTreeSet::new();
                for at in prompt.into_iter().chain(ranked) {
                    if !chosen.contains(&at)
                        && let Some(rest) = room.checked_sub(cost(at))
                    {
                        room = rest;
                        chosen.insert(at);
                    }
                }
                chosen
            }
        }
    }

    /// Whether it ranks entries by the prompt.
    pub(crate) fn is_ranked(self) -> bool {
        matches!(self, Baseline::Bm25 | Baseline::Neighbours)
    }

    fn around(self, history: &[BaselineEntry], at: usize) -> Vec<usize> {
        if self != Baseline::Neighbours {
            return vec![at];
        }
        let conversation = |at: usize| history.get(at).map(|entry| &entry.conversation);
        let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
        let beside = beside.filter(|other| {
            // A neighbour in another conversation is unrelated text.
            conversation(*other).is_some() && conversation(*other) == conversation(at)
        });
        std::iter::once(at).chain(beside).collect()
    }
}

/// An entry that a baseline may select.
#[derive(Clone, Debug)]
pub(crate) struct BaselineEntry {
    /// Its conversation; empty in a recording, which is one conversation.
    pub(crate) conversation: String,
    /// Its size, in tokens as entries count them.
    pub(crate) tokens: u64,
}

/// The words of the texts that BM25 ranks.
#[derive(Debug, Default)]
pub(crate) struct Bm25Index {
    /// How often each word occurs in a text, and the number of its words.
    texts: Vec<(HashMap<String, f64>, f64)>,
    words: f64,
}

impl Bm25Index {
    pub(crate) fn push(&mut self, text: &str) {
        let mut counts: HashMap<String, f64> = HashMap::new();
        let mut length = 0.0;
        for word in words(text) {
            *counts.entry(word).or_default() += 1.0;
            length += 1.0;
        }
        self.words += length;
        self.texts.push((counts, length));
    }

    /// The score of each text for a query, in the order of the texts.
    pub(crate) fn scores(&self, query: &str) -> Vec<f64> {
        let count = self.texts.len() as f64;
        let mean = self.words / count.max(1.0);
        // In the order of the query, so that floating-point sums are the same in every run.
        let mut query = words(query);
        let mut seen = HashSet::new();
        query.retain(|word| seen.insert(word.clone()));
        let rarities: Vec<f64> = query
            .iter()
            .map(|word| {
                let holding =
                    self.texts.iter().filter(|(counts, _)| counts.contains_key(word)).count()
                        as f64;
                (1.0 + (count - holding + 0.5) / (holding + 0.5)).ln()
            })
            .collect();
        let score = |(counts, length): &(HashMap<String, f64>, f64)| {
            let of_word = |(word, rarity): (&String, &f64)| {
                let times = counts.get(word).copied().unwrap_or(0.0);
                rarity * times * (K1 + 1.0) / (times + K1 * (1.0 - B + B * length / mean))
            };
            query.iter().zip(&rarities).map(of_word).sum()
        };
        self.texts.iter().map(score).collect()
    }
}

/// The words of a text in lower case, without stop words and common suffixes.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.filter(|word| !STOP_WORDS.contains(&format!(" {word} ")));
    words.map(|word| stem(word).to_owned()).collect()
}

fn stem(word: &str) -> &str {
    let endings = ["ing", "ed", "es", "s", "ly"];
    // A crude stemmer, enough for comparison with published BM25 figures.
    let cut = |ending: &&str| word.strip_suffix(*ending).filter(|stem| stem.len() >= 3);
    endings.iter().find_map(cut).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_baseline_chooses_what_its_name_says() {
        let texts = ["I bought blue shoes", "Nice to hear", "Rain today again", "It is cold"];
        let mut index = Bm25Index::default();
        texts.iter().for_each(|text| index.push(text));
        let entry = BaselineEntry { conversation: String::new(), tokens: 4 };
        let history = vec![entry; texts.len()];
        let scores = index.scores("Which shoes did I buy?");
        let chosen = |baseline: Baseline, prompt, budget_tokens| -> Vec<usize> {
            baseline.choose(&history, prompt, &scores, budget_tokens).into_iter().collect()
        };
        assert_eq!(chosen(Baseline::Tail, None, 8), [2, 3]);
        assert_eq!(chosen(Baseline::Bm25, None, 8), [0]);
        assert_eq!(chosen(Baseline::Bm25, Some(3), 8), [0, 3]);
        assert_eq!(chosen(Baseline::Neighbours, None, 8), [0, 1]);
        assert_eq!(chosen(Baseline::Whole, None, 0), [0, 1, 2, 3]);
    }
}

//! Baselines: selections of whole turns without an engine, comparable with published figures.

use std::collections::{BTreeSet, HashMap, HashSet};

use ctxhost_engine_api::transcript::tokens;

use crate::dataset::LabelledQuestion;

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

    /// The turns of a question's history that fit the budget.
    pub(crate) fn choose(
        self,
        question: &LabelledQuestion,
        scores: &[f64],
        budget_tokens: u64,
    ) -> BTreeSet<usize> {
        let cost =
            |at: usize| question.turns.get(at).map_or(0, |turn| tokens::estimate(&turn.text));
        let newest_first = || (0..question.turns.len()).rev();
        match self {
            Baseline::Whole => (0..question.turns.len()).collect(),
            Baseline::Tail => {
                let mut room = budget_tokens;
                newest_first()
                    .map_while(|at| {
                        room = room.checked_sub(cost(at))?;
                        Some(at)
                    })
                    .collect()
            }
            Baseline::Bm25 | Baseline::Neighbours => {
                let mut order: Vec<usize> = (0..question.turns.len()).collect();
                let score = |at: &usize| scores.get(*at).copied().unwrap_or(0.0);
                // Turns without a common word are never evidence for BM25, even if the budget has
                // room.
                order.retain(|at| score(at) > 0.0);
                order.sort_by(|left, right| {
                    // Ties by position, so that runs are reproducible.
                    score(right).total_cmp(&score(left)).then(left.cmp(right))
                });
                let mut chosen = BTreeSet::new();
                let mut room = budget_tokens;
                for at in order {
                    for turn in self.around(question, at) {
                        if !chosen.contains(&turn)
                            && let Some(rest) = room.checked_sub(cost(turn))
                        {
                            room = rest;
                            chosen.insert(turn);
                        }
                    }
                }
                chosen
            }
        }
    }

    fn around(self, question: &LabelledQuestion, at: usize) -> Vec<usize> {
        if self != Baseline::Neighbours {
            return vec![at];
        }
        let conversation = |at: usize| question.turns.get(at).map(|turn| &turn.conversation);
        let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
        let beside = beside.filter(|turn| {
            // A neighbour in another conversation is unrelated text.
            conversation(*turn).is_some() && conversation(*turn) == conversation(at)
        });
        std::iter::once(at).chain(beside).collect()
    }
}

/// The BM25 score of each turn for the question.
pub(crate) fn score_turns(question: &LabelledQuestion) -> Vec<f64> {
    let turns: Vec<Vec<String>> = question.turns.iter().map(|turn| words(&turn.text)).collect();
    let count = turns.len() as f64;
    let mean = turns.iter().map(Vec::len).sum::<usize>() as f64 / count.max(1.0);
    let mut holding: HashMap<&str, f64> = HashMap::new();
    for turn in &turns {
        let distinct: HashSet<&str> = turn.iter().map(String::as_str).collect();
        distinct.into_iter().for_each(|word| *holding.entry(word).or_default() += 1.0);
    }
    // In the order of the question, so that floating-point sums are the same in every run.
    let mut query = words(&question.query);
    let mut seen = HashSet::new();
    query.retain(|word| seen.insert(word.clone()));
    let score = |turn: &Vec<String>| {
        let of_word = |word: &String| {
            let times = turn.iter().filter(|other| *other == word).count() as f64;
            let holding = holding.get(word.as_str()).copied().unwrap_or(0.0);
            let rarity = (1.0 + (count - holding + 0.5) / (holding + 0.5)).ln();
            rarity * times * (K1 + 1.0) / (times + K1 * (1.0 - B + B * turn.len() as f64 / mean))
        };
        query.iter().map(of_word).sum()
    };
    turns.iter().map(score).collect()
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
    use crate::dataset::HistoryTurn;

    fn question(texts: &[&str], query: &str) -> LabelledQuestion {
        let turn = |text: &&str| HistoryTurn {
            conversation: "a".into(),
            time: String::new(),
            role: "user".into(),
            text: (*text).into(),
        };
        LabelledQuestion {
            id: "q".into(),
            category: String::new(),
            query: query.into(),
            query_date: String::new(),
            evidence: vec![0],
            turns: texts.iter().map(turn).collect(),
        }
    }

    fn chosen(baseline: Baseline, question: &LabelledQuestion, budget_tokens: u64) -> Vec<usize> {
        baseline.choose(question, &score_turns(question), budget_tokens).into_iter().collect()
    }

    #[test]
    fn each_baseline_chooses_what_its_name_says() {
        let texts = ["I bought blue shoes", "Nice to hear", "Rain today again", "It is cold"];
        let question = question(&texts, "Which shoes did I buy?");
        assert_eq!(chosen(Baseline::Tail, &question, 8), [2, 3]);
        assert_eq!(chosen(Baseline::Bm25, &question, 8), [0]);
        assert_eq!(chosen(Baseline::Neighbours, &question, 8), [0, 1]);
        assert_eq!(chosen(Baseline::Whole, &question, 0), [0, 1, 2, 3]);
    }
}

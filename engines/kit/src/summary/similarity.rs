//! Detects lines with the same meaning but different wording.

use std::collections::BTreeSet;

/// Lines that share this percentage of their words are similar.
const SAME_PERCENT: usize = 80;
/// A line with fewer words must match exactly.
// A single common word proves nothing: `done` is contained in `done and dusted`.
const LEAST_WORDS: usize = 2;

/// Words that negate a sentence.
const NEGATIONS: [&str; 12] =
    ["not", "no", "never", "none", "without", "don", "doesn", "isn", "cannot", "不", "没", "无"];

/// The words of a line, prepared for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineWords {
    words: BTreeSet<String>,
    /// Numbers and negations: lines that differ in one of them are not similar.
    decisive: BTreeSet<String>,
}

impl LineWords {
    pub(super) fn new(line: &str) -> LineWords {
        let words: BTreeSet<String> = words(line).collect();
        let is_decisive = |word: &&String| {
            word.contains(|c: char| c.is_ascii_digit()) || NEGATIONS.contains(&word.as_str())
        };
        let decisive = words.iter().filter(is_decisive).cloned().collect();
        LineWords { words, decisive }
    }

    /// Whether both lines mean the same, or one is contained in the other.
    pub(super) fn is_similar(&self, other: &LineWords) -> bool {
        // "3 tests fail" and "5 tests fail" share most words and mean different things.
        if self.decisive != other.decisive {
            return false;
        }
        if self.words == other.words {
            return !self.words.is_empty();
        }
        let common = self.words.intersection(&other.words).count();
        let (fewer, more) = (self.words.len(), other.words.len());
        let (fewer, more) = (fewer.min(more), fewer.max(more));
        // The shorter line is contained in the longer one.
        let is_part = common == fewer && fewer >= LEAST_WORDS;
        is_part || common * 100 >= (fewer + more - common) * SAME_PERCENT
    }
}

/// Lower-case words; scripts without spaces are split into characters.
fn words(line: &str) -> impl Iterator<Item = String> + '_ {
    line.split(|c: char| !c.is_alphanumeric()).flat_map(|run| {
        let is_wide =
            run.contains(|c: char| !c.is_ascii() && !c.is_lowercase() && !c.is_uppercase());
        let parts: Vec<String> = if is_wide {
            run.chars().map(|c| c.to_lowercase().collect()).collect()
        } else {
            vec![run.to_lowercase()]
        };
        parts.into_iter().filter(|word| !word.is_empty())
    })
}

/// Removes each line that a later one repeats.
pub(super) fn keep_newest_unique(lines: Vec<String>) -> Vec<String> {
    let mut kept: Vec<(LineWords, String)> = Vec::new();
    for line in lines.into_iter().rev() {
        let meaning = LineWords::new(&line);
        if !kept.iter().any(|(known, text)| *text == line || known.is_similar(&meaning)) {
            kept.push((meaning, line));
        }
    }
    kept.into_iter().rev().map(|(_, line)| line).collect()
}

/// Removes the lines that are similar to one of `others`.
pub(super) fn remove_similar(lines: &mut Vec<String>, others: &[String]) {
    let others: Vec<LineWords> = others.iter().map(|line| LineWords::new(line)).collect();
    lines.retain(|line| {
        let meaning = LineWords::new(line);
        !others.iter().any(|other| other.is_similar(&meaning))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_lines_are_the_same_and_numbers_and_negations_decide() {
        for (a, b, expected) in [
            ("All committed.", "all committed!", true),
            ("All committed.", "All clean, all committed.", true),
            ("Removed both of the old files", "Removed both old files", true),
            ("3 tests fail", "5 tests fail", false),
            ("push to main", "do not push to main", false),
            ("Never push.", "use tabs", false),
            ("先读文件", "先读文件。", true),
            ("不要改文件", "改文件", false),
            ("done", "done and dusted", false),
        ] {
            assert_eq!(LineWords::new(a).is_similar(&LineWords::new(b)), expected, "{a} / {b}");
        }
    }

    #[test]
    fn the_newest_of_near_lines_stays() {
        let lines = ["Fixed the parser.", "use tabs", "fixed the parser"].map(str::to_owned);
        assert_eq!(keep_newest_unique(lines.to_vec()), ["use tabs", "fixed the parser"]);
    }
}

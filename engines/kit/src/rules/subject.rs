//! What a rule is about: a later rule replaces an earlier one about the same.

use super::{is_change, without_cues};
use crate::identifiers::for_each_identifier;
use crate::search::distinct_terms;

/// Common share of two subjects from which the later rule replaces the earlier; lower if it
/// announces a change.
const SAME_SUBJECT: f32 = 0.6;
const CHANGED_SUBJECT: f32 = 0.45;
/// Verbs of instructions, which do not identify the subject.
const COMMON_VERBS: &str =
    "use run write make add keep put get set go goes do need want please ever begin end";

/// The subject of a rule.
#[derive(Clone, Debug)]
pub struct RuleSubject {
    /// The terms without cues, common verbs, names and numbers.
    terms: Vec<u64>,
    /// Names and numbers, sorted: only an announced change gives a subject other ones.
    values: Vec<String>,
    is_change: bool,
}

impl RuleSubject {
    /// The subject of a rule on one line.
    pub fn new(rule: &str) -> RuleSubject {
        let plain = without_cues(rule);
        let mut values = Vec::new();
        let mut rest = String::new();
        let mut read = 0;
        for_each_identifier(&plain, |value| {
            // A name inside a longer one is part of it.
            if let Some(before) = plain.get(read..value.start) {
                rest.push_str(before);
                values.push(value.text.to_lowercase());
                read = value.start + value.text.len();
            }
        });
        rest.push_str(plain.get(read..).unwrap_or_default());
        let (more, words): (Vec<&str>, Vec<&str>) =
            rest.split_whitespace().partition(|word| is_value(word));
        let words: Vec<&str> = words.into_iter().filter(|word| !is_common_verb(word)).collect();
        values.extend(more.into_iter().map(bare_word));
        values.sort_unstable();
        RuleSubject { terms: distinct_terms(&words.join(" ")), values, is_change: is_change(rule) }
    }

    /// The numbers of those rules of `earlier`, in rising order, that this one replaces.
    pub fn replaced<'s>(
        &self,
        earlier: impl Iterator<Item = (usize, &'s RuleSubject)>,
    ) -> Vec<usize> {
        // An announced change needs less evidence.
        let least = if self.is_change { CHANGED_SUBJECT } else { SAME_SUBJECT };
        let shares = earlier
            .filter(|(_, other)| self.is_change || self.values == other.values)
            .map(|(number, other)| (number, common_share(&self.terms, &other.terms)));
        let mut related: Vec<(usize, f32)> = shares.filter(|(_, share)| *share >= least).collect();
        if self.is_change {
            // A change replaces only the nearest rule; a repetition replaces every equal one.
            related.sort_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
            related.truncate(1);
        }
        related.into_iter().map(|(number, _)| number).collect()
    }
}

/// The rules, oldest first, without those that a later one replaces.
#[must_use]
pub fn drop_replaced(rules: Vec<String>) -> Vec<String> {
    let mut valid: Vec<(String, RuleSubject)> = Vec::new();
    for rule in rules {
        let subject = RuleSubject::new(&rule);
        let earlier = valid.iter().enumerate().map(|(number, (_, subject))| (number, subject));
        let replaced = subject.replaced(earlier);
        let mut number = 0..;
        valid.retain(|_| number.next().is_none_or(|number| !replaced.contains(&number)));
        valid.push((rule, subject));
    }
    valid.into_iter().map(|(rule, _)| rule).collect()
}

/// Whether another word has a value, such as `eu-1`, `4`, `McDonald`, `orders/eu`.
fn is_value(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    // Every sentence begins with a capital.
    let has_hump = word.chars().skip(1).any(char::is_uppercase);
    has_hump || word.contains(|c: char| c.is_numeric() || "/_.@\\:=".contains(c))
}

/// A word in lower case without the marks around it.
fn bare_word(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

fn is_common_verb(word: &str) -> bool {
    let word = bare_word(word);
    COMMON_VERBS.split(' ').any(|verb| verb == word)
}

/// Common share of the smaller subject. A single common word is too little if both have more.
fn common_share(new: &[u64], old: &[u64]) -> f32 {
    let common = new.iter().filter(|term| old.contains(term)).count();
    let smaller = new.len().min(old.len());
    // One common word is chance.
    if smaller == 0 || (common == 1 && smaller > 2) { 0.0 } else { common as f32 / smaller as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid(rules: &[&str]) -> Vec<String> {
        drop_replaced(rules.iter().map(|rule| (*rule).to_owned()).collect())
    }

    #[test]
    fn a_later_rule_about_the_same_replaces_the_earlier() {
        let rules = [
            "Always deploy to region eu-1.",
            "Never push to main without review.",
            "From now on deploy to region us-7 instead.",
        ];
        assert_eq!(valid(&rules), [rules[1], rules[2]]);
        let folders = [
            "Never write to the database orders/live.",
            "From now on never write to the database users/copy instead.",
        ];
        assert_eq!(valid(&folders), folders[1..]);
        let tokio = [
            "Do not use tokio anywhere, we use async-std only.",
            "Deploy only on Fridays.",
            "Change of plan: we do use tokio now, drop async-std.",
        ];
        assert_eq!(valid(&tokio), [tokio[1], tokio[2]]);
    }

    #[test]
    fn rules_about_different_things_stay() {
        let files = ["Never touch /srv/a.toml.", "Never touch /srv/b.toml."];
        assert_eq!(valid(&files), files);
        let apart = [
            "Always write tests for parsers.",
            "Never use tabs in Makefiles.",
            "Always answer in German.",
        ];
        assert_eq!(valid(&apart), apart);
    }
}

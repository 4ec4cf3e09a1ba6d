//! What a rule is about: a later rule replaces an earlier one about the same.

use super::{cues_of, is_change, without_cues};
use crate::identifiers::for_each_identifier;
use crate::search::distinct_terms;

/// Common share of two subjects from which the later rule replaces the earlier; lower if it
/// announces a change.
const SAME_SUBJECT: f32 = 0.6;
const CHANGED_SUBJECT: f32 = 0.45;
/// Terms of the longer subject up to which one common term may be the subject of a change.
const SHORT_SUBJECT_TERMS: usize = 3;
/// Words that turn a statement into its opposite, besides the cues.
const NEGATIONS: &str = "not no t cannot without nicht kein keine pas não non niet ne не";
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
    /// Cues and negations, sorted: with others the same terms mean something else.
    sense: Vec<String>,
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
        let terms = distinct_terms(&words.join(" "));
        RuleSubject { terms, values, sense: sense_of(rule), is_change: is_change(rule) }
    }

    /// Whether it says the same as an earlier rule that it replaces.
    pub fn restates(&self, earlier: &RuleSubject) -> bool {
        self.values == earlier.values && self.sense == earlier.sense
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
            .map(|(number, other)| (number, self.common_share(other)));
        let mut related: Vec<(usize, f32)> = shares.filter(|(_, share)| *share >= least).collect();
        if self.is_change {
            // A change replaces only the nearest rule; a repetition replaces every equal one.
            related.sort_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
            related.truncate(1);
        }
        related.into_iter().map(|(number, _)| number).collect()
    }

    /// Common share of the subjects: of the longer one, since a repetition says all of it again; of the shorter one if
    /// a change is announced, which may name the subject alone.
    fn common_share(&self, earlier: &RuleSubject) -> f32 {
        let common = self.terms.iter().filter(|term| earlier.terms.contains(term)).count();
        let (one, other) = (self.terms.len(), earlier.terms.len());
        let (smaller, larger) = (one.min(other), one.max(other));
        // One common word of a longer statement is chance.
        let is_chance = common == 1 && larger > SHORT_SUBJECT_TERMS;
        let all = if self.is_change { smaller } else { larger };
        if all == 0 || is_chance { 0.0 } else { common as f32 / all as f32 }
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

/// The cues and negations of a rule, sorted.
fn sense_of(rule: &str) -> Vec<String> {
    let mut sense = cues_of(rule);
    let words = rule.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    sense.extend(words.filter(|word| NEGATIONS.split(' ').any(|negation| negation == word)));
    sense.sort_unstable();
    sense.dedup();
    sense
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

    #[test]
    fn one_common_word_is_no_common_subject() {
        let rules = [
            "Avoid talking about competitors.",
            "I love these ideas!",
            "I like the idea of a nature walk and the treasure hunt.",
            "Rewrite it, but instead of more problems let us be talking about the good habits of runners.",
        ];
        assert_eq!(valid(&rules), rules);
    }

    #[test]
    fn what_is_said_again_is_not_replaced() {
        let subject = RuleSubject::new;
        let first = subject("I always run the tests of the parser before a commit.");
        let again = subject("As before: I always run the tests of the parser before the commit.");
        let never = subject("I never run the tests of the parser before a commit.");
        assert_eq!(again.replaced([(0, &first)].into_iter()), [0]);
        assert!(again.restates(&first) && !never.restates(&first));
        assert_eq!(never.replaced([(0, &first)].into_iter()), [0]);
    }
}

//! What a rule is about: a later rule replaces an earlier one about the same.

use super::changes::{LANGUAGE_NAMES, blank, find_words, without_hints};
use super::distinction::RuleDistinction;
use super::things::RuleThings;
use super::{ChangeKind, cues_of, without_cues};
use ctxhost_text::hash::fnv1a;
use ctxhost_text::identifiers::{for_each_identifier, is_unspaced};
use ctxhost_text::search::distinct_terms;

/// Common share of two subjects from which the later rule replaces the earlier; lower if it
/// announces a change.
const SAME_SUBJECT: f32 = 0.6;
const CHANGED_SUBJECT: f32 = 0.45;
/// The same for a sentence that ends a rule: it names the subject and then often says what holds instead.
const ENDED_SUBJECT: f32 = 0.3;
/// Common share from which a sentence with a word such as "again" is about an earlier rule.
const RELATED_SUBJECT: f32 = 0.25;
/// Terms of a sentence that names hardly more than a value.
const BARE_TERMS: usize = 3;
/// Common terms, and their share, from which a sentence with another value is about an earlier rule.
const LEAST_VALUE_TERMS: usize = 2;
const VALUE_SUBJECT: f32 = 0.6;
/// Terms of the longer subject up to which one common term may be the subject of a change.
const SHORT_SUBJECT_TERMS: usize = 3;
/// The same of a sentence that ends a rule.
const ENDED_SUBJECT_TERMS: usize = 6;
/// Terms and values that an earlier rule has beside those of a later one, and their share, from which it says more than
/// what is changed: "Ms Aydin is allergic to penicillin, must avoid latex and takes 5 mg of ramipril" after "ramipril is 10 mg".
const MORE_TERMS: usize = 4;
const MORE_SHARE: f32 = 0.5;
/// The same in a script without spaces, where pairs of characters are terms.
const MORE_PAIRS: usize = 12;
/// Terms of a subject that is hardly more than a language, such as "answer in French".
const LANGUAGE_SUBJECT_TERMS: usize = 2;
/// The term of all names of languages: a rule with one replaces a rule with another.
const LANGUAGE_TERM: &str = "\u{0}language";
/// Words that turn a statement into its opposite, besides the cues.
const NEGATIONS: &str = "not no t cannot without nicht kein keine pas não non niet ne не";
/// Verbs of instructions, which do not identify the subject.
const COMMON_VERBS: &str =
    "use run write make add keep put get set go goes do need want please ever begin end";

/// Words of other languages that the index keeps and that identify no subject.
const FUNCTION_WORDS: &str = concat!(
    "der die das den dem des ein eine einen einem im in auf mit zu zum zur für von und oder bei ich du es ",
    "le la les un une du de des à au aux en et ou dans sur pour avec que je tu il el los las una y o con por para lo al del ",
    "os um uma em com e no na nos nas do da dos das i gli di per una nel nella si het een op met van voor te w na z do dla się ",
    "в на с и для по к о за из у я ты это та з до bir ve ile bu di dan ke yang untuk và cho",
);

/// The subject of a rule.
#[derive(Clone, Debug)]
pub struct RuleSubject {
    /// The terms without cues, common verbs, names and numbers.
    terms: Vec<u64>,
    /// Names and numbers, sorted: only an announced change gives a subject other ones.
    values: Vec<String>,
    things: RuleThings,
    distinction: RuleDistinction,
    /// Whether it is in a script without spaces.
    is_unspaced: bool,
    /// Cues and negations, sorted: with others the same terms mean something else.
    sense: Vec<String>,
    change: ChangeKind,
}

impl RuleSubject {
    /// The subject of a rule on one line.
    pub fn new(rule: &str) -> RuleSubject {
        let change = ChangeKind::of(rule);
        let mut plain = without_cues(rule);
        if change != ChangeKind::None {
            plain = without_hints(&plain);
        }
        let things = RuleThings::find(&plain);
        let mut values = Vec::new();
        let languages = find_words(&LANGUAGE_NAMES, &plain);
        let names = languages.iter().filter_map(|name| plain.get(name.clone()));
        values.extend(names.map(str::to_lowercase));
        let has_language = !languages.is_empty();
        if has_language {
            plain = blank(&plain, &languages);
        }
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
        let is_unspaced = rest.contains(is_unspaced);
        let distinction = RuleDistinction::read(rule, &rest);
        let (more, words): (Vec<&str>, Vec<&str>) =
            rest.split_whitespace().flat_map(split_scripts).partition(|word| is_value(word));
        let words: Vec<&str> = words.into_iter().filter(|word| !is_common(word)).collect();
        values.extend(more.into_iter().map(bare_word));
        values.sort_unstable();
        let mut terms = distinct_terms(&words.join(" "));
        terms.extend(has_language.then(|| fnv1a(LANGUAGE_TERM)));
        let sense = sense_of(rule);
        RuleSubject { terms, values, things, distinction, is_unspaced, sense, change }
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
        let least = match self.change {
            ChangeKind::End => ENDED_SUBJECT,
            ChangeKind::Change | ChangeKind::Start => CHANGED_SUBJECT,
            ChangeKind::None => SAME_SUBJECT,
        };
        let shares = earlier
            .filter(|(_, other)| self.may_replace(other) && !other.says_more_than(self))
            .map(|(number, other)| (number, self.common_share(other)));
        let mut related: Vec<(usize, f32)> = shares.filter(|(_, share)| *share >= least).collect();
        if self.is_change() {
            // A change replaces only the nearest rule; a repetition replaces every equal one.
            related.sort_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
            related.truncate(1);
        }
        related.into_iter().map(|(number, _)| number).collect()
    }

    /// Whether it could be about the same as an earlier rule, as far as their values and distinguishing words show.
    fn may_replace(&self, earlier: &RuleSubject) -> bool {
        if self.has_language() && earlier.has_language() && !self.is_unspaced {
            return !self.distinction.has_other_scope(&earlier.distinction);
        }
        // What is ordered for once leaves a ban beside it.
        if self.distinction.is_order_against(&earlier.distinction) {
            return false;
        }
        if self.change == ChangeKind::None && self.values != earlier.values {
            return false;
        }
        !self.is_of_another_thing(earlier) && !self.is_apart(earlier)
    }

    /// Whether words that the other lacks tell their things apart: "never restart the billing service" and "you can
    /// restart the search service again".
    fn is_apart(&self, earlier: &RuleSubject) -> bool {
        let (own, other) = (&self.distinction, &earlier.distinction);
        let lifts = own.is_lift && self.is_change();
        if self.is_unspaced && earlier.is_unspaced {
            return lifts && own.has_other_signs(other);
        }
        let have_other_values = self.has_value_beside(earlier) && earlier.has_value_beside(self);
        if lifts {
            // "Docs can be merged without review again" is an exception of "never merge without review".
            return own.has_more_than(other) || have_other_values;
        }
        // "Book aisle seats" gives a new value where no number or name is the value.
        let is_new_value = own.sets_value && !have_other_values;
        if !own.differs_on_both_sides(other) {
            return false;
        }
        let is_other_ban = other.is_ban
            && match self.change {
                // Bans add up.
                ChangeKind::None => true,
                ChangeKind::Start => !own.is_ban || !have_other_values,
                ChangeKind::Change | ChangeKind::End => !own.is_ban,
            };
        is_other_ban
            || own.states_another_thing(other)
            || !is_new_value && own.has_other_modifier(other)
            || have_other_values && self.things.is_new_to(&earlier.terms)
            || !own.sets_value
                && !have_other_values
                && self.is_change()
                && own.begins_with_another(other)
    }

    fn has_value_beside(&self, other: &RuleSubject) -> bool {
        self.values.iter().any(|value| !other.values.contains(value))
    }

    fn has_language(&self) -> bool {
        self.terms.contains(&fnv1a(LANGUAGE_TERM))
    }

    /// Whether it holds so much beside a later subject that it stays valid with a part that is changed.
    fn says_more_than(&self, later: &RuleSubject) -> bool {
        let lacks_term = |term: &&u64| !later.terms.contains(term);
        let lacks_value = |value: &&String| !later.values.contains(value);
        let more = self.terms.iter().filter(lacks_term).count()
            + self.values.iter().filter(lacks_value).count();
        let all = self.terms.len() + self.values.len();
        let least = if self.is_unspaced { MORE_PAIRS } else { MORE_TERMS };
        more >= least && more as f32 >= MORE_SHARE * all as f32
    }

    /// Whether two subjects name different things that they hold for.
    fn is_of_another_thing(&self, other: &RuleSubject) -> bool {
        let lacks = |one: &[u64], other: &[u64]| one.iter().any(|term| !other.contains(term));
        if self.change != ChangeKind::Start || self.values == other.values {
            return false;
        }
        if self.is_unspaced && other.is_unspaced {
            // Nothing marks the thing; each has a word that the other lacks.
            return lacks(&self.terms, &other.terms) && lacks(&other.terms, &self.terms);
        }
        let both_start = [self, other].iter().all(|rule| rule.change == ChangeKind::Start);
        self.things.differ(&other.things, both_start)
    }

    fn is_change(&self) -> bool {
        self.change != ChangeKind::None
    }

    /// Whether a sentence without a cue states another value for the subject of an earlier rule: "reduce the evening
    /// dose to 12 mg" after "always plan 20 mg for the evening dose".
    fn states_other_value(&self, earlier: &RuleSubject) -> bool {
        let common = self.terms.iter().filter(|term| earlier.terms.contains(term)).count();
        let smaller = self.terms.len().min(earlier.terms.len());
        let is_other = |value: &String| !earlier.values.contains(value);
        common >= LEAST_VALUE_TERMS
            && common as f32 >= VALUE_SUBJECT * smaller as f32
            && !earlier.values.is_empty()
            && self.values.iter().any(is_other)
    }

    /// Whether a sentence that may change a rule is about this earlier one.
    pub fn is_related(&self, earlier: &RuleSubject) -> bool {
        let (own, other) = (&self.distinction, &earlier.distinction);
        if own.is_order_for_now && !self.states_other_value(earlier) {
            // All that it orders is forbidden.
            let has_common = self.common(earlier).terms > 0;
            return own.is_order_against(other) && has_common && !own.has_more_than(other);
        }
        if self.has_language() && earlier.has_language() && !self.is_unspaced {
            // An order about another text is worth its line, however long a text about languages is not.
            return self.is_change() && (own.has_short_scope() || !own.has_other_scope(other));
        }
        if matches!(self.change, ChangeKind::None | ChangeKind::Start) {
            return self.states_other_value(earlier);
        }
        let common = self.common(earlier);
        let smaller = common.own_terms.min(common.earlier_terms);
        common.terms > 0
            && !common.is_language_alone()
            && common.terms as f32 >= RELATED_SUBJECT * smaller as f32
    }

    /// Whether it names hardly more than a value.
    pub(super) fn is_bare(&self) -> bool {
        self.terms.len() <= BARE_TERMS
    }

    /// Memory use in bytes, beside its own size.
    pub(super) fn size_bytes(&self) -> usize {
        let texts = self.values.iter().chain(&self.sense);
        let bytes = texts.map(|text| size_of::<String>() + text.capacity()).sum::<usize>();
        self.terms.capacity() * size_of::<u64>()
            + self.things.size_bytes()
            + self.distinction.size_bytes()
            + bytes
    }

    /// Common share of the subjects: of the longer one, since a repetition says all of it again; of the shorter one if
    /// a change is announced, which may name the subject alone.
    fn common_share(&self, earlier: &RuleSubject) -> f32 {
        let common = self.common(earlier);
        let (one, other) = (common.own_terms, common.earlier_terms);
        let (smaller, larger) = (one.min(other), one.max(other));
        let is_end = self.change == ChangeKind::End;
        let most_terms = if is_end { ENDED_SUBJECT_TERMS } else { SHORT_SUBJECT_TERMS };
        // One common word of a longer statement is chance.
        let is_chance = common.terms == 1 && larger > most_terms || common.is_language_alone();
        let all = if self.is_change() { smaller } else { larger };
        if all == 0 || is_chance { 0.0 } else { common.terms as f32 / all as f32 }
    }

    /// What two subjects have in common.
    fn common(&self, earlier: &RuleSubject) -> CommonSubject {
        let common = self.terms.iter().filter(|term| earlier.terms.contains(term)).count();
        // "unwrap() is fine again" names its subject by a value alone.
        let is_common = |value: &&String| earlier.values.contains(value);
        let values =
            if self.is_change() { self.values.iter().filter(is_common).count() } else { 0 };
        CommonSubject {
            terms: common + values,
            own_terms: self.terms.len() + values,
            earlier_terms: earlier.terms.len() + values,
            has_language: self.has_language() && earlier.has_language(),
        }
    }
}

/// What two subjects have in common.
#[derive(Clone, Copy, Debug)]
struct CommonSubject {
    /// Number of common terms.
    terms: usize,
    /// Number of terms of the later subject.
    own_terms: usize,
    /// Number of terms of the earlier one.
    earlier_terms: usize,
    has_language: bool,
}

impl CommonSubject {
    /// Whether both only name some language, and one of them is about more, such as the language of commit messages.
    fn is_language_alone(self) -> bool {
        let larger = self.own_terms.max(self.earlier_terms);
        self.has_language && self.terms == 1 && larger > LANGUAGE_SUBJECT_TERMS
    }
}

/// Whether another word has a value, such as `eu-1`, `4`, `McDonald`, `orders/eu`.
pub(super) fn is_value(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    // Every sentence begins with a capital.
    let has_hump = word.chars().skip(1).any(char::is_uppercase);
    has_hump || word.contains(|c: char| c.is_numeric() || "/_.@\\:=".contains(c))
}

/// The parts of a word: scripts without spaces join a value to the words beside it.
fn split_scripts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let is_unspaced_first = is_unspaced(rest.chars().next()?);
        let end = rest.find(|c| is_unspaced(c) != is_unspaced_first).unwrap_or(rest.len());
        let (part, behind) = rest.split_at_checked(end)?;
        rest = behind;
        Some(part)
    })
}

/// A word in lower case without the marks around it.
pub(super) fn bare_word(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

/// Whether a word identifies no subject.
pub(super) fn is_common(word: &str) -> bool {
    let word = bare_word(word);
    COMMON_VERBS.split(' ').chain(FUNCTION_WORDS.split(' ')).any(|common| common == word)
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
mod tests;

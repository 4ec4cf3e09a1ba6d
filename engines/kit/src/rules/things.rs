//! What a rule holds for, such as a meal, a server or a customer: a rule for another thing replaces none.

use ctxhost_text::hash::fnv1a;
use ctxhost_text::search::distinct_terms;

use super::subject::{bare_word, is_common, is_value};

/// Words before what a rule holds for.
const THING_MARKS: &str = concat!(
    "for before after during in at of für vor nach im in bei während pour avant après dans pendant para antes después durante em depois ",
    "per prima dopo durante voor na tijdens dla przed po podczas для перед после до під після untuk sebelum sesudah cho trước sau",
);
/// Those behind which a number is a name: a time or a date stands behind the others.
const NAME_MARKS: &str = concat!(
    "for in of on für in von bei auf des der pour dans sur de du des para en em do da nos per di del della su ",
    "voor van op in dla w z na для у в від untuk di dari cho của için",
);
/// Verbs whose object is what a rule sets. The object of any other verb is the thing that it holds for.
const SETTING_VERBS: &str = concat!(
    "use take give deploy answer reply write call name begin start end prefer switch set keep make run put book choose pick sign format ",
    "nutze nutzen verwende verwenden benutze benutzen nimm nehmen deploye antworte antworten schreibe schreiben nenne starte ",
    "utilise utiliser utilisez prends réponds usa usar use utiliza utilizar responde escribe toma utilize responda escreva ",
    "usare rispondi scrivi gebruik gebruiken antwoord używaj używać używamy odpowiadaj используй используйте отвечай пиши бери ",
    "використовуй використовуйте відповідай kullan kullanın gunakan pakai dùng",
);

/// What a rule holds for.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleThings {
    /// Its words: the first one behind each word such as "for".
    terms: Vec<u64>,
    /// Its names behind such a word: `module1`, and `4711` in "for tenant 4711".
    names: Vec<u64>,
    /// Names that the order itself is about: `web-01` in "reboot host web-01 only at night".
    objects: Vec<u64>,
}

impl RuleThings {
    /// The things in a rule without its cues.
    pub(super) fn find(rule: &str) -> RuleThings {
        let words: Vec<&str> = rule.split_whitespace().collect();
        let sets_object = sets_value(rule);
        let mut things = RuleThings::default();
        for (at, word) in words.iter().enumerate() {
            let before = words.get(..at).unwrap_or_default();
            let behind = words.get(at + 1..).unwrap_or_default();
            if is_in(THING_MARKS, word) {
                let mut content = behind.iter().filter(|word| !is_common(word) && !is_value(word));
                things.terms.extend(content.find_map(|word| distinct_terms(word).pop()));
            }
            match NamePlace::of(word, before) {
                Some(NamePlace::BehindMark) => things.names.push(fnv1a(&bare_word(word))),
                Some(NamePlace::Object) if !sets_object => {
                    things.objects.push(fnv1a(&bare_word(word)));
                }
                _ => {}
            }
        }
        things
    }

    /// Whether both hold for something, and for other things. Of two rules that both hold "from now on" neither is older,
    /// so they are also compared by what they order.
    pub(super) fn differ(&self, other: &RuleThings, both_start: bool) -> bool {
        if !self.names.is_empty() && !other.names.is_empty() {
            return are_apart(&self.names, &other.names);
        }
        if both_start && !self.objects.is_empty() && !other.objects.is_empty() {
            return are_apart(&self.objects, &other.objects);
        }
        !self.terms.is_empty() && !other.terms.is_empty() && are_apart(&self.terms, &other.terms)
    }

    /// Whether it holds for something, and only for what is none of some terms.
    pub(super) fn is_new_to(&self, terms: &[u64]) -> bool {
        !self.terms.is_empty() && are_apart(&self.terms, terms)
    }

    /// Memory use in bytes, beside its own size.
    pub(super) fn size_bytes(&self) -> usize {
        (self.terms.capacity() + self.names.capacity() + self.objects.capacity()) * size_of::<u64>()
    }
}

/// The part of a rule that names a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamePlace {
    BehindMark,
    Object,
}

impl NamePlace {
    /// The part that a value is of if it names a thing, by the words before it.
    fn of(value: &str, before: &[&str]) -> Option<NamePlace> {
        if !is_value(value) {
            return None;
        }
        let mut nearest = before.iter().rev();
        let (first, second) = (nearest.next()?, nearest.next());
        let is_mark = |word: &str| is_in(NAME_MARKS, word);
        if is_mark(first) {
            // "For 30 days" is a length.
            return has_letter_first(value).then_some(NamePlace::BehindMark);
        }
        let is_noun =
            first.chars().any(char::is_alphabetic) && !is_common(first) && !is_value(first);
        if !is_noun {
            return None;
        }
        let is_of_noun = second.is_some_and(|word| is_mark(word));
        if is_of_noun {
            return Some(NamePlace::BehindMark);
        }
        has_letter_first(value).then_some(NamePlace::Object)
    }
}

/// Whether a text has a verb whose object is what a rule sets.
pub(super) fn sets_value(text: &str) -> bool {
    text.split_whitespace().any(|word| is_in(SETTING_VERBS, word))
}

fn has_letter_first(value: &str) -> bool {
    bare_word(value).starts_with(char::is_alphabetic)
}

fn are_apart(one: &[u64], other: &[u64]) -> bool {
    !one.iter().any(|thing| other.contains(thing))
}

fn is_in(list: &str, word: &str) -> bool {
    let word = bare_word(word);
    list.split(' ').any(|listed| listed == word)
}

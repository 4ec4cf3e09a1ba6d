//! The question, the proposal or the sentence with a name that a short request refers to.

use std::ops::Range;
use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use regex::Regex;

use super::MOST_QUOTE_CHARS;
use crate::rules::sentences;
use crate::summary::sentences::strip_bullet;
use ctxhost_text::identifiers::for_each_identifier;
use ctxhost_text::own_text::own_ranges;

/// Sentences at the end of an answer among which a question is one to the user.
const LAST_SENTENCES: usize = 3;
/// A shorter question, in weighted characters, says too little without the sentence before it.
const SHORT_QUESTION_CHARS: u64 = 60;
/// A shorter sentence, in weighted characters, says too little without the one before it.
const SHORT_SENTENCE_CHARS: u64 = 24;
/// A longer line of an output, in bytes, is data.
const LINE_BYTES: usize = 400;
/// Length of a word that says what a name is of, in bytes.
const WORD_BYTES: usize = 4;
/// Bytes with which two forms of a word begin alike: `build` and `builds`.
const STEM_BYTES: usize = 5;

/// Words with which a proposal begins.
const PROPOSAL: &str = concat!(
    r"(?i)\b(?:suggest\w*|propos\w+|recommend\w*|i(?:'d|’d| would| could| can)|we (?:could|can|should)|let's|my plan|next,? i|i(?:'ll| will)|",
    r"vorschlag\w*|schlage|empfehl\w+|würde|könnte|suggèr\w+|recommand\w+|je peux|propongo|sugiero|recomiendo|podría|proponho|sugiro|recomendo|posso|consiglio|",
    r"voorstel\w*|stel voor|raad aan|zou|proponuj\w+|sugeruj\w+|zalecam|предлаг\w+|рекоменд\w+|советую|могу|пропону\w+|раджу|öner\w+|usul\w*|saran\w*|đề xuất|khuyên)\b|\bplan:",
    r"|建议|建議|提议|推荐|推薦|我可以|提案|おすすめ|お勧め|しましょう|제안|추천|أقترح|أوصي|सुझाव|सलाह",
);

/// Words between two ways.
// Not "o" and "of" alone, which are an article and a preposition elsewhere.
const ALTERNATIVE: &str = concat!(
    r"(?i)\b(?:or|alternatively|oder|entweder|alternativ|ou|soit|o bien|o (?:el|la|los|las|un|una|il|lo|le|gli)|oppure|ofwel|of (?:de|het|een|we|ik)|lub|albo|czy|или|либо|або|чи|veya|ya da|atau|hoặc|eller|two (?:ways|options)|zwei (?:wege|möglichkeiten)|deux (?:options|façons)|dos (?:opciones|formas))\b",
    r"|或者|或是|还是|還是|要么|または|もしくは|あるいは|それとも|か、|또는|혹은|거나|아니면| أو |إما|(?:^|\s)या(?:\s|$)",
);

static ALTERNATIVES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ALTERNATIVE).ok());
static PROPOSALS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PROPOSAL).ok());

/// The question at the end of an answer.
pub(super) fn question(answer: &str) -> Option<&str> {
    let parts = prose(answer);
    let last = parts.iter().rev().filter(|part| !is_item(answer, part)).take(LAST_SENTENCES);
    let part = last.into_iter().find(|part| {
        let end = text_of(answer, part).trim_end_matches(['*', '_', ')', '"', '”', ' ']);
        end.ends_with(['?', '？', '؟'])
    })?;
    Some(with_sentence_before(answer, &parts, part, SHORT_QUESTION_CHARS))
}

/// The last proposal of an answer, up to its end, with the ways before it that it chooses from.
pub(super) fn proposal(answer: &str) -> Option<&str> {
    let parts = prose(answer);
    let at = parts.iter().rposition(|part| matches(&PROPOSALS, text_of(answer, part)))?;
    let is_fitting = |part: &Range<usize>| {
        let whole = answer.get(part.start..).map_or(u64::MAX, weighted_chars);
        whole <= MOST_QUOTE_CHARS && has_alternatives(text_of(answer, part))
    };
    // "I recommend the patch": instead of what?
    let before = parts.get(..at)?.last().filter(|part| is_fitting(part));
    let from = before.or_else(|| parts.get(at))?;
    answer.get(from.start..).map(str::trim)
}

/// The last sentence of an answer that names several ways, up to its end.
pub(super) fn alternatives(answer: &str) -> Option<&str> {
    let parts = prose(answer);
    let part = parts.iter().rev().find(|part| has_alternatives(text_of(answer, part)))?;
    answer.get(part.start..).map(str::trim)
}

/// Whether a sentence names several ways.
fn has_alternatives(sentence: &str) -> bool {
    matches(&ALTERNATIVES, sentence)
}

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// The last sentence of an answer.
pub(super) fn last_sentence(answer: &str) -> Option<&str> {
    let parts = prose(answer);
    let last = parts.last()?;
    Some(with_sentence_before(answer, &parts, last, SHORT_SENTENCE_CHARS))
}

/// The sentence of an answer with the name that a request points at, described by its words.
pub(super) fn sentence_with_name<'t>(answer: &'t str, words: &[String]) -> Option<&'t str> {
    best_named(prose(answer).into_iter().filter_map(|part| answer.get(part)), words, 0)
}

/// The line of an output with such a name.
pub(super) fn line_with_name<'t>(output: &'t str, words: &[String]) -> Option<&'t str> {
    best_named(output.lines().filter(|line| line.len() <= LINE_BYTES), words, 1)
}

/// The last text with a name and the most of the words, but not fewer than `least_words`.
fn best_named<'t>(
    texts: impl Iterator<Item = &'t str>,
    words: &[String],
    least_words: usize,
) -> Option<&'t str> {
    let rated = texts.filter_map(|text| {
        let common = common_words(text, words);
        let is_wanted = common >= least_words && has_name(text, common > 0);
        is_wanted.then_some((common, text))
    });
    // Of equal ones the last: `max_by_key` returns it.
    rated.max_by_key(|(common, _)| *common).map(|(_, text)| text)
}

/// Whether a text has a name. In one about the right thing every number counts.
fn has_name(text: &str, is_about: bool) -> bool {
    if is_about && text.contains(|c: char| c.is_ascii_digit()) {
        return true;
    }
    let mut is_found = false;
    for_each_identifier(text, |name| is_found |= name.kind.is_exact());
    is_found
}

/// How many words of a request a text has.
fn common_words(text: &str, words: &[String]) -> usize {
    let own: Vec<String> =
        text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
    let is_same = |word: &str, other: &str| {
        let stem = |word: &str| word.get(..word.floor_char_boundary(STEM_BYTES)).map(str::to_owned);
        word == other
            || (word.len() >= STEM_BYTES && other.len() >= STEM_BYTES && stem(word) == stem(other))
    };
    let is_known = |word: &&String| {
        (word.len() >= WORD_BYTES || *word == "id" || *word == "ip" || *word == "url")
            && own.iter().any(|other| is_same(word, other))
    };
    words.iter().filter(is_known).count()
}

/// The sentences of an answer outside of code and quotations.
fn prose(answer: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for line in own_ranges(answer) {
        let mut start = line.start;
        for sentence in sentences(answer.get(line).unwrap_or_default()) {
            let end = start + sentence.len();
            if sentence.contains(char::is_alphabetic) {
                found.push(start..end);
            }
            start = end;
        }
    }
    found
}

fn text_of<'t>(answer: &'t str, part: &Range<usize>) -> &'t str {
    answer.get(part.clone()).unwrap_or_default().trim()
}

/// Whether a sentence is in the item of a list.
fn is_item(answer: &str, part: &Range<usize>) -> bool {
    let before = answer.get(..part.start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = answer.get(line_start..part.end).unwrap_or_default().trim();
    strip_bullet(line).len() < line.len()
}

/// A sentence; a short one with the sentence before it.
fn with_sentence_before<'t>(
    answer: &'t str,
    parts: &[Range<usize>],
    part: &Range<usize>,
    short_chars: u64,
) -> &'t str {
    let whole = text_of(answer, part);
    let at = parts
        .iter()
        .position(|other| other == part)
        .filter(|_| weighted_chars(whole) < short_chars);
    let is_prose = |part: &&Range<usize>| !is_item(answer, part);
    let before = at.and_then(|at| parts.get(..at)?.iter().rev().find(is_prose));
    before.and_then(|before| answer.get(before.start..part.end)).map_or(whole, str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_at_the_end_is_one_to_the_user() {
        for (answer, expected) in [
            (
                "Both fit. Should I use Redis or Postgres for the queue of the new worker?",
                "Should I use Redis or Postgres for the queue of the new worker?",
            ),
            (
                "Two stores:\n1. Redis\n2. files\n\nWhich one?",
                "Two stores:\n1. Redis\n2. files\n\nWhich one?",
            ),
            (
                "I would move the cache to Redis. Shall I?",
                "I would move the cache to Redis. Shall I?",
            ),
            (
                "Which store do you want for the queue, of these four ones here?\n- Redis\n- Kafka\n- SQS\n- NATS",
                "Which store do you want for the queue, of these four ones here?",
            ),
            ("我建议迁移到 Redis。要继续吗？", "我建议迁移到 Redis。要继续吗？"),
        ] {
            assert_eq!(question(answer), Some(expected), "{answer}");
        }
        assert_eq!(question("Why? Because. It was wrong. I fixed it. Tests pass. Done."), None);
        assert_eq!(question("```\nreally?\n```"), None);
    }

    #[test]
    fn a_plan_with_a_colon_is_a_proposal() {
        let answer = "The cache is full. Plan: move it to Redis.";
        assert_eq!(proposal(answer), Some("Plan: move it to Redis."));
        assert_eq!(proposal("The explan: it was full."), None);
    }

    #[test]
    fn a_proposal_has_the_ways_that_it_chooses_from() {
        for answer in [
            "I can either rewrite the parser or patch the tokenizer. I recommend the patch.",
            "Wir können den Parser neu schreiben oder den Tokenizer ändern. Ich empfehle das zweite.",
            "可以重写解析器，或者修补分词器。我建议修补。",
        ] {
            assert_eq!(proposal(answer), Some(answer));
            assert_eq!(alternatives(&format!("I looked at it. {answer}")), Some(answer));
        }
        let other = "I read all of the modules. I recommend the patch.";
        assert_eq!(proposal(other), Some("I recommend the patch."));
        let long = format!("Redis or {}. I recommend Redis.", "a very long way ".repeat(20));
        assert_eq!(proposal(&long), Some("I recommend Redis."));
        assert_eq!(alternatives("The tests pass."), None);
    }

    #[test]
    fn a_proposal_reaches_to_the_end() {
        let answer = "The table is slow. I propose to split it:\n- users\n- accounts";
        assert_eq!(proposal(answer), Some("I propose to split it:\n- users\n- accounts"));
        assert_eq!(
            proposal("Die Tabelle ist langsam. Ich würde sie teilen."),
            Some("Ich würde sie teilen.")
        );
        assert_eq!(proposal("The tests pass."), None);
    }

    #[test]
    fn a_name_is_found_by_the_words_of_the_request() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let answer = "Build 4711 passed. The proxy listens on port 8443. It took 20 s.";
        let found = |request| sentence_with_name(answer, &words(request)).map(str::trim);
        assert_eq!(found("remember that build number"), Some("Build 4711 passed."));
        assert_eq!(found("use that port"), Some("The proxy listens on port 8443."));
        let output = "compiling\nbuild number: 4711\nfinished in 3 s";
        assert_eq!(
            line_with_name(output, &words("remember that build number")),
            Some("build number: 4711")
        );
        assert_eq!(line_with_name(output, &words("remember that port")), None);
    }
}

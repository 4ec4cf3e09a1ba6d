//! Shortens a request that is too large: rules first, then facts, then the beginning and the end of the user's own words.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use crate::rules::{parse_rule, sentences};
use crate::summary::sentences::strip_bullet;
use ctxhost_text::identifiers::states_fact;
use ctxhost_text::own_text::own_ranges;
use ctxhost_text::truncate::{head_and_tail, prefix, suffix};

/// Lower bound of a shortened request, in weighted characters.
// What a user writes mostly fits; what is cut was pasted into the message.
pub const LEAST_REQUEST_CHARS: u64 = 400;
/// Marks what was left out, on a line of its own: a rule beside it is found again.
const GAP: &str = "\n[…]\n";
/// Bytes at each end of a request that are searched for rules and facts.
// Users write before or behind what they paste.
const SEARCHED_BYTES: usize = 8_000;
/// Weighted characters below which a part of a sentence says nothing.
const LEAST_PART_CHARS: u64 = 40;

/// A request in at most `max_chars` weighted characters. Quotations, marked pastes and code are left out first.
pub fn shorten_request(text: &str, max_chars: u64) -> String {
    if weighted_chars(text) <= max_chars {
        return text.to_owned();
    }
    RequestSentences::new(text).shorten(text, max_chars)
}

/// The sentences of a request that its user wrote, those nearest to an end first.
#[derive(Debug)]
pub(crate) struct RequestSentences {
    rules: Vec<Range<usize>>,
    facts: Vec<Range<usize>>,
    others: Vec<Range<usize>>,
}

impl RequestSentences {
    /// Reads the sentences of a request.
    pub(crate) fn new(text: &str) -> RequestSentences {
        let mut sentences = own_sentences(text);
        // From both ends: the middle is most likely pasted.
        sentences.sort_by_key(|range| bytes_to_end(text, range));
        let (rules, others) = sentences.into_iter().partition(|range| is_rule(text, range));
        let others: Vec<_> = others;
        let (facts, others) = others.into_iter().partition(|range| is_fact(text, range));
        RequestSentences { rules, facts, others }
    }

    /// The same request in at most `max_chars` weighted characters.
    pub(crate) fn shorten(&self, text: &str, max_chars: u64) -> String {
        if weighted_chars(text) <= max_chars {
            return text.to_owned();
        }
        let mut excerpt = RequestExcerpt::new(text, max_chars);
        excerpt.add_sentences(self);
        let own = excerpt.render();
        if !own.is_empty() {
            return own;
        }
        // All of it is pasted.
        let room_chars = max_chars.saturating_sub(weighted_chars(GAP));
        head_and_tail(text, room_chars / 3 * 2, room_chars / 3, GAP).into_owned()
    }

    /// Memory use in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let ranges = self.rules.capacity() + self.facts.capacity() + self.others.capacity();
        size_of::<RequestSentences>() + ranges * size_of::<Range<usize>>()
    }
}

/// The sentences of the user's own words.
fn own_sentences(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for line in own_ranges(text) {
        let mut start = line.start;
        for sentence in sentences(text.get(line.clone()).unwrap_or_default()) {
            let end = start + sentence.len();
            if !sentence.trim().is_empty() {
                found.push(start..end);
            }
            start = end;
        }
    }
    found
}

fn bytes_to_end(text: &str, range: &Range<usize>) -> usize {
    range.start.min(text.len() - range.end)
}

fn is_rule(text: &str, range: &Range<usize>) -> bool {
    let sentence = text.get(range.clone()).unwrap_or_default();
    let sentence = strip_bullet(sentence.trim_start());
    bytes_to_end(text, range) < SEARCHED_BYTES && parse_rule(sentence).is_some()
}

fn is_fact(text: &str, range: &Range<usize>) -> bool {
    let sentence = text.get(range.clone()).unwrap_or_default();
    bytes_to_end(text, range) < SEARCHED_BYTES && states_fact(sentence)
}

/// The shown parts of a request.
struct RequestExcerpt<'a> {
    text: &'a str,
    left_chars: u64,
    shown: Vec<Range<usize>>,
}

impl<'a> RequestExcerpt<'a> {
    fn new(text: &'a str, max_chars: u64) -> RequestExcerpt<'a> {
        // Each part pays for a gap behind it, and the first one for a gap before it.
        let left_chars = max_chars.saturating_sub(weighted_chars(GAP));
        RequestExcerpt { text, left_chars, shown: Vec::new() }
    }

    fn add_sentences(&mut self, sentences: &RequestSentences) {
        let RequestSentences { rules, facts, others } = sentences;
        // What is left of the room shows what the request is about.
        self.add_fitting(rules, self.left_chars / 4);
        let mut others: Vec<Range<usize>> = facts.iter().chain(others).cloned().collect();
        // What to do with a paste stands behind it, or before it.
        let last = others.iter().max_by_key(|range| range.end).cloned();
        let first = others.iter().min_by_key(|range| range.start).cloned();
        let ends: Vec<Range<usize>> = [last, first].into_iter().flatten().collect();
        self.add_fitting(&ends, self.left_chars / 2);
        self.add_fitting(facts, self.left_chars / 2);
        others.retain(|range| !self.shown.contains(range));
        others.sort_by_key(|range| bytes_to_end(self.text, range));
        self.add_until_full(&others);
    }

    fn part(&self, range: &Range<usize>) -> &'a str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// Adds the parts that fit, and leaves `spared_chars`.
    fn add_fitting(&mut self, parts: &[Range<usize>], spared_chars: u64) {
        for range in parts {
            self.add(range.clone(), spared_chars);
        }
    }

    /// Adds parts until one does not fit, of which the beginning or the end is added.
    fn add_until_full(&mut self, parts: &[Range<usize>]) {
        for range in parts {
            if self.add(range.clone(), 0) {
                continue;
            }
            let left_chars = self.left_chars.saturating_sub(weighted_chars(GAP));
            if left_chars >= LEAST_PART_CHARS {
                let part = self.part(range);
                let cut = if range.start <= self.text.len() - range.end {
                    range.start..range.start + prefix(part, left_chars, 1).len()
                } else {
                    range.end - suffix(part, left_chars, 1).len()..range.end
                };
                self.add(cut, 0);
            }
            break;
        }
    }

    /// Adds a part if it fits.
    fn add(&mut self, range: Range<usize>, spared_chars: u64) -> bool {
        if self.shown.contains(&range) {
            return true;
        }
        let chars = weighted_chars(self.part(&range)) + weighted_chars(GAP);
        let left_chars = self.left_chars.checked_sub(chars).filter(|left| *left >= spared_chars);
        if let Some(left_chars) = left_chars {
            self.left_chars = left_chars;
            self.shown.push(range);
        }
        left_chars.is_some()
    }

    /// The shown parts in their order; empty if there are none.
    fn render(mut self) -> String {
        self.shown.sort_unstable_by_key(|range| range.start);
        let (mut shown, mut end) = (String::new(), 0);
        for range in &self.shown {
            let between = self.text.get(end..range.start).unwrap_or_default();
            match between.trim() {
                "" if between.contains('\n') && !shown.is_empty() => shown.push('\n'),
                "" => {}
                _ => shown.push_str(GAP),
            }
            let part = self.part(range).trim_end();
            let is_in_line =
                self.text.get(..range.start).is_some_and(|before| !before.ends_with('\n'));
            // The blank in front of it parts it from a sentence that is not shown.
            let is_parted = shown.ends_with('\n') && is_in_line;
            shown.push_str(if is_parted { part.trim_start() } else { part });
            end = range.end;
        }
        if !shown.is_empty() && self.text.get(end..).is_some_and(|rest| !rest.trim().is_empty()) {
            shown.push_str(GAP);
        }
        shown.trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: [&str; 2] = ["From now on always use port 5433.", "Never restart prod-db-3."];

    fn log(lines: usize) -> String {
        let line = |number| {
            format!(
                "2026-11-20T09:{number:02}:11Z ERROR worker[{number}] failed after {number} ms, retrying\n"
            )
        };
        (0..lines).map(line).collect()
    }

    #[test]
    fn rules_stay_wherever_the_pasted_text_is() {
        let (rules, log) = (RULES.join(" "), log(90));
        for text in [
            format!("{log}\n{rules}"),
            format!("{rules}\n\n{log}"),
            format!("```\n{log}```\n{rules}"),
            format!("{rules}\n\"\"\"\n{log}\"\"\"\nWhat is wrong?"),
            format!("{log}\n{rules}\n\n{log}").replace("ERROR", "It must never fail here:"),
        ] {
            for max_chars in [LEAST_REQUEST_CHARS, 1_000, 3_000] {
                let short = shorten_request(&text, max_chars);
                assert!(weighted_chars(&short) <= max_chars, "{short}");
                let is_between_logs = text.contains("It must never");
                assert!(
                    is_between_logs || RULES.iter().all(|rule| short.contains(rule)),
                    "{short}"
                );
            }
        }
        assert_eq!(shorten_request(&format!("```\n{log}```\nMend it."), 400), "[…]\nMend it.");
    }

    #[test]
    fn a_sentence_behind_a_gap_begins_without_a_blank() {
        let talk = "We have talked about the fence and the gate. ".repeat(20);
        let short = shorten_request(&format!("{talk}{} {talk}", RULES[0]), 400);
        assert!(short.contains(&format!("[…]\n{}", RULES[0])), "{short}");
        assert!(!short.lines().any(|line| line.starts_with(' ')), "{short}");
    }

    #[test]
    fn a_fact_stays_and_a_text_without_own_words_shows_its_ends() {
        let words = "so that nothing of it is left to chance and all of it is clear ".repeat(40);
        let text = format!("{words}. The tenant is T-44717. {words}.");
        assert!(shorten_request(&text, 800).contains("The tenant is T-44717."));
        let pasted = format!("> first\n{}> last", "> between\n".repeat(200));
        let short = shorten_request(&pasted, 400);
        assert!(short.starts_with("> first") && short.ends_with("> last"), "{short}");
        let line = format!("begin {} end", "word ".repeat(400));
        assert!(shorten_request(&line, 400).starts_with("begin word"));
    }

    #[test]
    fn a_question_behind_a_paste_stays() {
        let order = |number: u64| format!("{{\"order\":{},\"item\":\"chair\"}},", 10_000 + number);
        let (one_line, lines) = (
            (0..90).map(order).collect::<String>(),
            (0..90).map(|n| order(n) + "\n").collect::<String>(),
        );
        for paste in [one_line, lines] {
            for max_chars in [LEAST_REQUEST_CHARS, 1_000, 3_000] {
                let short = shorten_request(
                    &format!("[{paste}]\n\nWhich of these does Ms. Okonkwo want?"),
                    max_chars,
                );
                assert!(short.ends_with("Which of these does Ms. Okonkwo want?"), "{short}");
                let short = shorten_request(&format!("The customer is Zabel.\n{paste}"), max_chars);
                assert!(short.starts_with("The customer is Zabel."), "{short}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_shortened_request_fits_and_has_only_its_words(
            text in "([a-z]{1,9}[ .\n]|always |```\n|> |[漢字]{1,4} ){0,400}", max_chars in 60u64..2_000,
        ) {
            let short = shorten_request(&text, max_chars);
            prop_assert!(weighted_chars(&short) <= max_chars, "{}", short);
            prop_assert!(text.trim().is_empty() || !short.trim().is_empty());
            for part in short.split("[…]") {
                let words = part.split_whitespace();
                prop_assert!(words.into_iter().all(|word| text.contains(word)));
            }
        }
    }
}

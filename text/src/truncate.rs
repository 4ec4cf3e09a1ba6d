//! Cuts text to a size in weighted characters, never inside a character.

mod blocks;

use std::borrow::Cow;
use std::sync::LazyLock;

pub use blocks::truncate_blocks;
use ctxhost_engine_api::transcript::tokens::{char_weight, weighted_chars};
use regex::Regex;

/// Placeholder of an image.
pub const IMAGE: &str = "[an image]";
/// Placeholder of a file beside a text.
pub const FILE: &str = "[a file]";

/// Marks the omitted middle of a text.
pub const MIDDLE_MARKER: &str = "\n\n⚠ [the middle of this output was left out]\n\n";

/// Marks the end of a summary that was cut.
// Short, because it counts towards the limit.
pub const CUT_MARKER: &str = "\n\n[summary cut here to keep within its limits]";

/// Upper bound of the weight of a character, in weighted characters for each of its bytes.
const MOST_BYTE_WEIGHT: u64 = 4;

/// Length of the end of a text that is searched for words of failure or result.
const IMPORTANT_TAIL_CHARS: usize = 2_000;
/// Limits of an important tail: a share of the budget, and characters.
// The head usually has the command and the first, often decisive error.
const TAIL_SHARE_PERCENT: u64 = 30;
const TAIL_LIMIT_CHARS: u64 = 4_000;
/// A cut moves to a line break only within this share of the text.
const NEWLINE_REACH_PERCENT: usize = 20;
/// Rounds of fitting a notice.
// The number of digits in the notice changes its length, which changes the number.
const NOTICE_ROUNDS: usize = 4;

/// The size limit of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimit {
    /// Size of the whole result including its notice, in weighted characters.
    pub max_chars: u64,
    /// Size of the head that is kept before an important tail gets room, in weighted characters.
    pub min_keep_chars: u64,
    /// Minimum weight of a character: 1, or 2 for a conservative estimate.
    pub min_weight: u64,
}

impl TextLimit {
    /// A limit in weighted characters with a minimum head of 2,000.
    pub fn with_max_chars(max_chars: u64) -> Self {
        TextLimit { max_chars, min_keep_chars: 2_000, min_weight: 1 }
    }

    /// The same with another minimum head.
    #[must_use]
    pub fn keeping(self, min_keep_chars: u64) -> Self {
        TextLimit { min_keep_chars, ..self }
    }
}

/// Appends a placeholder to a text that may be empty.
pub fn with_placeholder<'a>(text: Cow<'a, str>, placeholder: &'static str) -> Cow<'a, str> {
    if text.trim().is_empty() {
        placeholder.into()
    } else {
        format!("{text}\n{placeholder}").into()
    }
}

/// Cuts a text to a limit: head and important tail, then the notice for the number of characters
/// left out. A text that fits is returned unchanged. The result depends only on text and limit.
pub fn truncate<'a>(
    text: &'a str,
    limit: TextLimit,
    notice: impl Fn(u64) -> String,
) -> Cow<'a, str> {
    let weigh = |text: &str| weighted_len(text, limit.min_weight);
    if weigh(text) <= limit.max_chars {
        return Cow::Borrowed(text);
    }
    let whole = utf16_len(text);
    let mut left_out = whole;
    let mut best = String::new();
    for _ in 0..NOTICE_ROUNDS {
        let notice_text = notice(left_out.max(1));
        let room = limit.max_chars.saturating_sub(weigh(&notice_text));
        // Not even the notice fits: return its beginning, so that the limit holds.
        if room == 0 {
            return Cow::Owned(prefix(&notice_text, limit.max_chars, limit.min_weight).to_owned());
        }
        let (kept, kept_chars) = keep(text, room, limit);
        best = kept + &notice_text;
        let now_left_out = whole.saturating_sub(kept_chars);
        if now_left_out == left_out {
            break;
        }
        left_out = now_left_out;
    }
    Cow::Owned(best)
}

/// Cuts a text to `max_chars` weighted characters and appends `…`.
pub fn clip(text: &str, max_chars: u64) -> Cow<'_, str> {
    if weighted_chars(text) <= max_chars {
        return Cow::Borrowed(text);
    }
    let head = prefix(text, max_chars.saturating_sub(1), 1).trim_end();
    Cow::Owned(format!("{head}…"))
}

/// Cuts a text to `max_chars` weighted characters and appends [`CUT_MARKER`] if there is room for
/// it.
pub fn cap_with_marker(text: &str, max_chars: u64) -> Cow<'_, str> {
    if weighted_chars(text) <= max_chars {
        return Cow::Borrowed(text);
    }
    match max_chars.checked_sub(weighted_chars(CUT_MARKER)) {
        Some(room) => Cow::Owned(format!("{}{CUT_MARKER}", prefix(text, room, 1))),
        None => Cow::Borrowed(prefix(text, max_chars, 1)),
    }
}

/// Joins a text into one line; every run of white space becomes one space.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The weighted length of a text if no character weighs less than `min_weight`.
pub fn weighted_len(text: &str, min_weight: u64) -> u64 {
    if min_weight <= 1 {
        return weighted_chars(text);
    }
    text.chars().map(|character| weight(character, min_weight)).sum()
}

/// The longest prefix of at most `max_chars` weighted characters.
pub fn prefix(text: &str, max_chars: u64, min_weight: u64) -> &str {
    // Most texts fit, and most others are cut in ASCII.
    if (text.len() as u64).saturating_mul(MOST_BYTE_WEIGHT.max(min_weight)) <= max_chars {
        return text;
    }
    let head = usize::try_from(max_chars).ok().and_then(|chars| text.as_bytes().get(..chars));
    if min_weight <= 1 && head.is_some_and(<[u8]>::is_ascii) {
        return head.and_then(|head| text.get(..head.len())).unwrap_or(text);
    }
    let mut spent = 0;
    let mut fits = |character| {
        spent += weight(character, min_weight);
        spent <= max_chars
    };
    let end = text.char_indices().find(|(_, character)| !fits(*character));
    end.map_or(text, |(at, _)| text.get(..at).unwrap_or(text))
}

/// The longest suffix of at most `max_chars` weighted characters.
pub fn suffix(text: &str, max_chars: u64, min_weight: u64) -> &str {
    let mut spent = 0;
    let mut start = text.len();
    for (at, character) in text.char_indices().rev() {
        spent += weight(character, min_weight);
        if spent > max_chars {
            break;
        }
        start = at;
    }
    text.get(start..).unwrap_or("")
}

/// Head and end of a long text, joined by `gap`; the outcome is usually at the end. Sizes are in
/// weighted characters.
pub fn head_and_tail<'a>(
    text: &'a str,
    head_chars: u64,
    end_chars: u64,
    gap: &str,
) -> Cow<'a, str> {
    match ends(text, head_chars, end_chars) {
        Some((head, end)) => Cow::Owned(format!("{head}{gap}{end}")),
        None => Cow::Borrowed(text),
    }
}

/// Head and end of a text, in weighted characters; `None` if nothing is between them.
pub fn ends(text: &str, head_chars: u64, end_chars: u64) -> Option<(&str, &str)> {
    let head = prefix(text, head_chars, 1);
    let rest = text.get(head.len()..).unwrap_or("");
    let end = suffix(rest, end_chars, 1);
    (end.len() < rest.len()).then_some((head, end))
}

/// Whether the end of a text states an outcome: a failure, a total, the end of a JSON object.
pub fn has_important_tail(text: &str) -> bool {
    static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?i)\b(error|exception|failed|fatal|traceback|panic|stack trace|errno|exit code|total|summary|result|complete|finished|done)\b",
        )
        .ok()
    });
    // Only the end is searched: a log is full of such words.
    let start = text.char_indices().rev().nth(IMPORTANT_TAIL_CHARS - 1).map_or(0, |(at, _)| at);
    let tail = text.get(start..).unwrap_or("");
    tail.trim_end().ends_with('}') || WORDS.as_ref().is_some_and(|words| words.is_match(tail))
}

/// The kept text without its notice, and the number of UTF-16 units it keeps.
fn keep(text: &str, room_chars: u64, limit: TextLimit) -> (String, u64) {
    let min_keep = limit.min_keep_chars.min(room_chars);
    let marker_chars = weighted_len(MIDDLE_MARKER, limit.min_weight);
    let tail_chars = (room_chars * TAIL_SHARE_PERCENT / 100).min(TAIL_LIMIT_CHARS);
    let head_chars = room_chars.saturating_sub(tail_chars + marker_chars);
    // Without room for both, a head alone is more useful than two fragments.
    if room_chars > 2 * min_keep && head_chars > min_keep && has_important_tail(text) {
        let head = to_last_newline(prefix(text, head_chars, limit.min_weight));
        let tail = from_first_newline(suffix(text, tail_chars, limit.min_weight));
        return (format!("{head}{MIDDLE_MARKER}{tail}"), utf16_len(head) + utf16_len(tail));
    }
    let head = to_last_newline(prefix(text, room_chars, limit.min_weight));
    (head.to_owned(), utf16_len(head))
}

fn to_last_newline(head: &str) -> &str {
    match head.rfind('\n') {
        Some(at) if at * 100 > head.len() * (100 - NEWLINE_REACH_PERCENT) => {
            head.get(..at).unwrap_or(head)
        }
        _ => head,
    }
}

fn from_first_newline(tail: &str) -> &str {
    match tail.find('\n') {
        Some(at) if at * 100 < tail.len() * NEWLINE_REACH_PERCENT => {
            tail.get(at + 1..).unwrap_or(tail)
        }
        _ => tail,
    }
}

fn weight(character: char, min_weight: u64) -> u64 {
    // UTF-16 units, because the recorded cases count them.
    char_weight(character).max(min_weight * character.len_utf16() as u64)
}

fn utf16_len(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.encode_utf16().count() as u64 }
}

#[cfg(test)]
pub(crate) mod tests {
    use ctxhost_engine_api::transcript::tokens::group_thousands;
    use proptest::prelude::*;

    use super::*;

    /// The notice of the recorded cases; engines use their own.
    pub(crate) fn recorded(count: u64) -> String {
        format!("[... {count} more characters truncated; rerun with narrower args if needed]")
    }

    #[test]
    fn case_2_weights_with_a_minimum_of_two() {
        for (text, chars) in [("abcd", 8), ("你好", 8), ("\u{1F600}", 4)] {
            assert_eq!(weighted_len(text, 2), chars, "{text}");
        }
    }

    #[test]
    fn case_15_and_16_a_text_is_cut_to_exactly_its_limit() {
        let text = "x".repeat(5_000);
        let cut = |max| truncate(&text, TextLimit::with_max_chars(max), recorded).into_owned();
        assert_eq!(cut(3_000).len(), 3_000);
        assert!(cut(3_000).ends_with("narrower args if needed]"));
        assert_eq!(cut(20), recorded(5_000)[..20]);
        assert_eq!(cut(1), "[");
        assert_eq!(cut(0), "");
        assert!(matches!(
            truncate(&text, TextLimit::with_max_chars(5_000), recorded),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn case_17_an_important_tail_survives() {
        let text = format!("{}Error: boom", "line of a build log\n".repeat(2_000));
        let cut = truncate(&text, TextLimit::with_max_chars(16_000), recorded);
        assert!(cut.starts_with("line of a build log"));
        assert!(cut.contains("Error: boom"));
        assert!(weighted_chars(&cut) <= 16_000);
    }

    #[test]
    fn no_character_weighs_more_than_its_bytes_allow() {
        let weighs_more = |c: &char| weight(*c, 1) > MOST_BYTE_WEIGHT * c.len_utf8() as u64;
        assert_eq!(('\0'..=char::MAX).find(weighs_more), None);
        for (text, chars, cut) in
            [("abcdef", 3, "abc"), ("ab字cd", 5, "ab"), ("ab字cd", 6, "ab字"), ("é", 0, "")]
        {
            assert_eq!(prefix(text, chars, 1), cut, "{text} {chars}");
        }
    }

    #[test]
    fn case_18_and_19_weights_decide_and_pairs_stay_whole() {
        let cjk = "语".repeat(5_000);
        let cut = truncate(&cjk, TextLimit::with_max_chars(3_000), recorded);
        assert_eq!(utf16_len(&cut), 804);
        let mixed = format!("{}\u{1F600}{}", "a".repeat(439), "b".repeat(1_000));
        let limit = TextLimit { min_weight: 2, ..TextLimit::with_max_chars(1_000) };
        assert_eq!(utf16_len(&truncate(&mixed, limit, recorded)), 500);
    }

    #[test]
    fn case_20_what_makes_a_tail_important() {
        let late = format!("error {}", "x ".repeat(1_500));
        let cases = [
            ("no errors here", false),
            ("terror", false),
            ("all done", true),
            ("a } b", false),
            ("{\"a\": 1}\n", true),
            (late.as_str(), false),
        ];
        for (text, important) in cases {
            assert_eq!(has_important_tail(text), important, "{}", prefix(text, 20, 1));
        }
    }

    #[test]
    fn case_37_a_summary_is_capped_with_its_marker() {
        let text = "s".repeat(17_000);
        assert_eq!(CUT_MARKER.len(), 46);
        for (max, kept) in [(16_000, 15_954), (60, 14), (40, 40), (17_000, 17_000)] {
            let capped = cap_with_marker(&text, max);
            assert_eq!(capped.matches('s').count() - capped.matches(CUT_MARKER).count() * 3, kept);
            assert!(capped.len() as u64 <= max);
        }
    }

    #[test]
    fn head_and_end_of_a_long_text() {
        assert_eq!(head_and_tail("0123456789", 4, 2, "…"), "0123…89");
        assert_eq!(head_and_tail("0123456789", 8, 2, "…"), "0123456789");
        assert_eq!(head_and_tail("", 0, 0, "…"), "");
    }

    #[test]
    fn numbers_for_people() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (48_210, "48,210")] {
            assert_eq!(group_thousands(number), text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_cut_text_fits_and_is_the_same_each_time(
            text in "[a-z 语\u{1F600}\n]{0,900}", max in 0u64..600, min_weight in 1u64..3,
        ) {
            let limit = TextLimit { max_chars: max, min_keep_chars: 40, min_weight };
            let once = truncate(&text, limit, recorded);
            prop_assert!(weighted_len(&once, min_weight) <= max);
            prop_assert_eq!(&once, &truncate(&text, limit, recorded));
        }
    }
}

//! Generated messages that carry their own checksum.

/// Words of a text, at most. A few pages, so that writes are long enough to be cut.
const MOST_WORDS: usize = 700;

/// What texts are made of.
const WORDS: [&str; 12] = [
    "socket",
    "timeout",
    "src/pool.rs",
    "retries",
    "the",
    "of",
    "fails",
    "build",
    "4096",
    "naïve",
    "quotes \"twice\"",
    "—",
];

/// Hexadecimal digits of a number.
const DIGITS: usize = 16;

/// The text of a number: always the same, with the number at its head.
pub(super) fn text_of(number: u64) -> String {
    let mut random = fastrand::Rng::with_seed(number);
    let mut text = mark(number);
    for _ in 0..random.usize(1..MOST_WORDS) {
        text.push(if random.u8(..) < 16 { '\n' } else { ' ' });
        text.push_str(random.choice(WORDS).unwrap_or_default());
    }
    text
}

/// The number at the head of a text, where there is one.
pub(super) fn number_of(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("[m-")?.split_once(']')?.0;
    (digits.len() == DIGITS).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// How a text of a number begins.
pub(super) fn mark(number: u64) -> String {
    format!("[m-{number:016x}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_its_number_and_is_always_the_same() {
        for number in [0, 1, u64::MAX, 0xabc] {
            let text = text_of(number);
            assert_eq!(number_of(&text), Some(number));
            assert_eq!(text, text_of(number));
        }
        assert_eq!(number_of("hello"), None);
        assert_eq!(number_of("[m-12]"), None);
    }
}

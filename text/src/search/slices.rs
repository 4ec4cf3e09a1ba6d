//! Splits a text into slices that can be found and kept on their own.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, weighted_chars};

/// Splits a text into contiguous slices of about `most_tokens`: at lines, else at sentences, else
/// by size.
pub fn split_into_slices(text: &str, most_tokens: u64) -> Vec<Range<usize>> {
    let most_chars = most_tokens * CHARS_PER_TOKEN;
    let mut slices: Vec<Range<usize>> = Vec::new();
    let mut chars = 0;
    let mut push = |piece: &str, at: usize| {
        let piece_chars = weighted_chars(piece);
        match slices.last_mut() {
            Some(last) if chars + piece_chars <= most_chars => last.end = at + piece.len(),
            _ => {
                slices.push(at..at + piece.len());
                chars = 0;
            }
        }
        chars += piece_chars;
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if weighted_chars(line) <= 2 * most_chars {
            push(line, at);
            at += line.len();
            continue;
        }
        for sentence in sentences(line, 2 * most_chars) {
            push(sentence, at);
            at += sentence.len();
        }
    }
    slices
}

/// The sentences of a line with their trailing spaces; a sentence over `most_chars` is cut.
fn sentences(line: &str, most_chars: u64) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (sentence, behind) = rest.split_at(sentence_end(rest, most_chars));
        rest = behind;
        Some(sentence)
    })
}

/// End of the first sentence, in bytes; never 0.
fn sentence_end(text: &str, most_chars: u64) -> usize {
    let mut has_ended = false;
    let mut chars = 0;
    for (at, character) in text.char_indices() {
        let is_full = chars >= most_chars;
        if at > 0 && (is_full || (has_ended && !character.is_whitespace())) {
            return at;
        }
        chars += weighted_chars(character.encode_utf8(&mut [0; 4]));
        // A Latin full stop ends a sentence only before a space.
        has_ended = match character {
            '。' | '！' | '？' => true,
            _ if character.is_whitespace() => has_ended || ends_before(text, at),
            _ => false,
        };
    }
    text.len()
}

fn ends_before(text: &str, at: usize) -> bool {
    text.get(..at).is_some_and(|before| before.ends_with(['.', '!', '?']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str, tokens: u64) -> Vec<&str> {
        split_into_slices(text, tokens).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn lines_stay_whole_and_are_packed() {
        assert_eq!(parts("one\ntwo\nthree", 100), ["one\ntwo\nthree"]);
        assert_eq!(parts("aaaaaaa\nbbbbbbb\nccccccc\n", 4), ["aaaaaaa\nbbbbbbb\n", "ccccccc\n"]);
    }

    #[test]
    fn a_long_line_is_cut_at_sentences() {
        let text = "First sentence here. Second one v1.2 there! Third?";
        assert_eq!(parts(text, 5), ["First sentence here. ", "Second one v1.2 there! ", "Third?"]);
        assert_eq!(parts("一二三四。五六七八。", 4), ["一二三四。", "五六七八。"]);
        assert_eq!(parts(&"x".repeat(100), 5).len(), 3);
    }

    proptest! {
        #[test]
        fn slices_follow_each_other(text in "[a-z.! \n。好]{0,300}", tokens in 1u64..40) {
            let joined: String = parts(&text, tokens).concat();
            prop_assert_eq!(&joined, &text);
            prop_assert!(parts(&text, tokens).iter().all(|part| !part.is_empty()));
        }
    }
}

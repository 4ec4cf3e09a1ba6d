//! The sentences of prose: code, tables, announcements and the markup of lists are left out.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use crate::text::one_line;

/// A shorter sentence says nothing by itself; in weighted characters.
const MIN_SENTENCE_CHARS: u64 = 8;

/// The sentences of a text, in order.
pub(super) fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut is_code = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with(['|', '<', '#']) {
            split(without_bullet(line), &mut sentences);
        }
    }
    sentences
}

/// A line without the mark of the list it stands in.
pub(super) fn without_bullet(line: &str) -> &str {
    let bare = line.trim_start_matches(['-', '*', '•', '>', ' ']);
    let numbered = bare.split_once(". ");
    match numbered {
        Some((number, rest)) if number.len() <= 3 && number.parse::<u16>().is_ok() => rest,
        _ => bare,
    }
}

fn split(line: &str, into: &mut Vec<String>) {
    let mut sentence = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        sentence.push(character);
        let ends_wide = matches!(character, '。' | '！' | '？' | '；');
        let ends_narrow = matches!(character, '.' | '!' | '?')
            && characters.peek().is_none_or(|next| next.is_whitespace());
        if ends_wide || ends_narrow {
            push(&mut sentence, into);
        }
    }
    push(&mut sentence, into);
}

fn push(sentence: &mut String, into: &mut Vec<String>) {
    let whole = one_line(&std::mem::take(sentence)).replace("**", "");
    // A line that ends in a colon announces what follows and says nothing without it.
    let announces = whole.ends_with([':', '：']);
    if !announces && weighted_chars(&whole) >= MIN_SENTENCE_CHARS {
        into.push(whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_tables_hold_no_sentences() {
        let text = "1. We agreed on axum.\n```\n// never reached\n```\n| must | not |\n- [ ] write it\nCreated the file with:";
        assert_eq!(sentences(text), ["We agreed on axum.", "[ ] write it"]);
    }

    #[test]
    fn a_point_inside_a_name_ends_nothing() {
        assert_eq!(
            sentences("Read main.rs first. 先读文件。再改。好的吗"),
            ["Read main.rs first.", "先读文件。", "再改。", "好的吗"]
        );
    }
}

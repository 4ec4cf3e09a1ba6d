//! Sentences sorted by the words they hold, in the conversation's own words and language.

use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use regex::Regex;

use super::{Passage, Sections, Speaker};
use crate::identifiers;
use crate::summary::sections::{
    ASK_LIMIT_CHARS, LINE_LIMIT_CHARS, MAX_ASKS, MAX_DECISIONS, MAX_LINES,
};
use crate::text::{clip, one_line};

/// Identifiers come from the newest messages: they belong to the work at hand.
const IDENTIFIER_MESSAGES: usize = 10;
/// A shorter sentence says nothing by itself; in weighted characters.
const MIN_SENTENCE_CHARS: u64 = 8;

static DECISION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:decid(?:ed|e)|decision|chose|chosen|agreed|settled on|switch(?:ed|ing) to|instead of|go(?:ing)? with|let'?s use|(?:we|i)(?:'ll| will) use|root cause|turns out|fixed|implemented|added|created|removed|renamed|replaced|refactored|moved|committed|tests? pass(?:es|ed)?)\b|决定|选择了|采用|改用|确定|方案|修复了|实现了|已完成|根本原因",
    )
    .ok()
});
static TODO: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^\[ \]|\btodo\b|^next\b|\bnext step|\bstill need|\bremaining (?:work|task|step)|\bleft to do\b|接下来|下一步|待办|还需要|尚未",
    )
    .ok()
});
static CONSTRAINT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:never|always|must|mustn'?t|do not|don'?t|should not|shouldn'?t|make sure|only use|avoid)\b|不要|必须|始终|禁止|务必|永远|一律",
    )
    .ok()
});

/// The five sections of passages that stand oldest first.
pub fn extract(passages: &[Passage<'_>]) -> Sections {
    let from_all = |speaker| speaker != Speaker::Tool;
    Sections {
        decisions: sentences_with(&DECISION, passages, from_all, MAX_DECISIONS),
        todos: sentences_with(&TODO, passages, from_all, MAX_LINES),
        constraints: sentences_with(&CONSTRAINT, passages, |s| s == Speaker::User, MAX_LINES),
        asks: asks(passages),
        identifiers: newest_identifiers(passages),
    }
}

/// What was said goes before what a tool printed: a listing is full of names nobody works with.
fn newest_identifiers(passages: &[Passage<'_>]) -> Vec<String> {
    let newest = || passages.iter().rev().take(IDENTIFIER_MESSAGES);
    let said = newest().filter(|passage| passage.speaker != Speaker::Tool);
    let printed = newest().filter(|passage| passage.speaker == Speaker::Tool);
    let texts = said.chain(printed).map(|passage| passage.text.as_ref());
    identifiers::extract(texts, identifiers::MAX_IDENTIFIERS)
}

/// The newest sentences that hold a word, in the order they were said, each once.
fn sentences_with(
    pattern: &LazyLock<Option<Regex>>,
    passages: &[Passage<'_>],
    speaks: impl Fn(Speaker) -> bool,
    max: usize,
) -> Vec<String> {
    let Some(pattern) = pattern.as_ref() else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for passage in passages.iter().rev().filter(|passage| speaks(passage.speaker)) {
        for sentence in sentences(&passage.text).into_iter().rev() {
            if found.len() == max {
                break;
            }
            if !pattern.is_match(&sentence) {
                continue;
            }
            let line = clip(&sentence, LINE_LIMIT_CHARS).into_owned();
            if !found.contains(&line) {
                found.push(line);
            }
        }
    }
    found.reverse();
    found
}

/// What the person asked and nobody has answered, newest first. Where everything is answered, the
/// newest request stands alone and says so, so that nobody does it again.
fn asks(passages: &[Passage<'_>]) -> Vec<String> {
    let mut pending = Vec::new();
    let mut is_answered = false;
    for passage in passages.iter().rev() {
        match passage.speaker {
            Speaker::Assistant => is_answered |= !passage.calls_tools && !passage.text.is_empty(),
            Speaker::User if is_answered && pending.is_empty() => {
                return vec![format!("(answered) {}", ask_line(&passage.text))];
            }
            Speaker::User if is_answered || pending.len() == MAX_ASKS => break,
            Speaker::User => pending.push(ask_line(&passage.text)),
            Speaker::Tool => {}
        }
    }
    pending
}

fn ask_line(text: &str) -> String {
    clip(&one_line(text), ASK_LIMIT_CHARS).into_owned()
}

/// The sentences of prose: code, tables and markup of lists are left out.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut is_code = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with(['|', '<', '#']) {
            split_sentences(without_bullet(line), &mut sentences);
        }
    }
    sentences
}

fn without_bullet(line: &str) -> &str {
    let bare = line.trim_start_matches(['-', '*', '•', '>', ' ']);
    let numbered = bare.split_once(". ");
    match numbered {
        Some((number, rest)) if number.len() <= 3 && number.parse::<u16>().is_ok() => rest,
        _ => bare,
    }
}

fn split_sentences(line: &str, into: &mut Vec<String>) {
    let mut sentence = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        sentence.push(character);
        let ends_wide = matches!(character, '。' | '！' | '？' | '；');
        let ends_narrow = matches!(character, '.' | '!' | '?')
            && characters.peek().is_none_or(|next| next.is_whitespace());
        if ends_wide || ends_narrow {
            push_sentence(&mut sentence, into);
        }
    }
    push_sentence(&mut sentence, into);
}

fn push_sentence(sentence: &mut String, into: &mut Vec<String>) {
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

    fn said(speaker: Speaker, text: &str) -> Passage<'_> {
        Passage { seq: 0, speaker, text: text.into(), calls_tools: false }
    }

    #[test]
    fn patterns_compile() {
        for pattern in [&DECISION, &TODO, &CONSTRAINT] {
            assert!(pattern.is_some());
        }
    }

    #[test]
    fn code_and_tables_hold_no_sentences() {
        let text = "1. We agreed on axum.\n```\n// never reached\n```\n| must | not |\n- [ ] write it\nCreated the file with:";
        assert_eq!(sentences(text), ["We agreed on axum.", "[ ] write it"]);
    }

    #[test]
    fn the_newest_sentences_win() {
        let texts: Vec<String> = (0..30).map(|n| format!("Always check rule {n}.")).collect();
        let passages: Vec<_> = texts.iter().map(|text| said(Speaker::User, text)).collect();
        let constraints = extract(&passages).constraints;
        assert_eq!(constraints.len(), MAX_LINES);
        assert_eq!(constraints.last().map(String::as_str), Some("Always check rule 29."));
    }

    #[test]
    fn rules_come_from_the_person_alone() {
        let passages =
            [said(Speaker::Assistant, "You must restart it."), said(Speaker::Tool, "不要")];
        assert!(extract(&passages).constraints.is_empty());
    }

    #[test]
    fn an_answered_request_is_not_pending() {
        let ask = said(Speaker::User, "please rename it");
        let answer = said(Speaker::Assistant, "Renamed.");
        let calling = Passage { calls_tools: true, ..said(Speaker::Assistant, "Let me look.") };
        assert_eq!(extract(&[ask.clone(), answer.clone()]).asks, ["(answered) please rename it"]);
        assert_eq!(extract(&[ask.clone(), calling]).asks, ["please rename it"]);
        let steer = said(Speaker::User, "no, remove it");
        let asks = extract(&[answer, ask, steer]).asks;
        assert_eq!(asks, ["no, remove it", "please rename it"]);
    }
}

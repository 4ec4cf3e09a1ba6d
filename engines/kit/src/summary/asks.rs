//! What the person asked and nobody has answered yet.

use std::sync::LazyLock;

use regex::Regex;

use super::sections::{ASK_LIMIT_CHARS, MAX_ASKS};
use super::sentences::{sentences, without_bullet};
use super::{Passage, Speaker};
use crate::text::{clip, one_line};

/// Of what a nod agrees to so much is told, in weighted characters.
const NODDED_AT_CHARS: u64 = 200;

/// Opens the line of a request that was answered.
const ANSWERED: &str = "(answered) ";

static NOD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:(?:ok|okay|yes|yep|yeah|sure|go|go on|go ahead|do it|continue|please|proceed|good|great|nice|perfect|wow|thanks|thank you|fine|cool|alright|next|it works|好|好的|可以|继续|行|谢谢|嗯)[\s,.!。，！]*)+$",
    )
    .ok()
});

/// Requests without an answer, newest first. Where everything is answered, the newest request stands
/// alone and says so, so that nobody does it again. `is_answered_later` says that an answer follows
/// the passages.
pub(super) fn asks(passages: &[Passage<'_>], is_answered_later: bool) -> Vec<String> {
    let mut pending = Vec::new();
    let mut is_answered = is_answered_later;
    for (at, passage) in passages.iter().enumerate().rev() {
        match passage.speaker {
            Speaker::Assistant => is_answered |= is_answer(passage),
            Speaker::User if is_answered && pending.is_empty() => {
                return vec![answered_line(&line(passages, at))];
            }
            Speaker::User if is_answered || pending.len() == MAX_ASKS => break,
            Speaker::User => pending.push(line(passages, at)),
            Speaker::Tool => {}
        }
    }
    pending
}

/// The line of a request that turned out to be answered.
pub fn answered_line(line: &str) -> String {
    if is_answered_line(line) { line.to_owned() } else { format!("{ANSWERED}{line}") }
}

/// Whether a line of the section stands for a request that was answered.
pub fn is_answered_line(line: &str) -> bool {
    line.starts_with(ANSWERED)
}

/// Whether a text only says yes to what was said before it.
pub fn is_nod(text: &str) -> bool {
    NOD.as_ref().is_some_and(|nod| nod.is_match(text.trim()))
}

/// Whether a passage ends a turn.
pub(super) fn is_answer(passage: &Passage<'_>) -> bool {
    passage.speaker == Speaker::Assistant && !passage.calls_tools && !passage.text.is_empty()
}

/// A request on one line; a nod with what it agrees to, because alone it asks for nothing.
fn line(passages: &[Passage<'_>], at: usize) -> String {
    let text = passages.get(at).map_or("", |passage| passage.text.as_ref());
    let ask = clip(without_bullet(&one_line(text)), ASK_LIMIT_CHARS).into_owned();
    if !is_nod(text) {
        return ask;
    }
    let before = passages.get(..at).unwrap_or(&[]).iter().rev();
    let proposal = before
        .take_while(|passage| passage.speaker != Speaker::User)
        .find(|passage| passage.speaker == Speaker::Assistant)
        .and_then(|passage| sentences(&passage.text).pop());
    match proposal {
        Some(proposal) => format!("{ask} (to: {})", clip(&proposal, NODDED_AT_CHARS)),
        None => ask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::extract::tests::said;

    #[test]
    fn an_answered_request_is_not_pending() {
        let ask = said(Speaker::User, "please rename it");
        let answer = said(Speaker::Assistant, "Renamed.");
        let calling = Passage { calls_tools: true, ..said(Speaker::Assistant, "Let me look.") };
        assert_eq!(asks(&[ask.clone(), answer.clone()], false), ["(answered) please rename it"]);
        assert_eq!(asks(&[ask.clone(), calling.clone()], false), ["please rename it"]);
        assert_eq!(asks(&[ask.clone(), calling], true), ["(answered) please rename it"]);
        let steer = said(Speaker::User, "no, remove it");
        let open = asks(&[answer, ask, steer], false);
        assert_eq!(open, ["no, remove it", "please rename it"]);
        assert!(open.iter().all(|line| !is_answered_line(line)));
    }

    #[test]
    fn a_nod_tells_what_it_agrees_to() {
        let proposal = said(Speaker::Assistant, "Two files are left. Shall I remove both?");
        let nod = said(Speaker::User, "yes, go ahead");
        let told = ["yes, go ahead (to: Shall I remove both?)"];
        assert_eq!(asks(&[proposal, nod.clone()], false), told);
        assert_eq!(asks(&[nod], false), ["yes, go ahead"]);
        for (text, expected) in
            [("ok", true), ("Ok. Great!", true), ("好的，继续", true), ("ok, now deploy", false)]
        {
            assert_eq!(is_nod(text), expected, "{text}");
        }
    }

    #[test]
    fn the_mark_of_a_list_is_no_part_of_a_request() {
        assert_eq!(
            asks(&[said(Speaker::User, "- move it\n- test it")], false),
            ["move it - test it"]
        );
    }
}

//! User requests that are not answered yet.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use super::excerpt::{ExcerptRole, MessageExcerpt};
use super::sections::{MAX_REQUESTS, REQUEST_LIMIT_CHARS};
use super::sentences::{strip_bullet, strip_emphasis};
use crate::antecedent::quote_antecedent;
use ctxhost_text::truncate::prefix;

/// Marks a truncated request; the ledger has the full text.
const MORE: &str = " […]";

/// Marks an answered request in summaries of older versions.
const ANSWERED: &str = "(answered) ";

/// Unanswered requests, newest first. With `is_answered_later` an answer follows the excerpts.
pub(super) fn pending_requests(
    excerpts: &[MessageExcerpt<'_>],
    is_answered_later: bool,
) -> Vec<String> {
    let mut pending: Vec<String> = Vec::new();
    if is_answered_later {
        return pending;
    }
    for (at, excerpt) in excerpts.iter().enumerate().rev() {
        match excerpt.role {
            ExcerptRole::Assistant if is_final_answer(excerpt) => break,
            ExcerptRole::User if pending.len() == MAX_REQUESTS => break,
            ExcerptRole::User => pending.push(line(excerpts, at)),
            _ => {}
        }
    }
    pending
}

/// Whether a line of an older summary is an answered request, which is not pending.
pub fn is_answered_line(line: &str) -> bool {
    line.starts_with(ANSWERED)
}

/// Whether an excerpt ends a turn.
pub(super) fn is_final_answer(excerpt: &MessageExcerpt<'_>) -> bool {
    excerpt.role == ExcerptRole::Assistant && !excerpt.calls_tools && !excerpt.text.is_empty()
}

/// A request on one line; one that agrees to a proposal with it.
fn line(excerpts: &[MessageExcerpt<'_>], at: usize) -> String {
    let text = excerpts.get(at).map_or("", |excerpt| excerpt.text.as_ref());
    let request = whole_words(&strip_emphasis(strip_bullet(text.trim())), REQUEST_LIMIT_CHARS);
    let before = excerpts.get(..at).unwrap_or(&[]).iter().rev();
    let answer = before
        .take_while(|excerpt| excerpt.role != ExcerptRole::User)
        .find(|excerpt| excerpt.role == ExcerptRole::Assistant);
    match answer.and_then(|answer| quote_antecedent(text, &answer.text)) {
        Some(antecedent) => format!("{request} (to: {antecedent})"),
        None => request,
    }
}

/// Cuts a text to `max_chars` weighted characters, at a sentence end or else at a word.
fn whole_words(text: &str, max_chars: u64) -> String {
    if weighted_chars(text) <= max_chars {
        return text.to_owned();
    }
    let head = prefix(text, max_chars.saturating_sub(weighted_chars(MORE)), 1);
    let sentence = [". ", "! ", "? ", "。", "！", "？"];
    // Latin sentences end before a space, Chinese ones anywhere.
    let ends =
        sentence.iter().filter_map(|end| head.rfind(end).map(|at| at + end.trim_end().len()));
    let end = ends.max().filter(|end| end * 2 > head.len()).or_else(|| head.rfind(' '));
    format!("{}{MORE}", head.get(..end.unwrap_or(head.len())).unwrap_or(head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialogue::is_assent;
    use crate::summary::extract::tests::excerpt_of;

    #[test]
    fn an_answered_request_is_not_pending() {
        let request = excerpt_of(ExcerptRole::User, "please rename it");
        let answer = excerpt_of(ExcerptRole::Assistant, "Renamed.");
        let calling = MessageExcerpt {
            calls_tools: true,
            ..excerpt_of(ExcerptRole::Assistant, "Let me look.")
        };
        assert!(pending_requests(&[request.clone(), answer.clone()], false).is_empty());
        assert_eq!(
            pending_requests(&[request.clone(), calling.clone()], false),
            ["please rename it"]
        );
        assert!(pending_requests(&[request.clone(), calling], true).is_empty());
        let steer = excerpt_of(ExcerptRole::User, "no, remove it");
        let open = pending_requests(&[answer, request, steer], false);
        assert_eq!(open, ["no, remove it", "please rename it"]);
    }

    #[test]
    fn an_assent_is_rendered_with_its_proposal() {
        let proposal =
            excerpt_of(ExcerptRole::Assistant, "Two files are left. Shall I remove both?");
        let assent = excerpt_of(ExcerptRole::User, "yes, go ahead");
        let expected_line = ["yes, go ahead (to: Two files are left. Shall I remove both?)"];
        assert_eq!(pending_requests(&[proposal, assent.clone()], false), expected_line);
        assert_eq!(pending_requests(&[assent], false), ["yes, go ahead"]);
        for (text, expected) in
            [("ok", true), ("Ok. Great!", true), ("好的，继续", true), ("ok, now deploy", false)]
        {
            assert_eq!(is_assent(text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_request_ends_with_a_sentence_or_a_word() {
        let long =
            format!("Rename **the parser**. {}", "Then look at the next module. ".repeat(60));
        let line = pending_requests(&[excerpt_of(ExcerptRole::User, &long)], false).remove(0);
        assert!(line.ends_with("next module. […]"), "{line}");
        assert!(weighted_chars(&line) <= REQUEST_LIMIT_CHARS && !line.contains('*'));
        let words = "wordwithoutanend ".repeat(90);
        let line = pending_requests(&[excerpt_of(ExcerptRole::User, &words)], false).remove(0);
        assert!(line.ends_with("wordwithoutanend […]"), "{line}");
    }

    #[test]
    fn the_mark_of_a_list_is_no_part_of_a_request() {
        assert_eq!(
            pending_requests(&[excerpt_of(ExcerptRole::User, "- move it\n- test it")], false),
            ["move it - test it"]
        );
    }
}

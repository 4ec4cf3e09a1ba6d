//! The antecedent of a short request: what "yes, do that", "the second one" or "that port" refers to in the messages
//! before it. Without it such a request decides nothing.

mod holds;
mod options;
mod passages;
mod reference;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};

use crate::dialogue::{is_assent, is_hidden};
use crate::ledger::listed_requests;
use crate::request_excerpt::LEAST_REQUEST_CHARS;
use crate::summary::envelope::unwrap_summary;
use ctxhost_text::injected_text::request_text;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{clip, one_line};

use reference::Reference;

/// Length of a request that may need its antecedent, in weighted characters: two sentences.
// A longer one says what it is about, and pays nothing.
const MOST_REQUEST_CHARS: u64 = 160;
/// Length of an antecedent, in weighted characters: 55 tokens, so that both are shown where a request is shortened.
const MOST_QUOTE_CHARS: u64 = LEAST_REQUEST_CHARS - MOST_REQUEST_CHARS - 20;
/// Bytes at the end of a message that are searched.
const SEARCHED_BYTES: usize = 16_000;
/// Entries before a request that are searched.
// Without a limit thousands of messages without an answer would take quadratic time.
const SEARCHED_ENTRIES: usize = 64;
/// Newest outputs of a turn that are searched for a name.
const SEARCHED_OUTPUTS: usize = 8;
/// Stands before the antecedent behind a request. A quotation, so that neither rules nor facts of the user are read
/// from it.
const QUOTE: &str = "\n> in answer to: ";
/// Stands before it where the request must stay as it is.
const NOTE: &str = "The next message of the user answers this:\n> ";

/// What a short request refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Antecedent {
    /// The position of the message or result that it is from.
    pub seq: u64,
    /// Its text on one line, without secrets.
    text: String,
    /// Whether the request chooses or agrees, so that it decides something.
    pub is_chosen: bool,
}

impl Antecedent {
    /// The antecedent of a user message; `None` for one that needs none, or that shows it already.
    pub fn find(transcript: &Transcript, request: &Entry<'_>) -> Option<Antecedent> {
        let text = request_text(request);
        let text = text.trim();
        let is_message = request.is_user_message() && !request.has(Flags::IMAGES);
        if !is_message || is_hidden(request) || text.contains(QUOTE.trim_start()) {
            return None;
        }
        let before = Antecedent::find_before(transcript, request, text);
        before.or_else(|| holds::find_hold(transcript, request))
    }

    /// What it refers to in the last answer and in the outputs before it.
    fn find_before(transcript: &Transcript, request: &Entry<'_>, text: &str) -> Option<Antecedent> {
        let reference = Reference::of(text);
        if reference == Reference::Nothing {
            return None;
        }
        let mut outputs = Vec::new();
        let mut has_answer = false;
        let newest_first = transcript.range(0..request.seq()).rev();
        for entry in newest_first.take(SEARCHED_ENTRIES) {
            let own = entry.text().trim();
            match entry.role() {
                _ if entry.kind() == EntryKind::CompactionSummary => {
                    let text = quoted_in(&unwrap_summary(own), text)?;
                    return Some(Antecedent { seq: entry.seq(), text, is_chosen: true });
                }
                // Two messages in a row may answer the same one.
                Role::User if entry.is_user_message() && (has_answer || !outputs.is_empty()) => {
                    break;
                }
                Role::Assistant if !own.is_empty() && !has_answer => {
                    has_answer = true;
                    if let Some(text) = reference.find_in(text, own) {
                        let is_chosen = reference != Reference::Unknown;
                        return Some(Antecedent { seq: entry.seq(), text, is_chosen });
                    }
                    if !matches!(reference, Reference::Name(_)) {
                        break;
                    }
                }
                Role::Tool if outputs.len() < SEARCHED_OUTPUTS => outputs.push(entry),
                _ => {}
            }
        }
        let Reference::Name(words) = reference else { return None };
        outputs.iter().find_map(|entry| {
            let passage = passages::line_with_name(end_of(entry.text()), &words)?;
            Some(Antecedent { seq: entry.seq(), text: shown(passage)?, is_chosen: true })
        })
    }

    /// The request with its antecedent behind it.
    pub fn append_to(&self, request: &str) -> String {
        format!("{request}{QUOTE}{}", self.text)
    }

    /// Memory use in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Antecedent>() + self.text.capacity()
    }

    /// The text to show before a request that must stay as it is.
    pub fn note(&self) -> String {
        format!("{NOTE}{}", self.text)
    }
}

impl Reference {
    /// What a request refers to in an answer, on one line; `None` if there is none.
    fn find_in(&self, request: &str, answer: &str) -> Option<String> {
        let answer = end_of(answer);
        let reply = || passages::question(answer).or_else(|| passages::proposal(answer));
        let passage = match self {
            Reference::Nothing => None,
            Reference::Options(names) => match options::find_options(answer, names) {
                Some(options) => return shown(&options),
                None => reply(),
            },
            Reference::Name(words) => passages::sentence_with_name(answer, words),
            Reference::Other => match options::all_options(answer) {
                Some(options) => return shown(&options),
                None => passages::alternatives(answer).or_else(reply),
            },
            Reference::Reply if is_assent(request) => reply(),
            Reference::Reply => reply().or_else(|| passages::last_sentence(answer)),
            Reference::Unknown => passages::question(answer),
        };
        shown(passage?)
    }
}

/// The part of an answer that a request refers to, on one line; `None` if there is none.
pub(crate) fn quote_antecedent(request: &str, answer: &str) -> Option<String> {
    Reference::of(request).find_in(request, answer)
}

/// Whether a request says what to do: more than words that agree, refuse, thank or ask to go on.
pub fn states_task(request: &str) -> bool {
    request.contains(char::is_alphanumeric) && !reference::only_replies(request)
}

/// A request with the antecedent of a note behind it.
pub(crate) fn quote_note(request: &str, note: &str) -> String {
    format!("{request}{QUOTE}{}", note.strip_prefix(NOTE).unwrap_or(note))
}

/// Whether a request of a list has its antecedent behind it.
pub(crate) fn has_quote(request: &str) -> bool {
    request.contains(QUOTE)
}

/// A request without the antecedent behind it.
pub(crate) fn without_quote(request: &str) -> &str {
    request.split_once(QUOTE).map_or(request, |(request, _)| request)
}

/// Size of the antecedent behind a request, in tokens.
pub(crate) fn quote_tokens(request: &str) -> u64 {
    tokens::estimate(request) - tokens::estimate(without_quote(request))
}

/// The antecedent that a summary shows behind a request.
fn quoted_in(summary: &str, request: &str) -> Option<String> {
    let requests = listed_requests(summary);
    let mut quotes = requests.iter().filter_map(|listed| listed.split_once(QUOTE));
    quotes.find(|(listed, _)| listed.trim() == request).map(|(_, quote)| quote.to_owned())
}

/// A passage as it is shown; `None` if it says nothing.
fn shown(passage: &str) -> Option<String> {
    let line = one_line(&redact(&passage.replace("**", "").replace('`', "")));
    let text = clip(&line, MOST_QUOTE_CHARS).into_owned();
    (!text.is_empty()).then_some(text)
}

/// The end of a long text, from the beginning of a line on.
fn end_of(text: &str) -> &str {
    let from = text.ceil_char_boundary(text.len().saturating_sub(SEARCHED_BYTES));
    let end = text.get(from..).unwrap_or_default();
    if from == 0 { end } else { end.split_once('\n').map_or(end, |(_, lines)| lines) }
}

#[cfg(test)]
mod tests;

//! Renders the user's requests: word for word if they fit, else the longest are shortened first.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use super::entry_items::INSTRUCTION;
use super::items::{LedgerItem, LedgerItems, text_line};
use super::names;
use crate::antecedent::{has_quote, without_quote};
use crate::caps::fair_cap;
use crate::request_excerpt::{LEAST_REQUEST_CHARS, shorten_request};
use crate::rules::find_rules;
use crate::wordings::find_repeated;

/// Size of the tags and the cut mark, in weighted characters.
const TAG_CHARS: u64 = 48;
/// Weighted characters of a request that are searched for names.
const NAME_READ_CHARS: u64 = 2_000;

/// Renders the block, oldest first, in at most `room_chars` weighted characters. If necessary the
/// longest requests are cut; if even that is too little, requests with rules stay before those with
/// names, and those before the others, each newest first; requests that newer ones repeat come last. A request with a
/// rule that another one replaces is shown with that one only.
pub(super) fn render(requests: &LedgerItems, room_chars: u64, tag: &str) -> Vec<String> {
    let requests = requests.oldest_first();
    let room_chars = room_chars.saturating_sub(TAG_CHARS);
    let sizes = requests.iter().map(|item| size(&text_line(&item.text, tag)));
    // In a small room one long request is not longer than half of what its kind has.
    let least_chars = LEAST_REQUEST_CHARS.min(room_chars / 4);
    let limit_chars = fair_cap(sizes.collect(), room_chars).map(|level| level.max(least_chars));
    let mut lines: Vec<RequestLine> = requests
        .iter()
        .map(|item| {
            let line = line(&item.text, limit_chars, tag);
            RequestLine {
                kind: item.request_kind,
                chars: size(&line),
                line,
                is_repeated: false,
                is_shown: false,
                replaced_by: item.replaced_by,
            }
        })
        .collect();
    let repeated = find_repeated(requests.iter().map(|item| item.text.as_str()));
    for (line, is_repeated) in lines.iter_mut().zip(repeated) {
        line.is_repeated = is_repeated;
    }
    let mut left_chars = room_chars;
    if lines.iter().map(|line| line.chars).sum::<u64>() > room_chars {
        // At most half for each kind, so that rules do not displace what was asked last.
        for kind in [RequestKind::Rule, RequestKind::Named] {
            left_chars -= show_newest(&mut lines, left_chars / 2, |line| {
                line.kind == kind && !line.is_repeated
            });
        }
        left_chars -= show_newest(&mut lines, left_chars, |line| !line.is_repeated);
    }
    left_chars -= show_newest(&mut lines, left_chars, |_| true);
    left_chars += hide_outdated(&mut lines);
    show_newest(&mut lines, left_chars, |line| line.replaced_by.is_none());
    lines.into_iter().filter(|line| line.is_shown).map(|line| line.line).collect()
}

/// Whether a room holds all requests, but only because long ones are cut.
pub(super) fn cuts_long(requests: &LedgerItems, room_chars: u64, tag: &str) -> bool {
    let requests = requests.oldest_first();
    let sizes = requests.iter().map(|item| size(&text_line(&item.text, tag)));
    let level = fair_cap(sizes.collect(), room_chars.saturating_sub(TAG_CHARS));
    level.is_some_and(|level| level >= LEAST_REQUEST_CHARS)
}

/// What a request holds that later turns need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A rule or preference.
    Rule,
    /// A name, such as a path or an order number, or a choice between proposals.
    Named,
    /// Neither.
    #[default]
    Plain,
}

/// A request for the ledger.
pub(super) fn request_item(text: String) -> LedgerItem {
    let own = without_quote(&text);
    let request_kind = if find_rules(own).next().is_some() {
        RequestKind::Rule
    } else {
        kind_without_rules(&text)
    };
    LedgerItem { request_kind, ..LedgerItem::new(text) }
}

/// The kind of a request whose rules do not count.
pub(super) fn kind_without_rules(text: &str) -> RequestKind {
    if text.starts_with(INSTRUCTION) {
        RequestKind::Rule
    } else if has_quote(text) || !names::extract_facts(text, NAME_READ_CHARS).is_empty() {
        RequestKind::Named
    } else {
        RequestKind::Plain
    }
}

struct RequestLine {
    kind: RequestKind,
    line: String,
    chars: u64,
    is_repeated: bool,
    is_shown: bool,
    replaced_by: Option<usize>,
}

/// Hides the lines with a rule whose replacement is not shown, and returns what they took.
fn hide_outdated(lines: &mut [RequestLine]) -> u64 {
    let mut hidden_chars = 0;
    // Newest first, since a replacement may be replaced, too.
    for at in (0..lines.len()).rev() {
        let is_shown = |line: &RequestLine| line.is_shown;
        let later = lines.get(at).and_then(|line| line.replaced_by);
        let is_outdated = later.is_some_and(|later| !lines.get(later).is_some_and(is_shown));
        if let Some(line) = lines.get_mut(at).filter(|line| is_outdated && line.is_shown) {
            line.is_shown = false;
            hidden_chars += line.chars;
        }
    }
    hidden_chars
}

/// Shows the newest lines that are wanted and fit, and returns what they take.
fn show_newest(
    lines: &mut [RequestLine],
    room_chars: u64,
    is_wanted: impl Fn(&RequestLine) -> bool,
) -> u64 {
    let mut left_chars = room_chars;
    for line in lines.iter_mut().rev().filter(|line| !line.is_shown && is_wanted(line)) {
        // A long one does not keep shorter older ones from being shown.
        let Some(left) = left_chars.checked_sub(line.chars) else { continue };
        left_chars = left;
        line.is_shown = true;
    }
    room_chars - left_chars
}

fn line(text: &str, limit_chars: Option<u64>, tag: &str) -> String {
    let whole = text_line(text, tag);
    match limit_chars.filter(|limit| size(&whole) > *limit) {
        None => whole,
        Some(limit) => {
            // The indent of continuation lines counts as well, so the text gives way to it.
            let extra = size(&whole).saturating_sub(weighted_chars(text));
            let room = limit.saturating_sub(extra.min(limit / 2));
            text_line(&shorten_request(text, room), tag)
        }
    }
}

fn size(line: &str) -> u64 {
    weighted_chars(line) + 1
}

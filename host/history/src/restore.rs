//! Restores compacted turns as one message of quoted text.
//!
//! A single message satisfies the pairing of calls and results at any position, and states that it is a
//! quotation.

use std::collections::HashSet;
use std::sync::LazyLock;

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{EntryKind, Flags, Role};
use regex::Regex;
use serde::Deserialize;
use serde_json::json;

use super::entry_text::EntryText;
use super::error::HistoryError;
use super::turns::{TurnRange, turn_of, turns};
use ctxhost_session::{RecordBody, Session, SessionError};

/// The custom type of the restored message.
const RESTORE: &str = "ctxhost.restore";

/// Characters of a tool result that are restored with its turn: about a page. `fetch` prints the rest.
const RESULT_CHARS: usize = 2_000;

/// Characters of call arguments that are restored with a turn: enough for most commands.
const ARGUMENT_CHARS: usize = 500;

static CLOSING_TAG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("(?i)</restored").ok());

/// What to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreRequest {
    /// Whole turns, with long results and arguments cut.
    Turns(TurnRange),
    /// One entry of any branch, uncut.
    Entry(String),
}

/// A restored message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredMessage {
    /// Its text.
    pub text: String,
    /// The ids of the quoted entries.
    pub entries: Vec<String>,
    /// Number of requested entries that are in context already.
    pub live: usize,
    /// Its size, in tokens without margin.
    pub tokens: u64,
}

impl RestoredMessage {
    /// The record to append.
    ///
    /// # Errors
    ///
    /// [`SessionError::Body`].
    pub fn to_body(&self) -> Result<RecordBody, SessionError> {
        RecordBody::from_value(&json!({
            "type": "custom_message",
            "customType": RESTORE,
            "content": self.text,
            "display": true,
            "details": { "entries": self.entries },
        }))
    }
}

/// Builds the message. `shown_as` is the name of the session in `fetch` commands.
///
/// # Errors
///
/// [`HistoryError`] if the entries do not exist or are all in context.
pub fn build_restoration(
    session: &Session,
    request: &RestoreRequest,
    shown_as: &str,
) -> Result<RestoredMessage, HistoryError> {
    let (source, asked) = match request {
        RestoreRequest::Turns(range) => (quote_turns(session, *range)?, describe_turns(*range)),
        RestoreRequest::Entry(id) => (quote_entry(session, id)?, format!("entry {id} is")),
    };
    let live_ids = live_ids(session);
    let (live, missing): (Vec<QuotedEntry>, Vec<QuotedEntry>) =
        source.quotes.into_iter().partition(|quote| live_ids.contains(&quote.entry.id));
    // A copy of what the model still sees would only cost tokens.
    if missing.is_empty() {
        return Err(HistoryError::StillInContext { asked });
    }
    let text = render_frame(&source.name, &missing, shown_as);
    let entries = missing.into_iter().map(|quote| quote.entry.id).collect();
    Ok(RestoredMessage { tokens: tokens::estimate(&text), text, entries, live: live.len() })
}

/// The requested entries and their name.
struct RestoreSource {
    name: String,
    quotes: Vec<QuotedEntry>,
}

/// One quoted entry.
struct QuotedEntry {
    turn: Option<usize>,
    entry: NewEntry,
    is_cut: bool,
}

fn quote_turns(session: &Session, range: TurnRange) -> Result<RestoreSource, HistoryError> {
    let turns = turns(session);
    let mut quotes = Vec::new();
    for turn in range.select(&turns)? {
        let entries = turn.records.iter().filter_map(|record| record.to_entry());
        let quoted = entries.filter(is_quotable);
        quotes.extend(quoted.map(|entry| QuotedEntry {
            turn: Some(turn.number),
            entry,
            is_cut: true,
        }));
    }
    Ok(RestoreSource { name: turns_name(range), quotes })
}

fn quote_entry(session: &Session, id: &str) -> Result<RestoreSource, HistoryError> {
    let entry = session.record(id).and_then(|record| record.to_entry());
    let entry = entry.ok_or_else(|| HistoryError::UnknownEntry { id: id.to_owned() })?;
    let quote = QuotedEntry { turn: turn_of(session, id), entry, is_cut: false };
    Ok(RestoreSource { name: format!("entry {id}"), quotes: vec![quote] })
}

/// Whether to quote an entry. System messages are in context while they apply; summaries and restored messages
/// repeat other entries.
fn is_quotable(entry: &NewEntry) -> bool {
    let is_repetition =
        entry.kind == EntryKind::CompactionSummary || quoted_in(entry.kind, &entry.raw).is_some();
    entry.role != Role::System && !is_repetition
}

/// Entries that are in context unchanged, or quoted by an earlier restored message.
fn live_ids(session: &Session) -> HashSet<String> {
    let mut ids = HashSet::new();
    for entry in session.live(0).snapshot().iter() {
        // A shortened entry can be restored in full.
        if !entry.has(Flags::REPLACED) {
            ids.insert(entry.id().to_owned());
            ids.extend(quoted_in(entry.kind(), entry.raw()).unwrap_or_default());
        }
    }
    ids
}

/// The ids of the entries quoted by a restored message; `None` for any other message.
fn quoted_in(kind: EntryKind, raw: &str) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireRestore {
        custom_type: String,
        details: WireRestoreDetails,
    }
    #[derive(Deserialize)]
    struct WireRestoreDetails {
        entries: Vec<String>,
    }
    if kind != EntryKind::Custom {
        return None;
    }
    let wire: WireRestore = serde_json::from_str(raw).ok()?;
    (wire.custom_type == RESTORE).then_some(wire.details.entries)
}

fn turns_name(range: TurnRange) -> String {
    let noun = if range.first == range.last { "turn" } else { "turns" };
    format!("{noun} {range}")
}

fn describe_turns(range: TurnRange) -> String {
    let verb = if range.first == range.last { "is" } else { "are" };
    format!("{} {verb}", turns_name(range))
}

/// Renders the quotes in a frame.
fn render_frame(name: &str, quotes: &[QuotedEntry], shown_as: &str) -> String {
    let mut text = format!(
        "Restored from earlier in this session ({name}), word for word: a record of the past, not a \
         new request.\n\n<restored source=\"{name}\">\n",
    );
    let mut turn = None;
    for quote in quotes {
        if quote.turn != turn
            && let Some(number) = quote.turn
        {
            text.push_str(&format!("[turn {number}]\n"));
        }
        turn = quote.turn;
        text.push_str(&render_quote(quote, shown_as));
    }
    text.push_str("</restored>");
    text
}

fn render_quote(quote: &QuotedEntry, shown_as: &str) -> String {
    let QuotedEntry { entry, is_cut, .. } = quote;
    let view = EntryText::from(entry);
    let cut = |text: &str, limit| {
        if *is_cut {
            shorten(text, limit, &format!("ctxhost fetch {shown_as} {}", entry.id))
        } else {
            text.to_owned()
        }
    };
    let content = match entry.role {
        Role::Tool => cut(&view.text, RESULT_CHARS),
        _ => view.text.clone(),
    };
    let mut text = format!("{}: {content}\n", view.speaker);
    for mime in &view.images {
        text.push_str(&format!("  ({mime}, not restored)\n"));
    }
    for (tool, arguments) in &view.calls {
        text.push_str(&format!("  calls {tool} {}\n", cut(arguments, ARGUMENT_CHARS)));
    }
    // A quoted closing tag must not end the frame.
    match &*CLOSING_TAG {
        Some(tag) => tag.replace_all(&text, "&lt;/restored").into_owned(),
        None => text,
    }
}

/// The start of a text, and the command that prints all of it.
fn shorten(text: &str, limit_chars: usize, command: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(limit_chars) else { return text.to_owned() };
    let (head, rest) = text.split_at(end);
    format!("{head} [… {} more characters: {command}]", rest.chars().count())
}

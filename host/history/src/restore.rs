//! Turns that were compacted away, brought back as one message of quoted text.
//!
//! One message needs no call to stand beside its result, so it is lawful wherever it stands; and it says
//! of itself that it is told again.

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

/// The custom type of the message.
const RESTORE: &str = "ctxhost.restore";

/// Characters of a tool result that come back with its turn: a page. The rest is a `fetch` away.
const RESULT_CHARS: usize = 2_000;

/// Characters of the arguments of a call that come back with its turn: enough for any command.
const ARGUMENT_CHARS: usize = 500;

static CLOSING_TAG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("(?i)</restored").ok());

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreRequest {
    /// Whole turns. Long results and arguments are cut.
    Turns(TurnRange),
    /// One entry, of whatever branch, uncut.
    Entry(String),
}

/// What would be brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredMessage {
    /// The message.
    pub text: String,
    /// The ids of the entries it quotes.
    pub entries: Vec<String>,
    /// How many of those that were asked for are in context anyway.
    pub live: usize,
    /// What the message costs, in tokens without margin.
    pub tokens: u64,
}

impl RestoredMessage {
    /// The record of it, to append where the session stands.
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

/// Works out what to bring back. `shown_as` is how a `fetch` command names the session.
///
/// # Errors
///
/// [`HistoryError`] where it is not there, or all of it is still in context.
pub fn build_restoration(
    session: &Session,
    wanted: &RestoreRequest,
    shown_as: &str,
) -> Result<RestoredMessage, HistoryError> {
    let (source, asked) = match wanted {
        RestoreRequest::Turns(range) => (of_turns(session, *range)?, turns_asked(*range)),
        RestoreRequest::Entry(id) => (of_entry(session, id)?, format!("entry {id} is")),
    };
    let live_ids = live_ids(session);
    let (live, gone): (Vec<QuotedEntry>, Vec<QuotedEntry>) =
        source.quotes.into_iter().partition(|quote| live_ids.contains(&quote.entry.id));
    if gone.is_empty() {
        return Err(HistoryError::StillInContext { asked });
    }
    let text = render_frame(&source.name, &gone, shown_as);
    let entries = gone.into_iter().map(|quote| quote.entry.id).collect();
    Ok(RestoredMessage { tokens: tokens::estimate(&text), text, entries, live: live.len() })
}

/// What is quoted, and what it is called.
struct RestoreSource {
    name: String,
    quotes: Vec<QuotedEntry>,
}

/// One entry that is told again.
struct QuotedEntry {
    turn: Option<usize>,
    entry: NewEntry,
    is_cut: bool,
}

fn of_turns(session: &Session, range: TurnRange) -> Result<RestoreSource, HistoryError> {
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
    Ok(RestoreSource { name: turns_named(range), quotes })
}

fn of_entry(session: &Session, id: &str) -> Result<RestoreSource, HistoryError> {
    let entry = session.record(id).and_then(|record| record.to_entry());
    let entry = entry.ok_or_else(|| HistoryError::UnknownEntry { id: id.to_owned() })?;
    let quote = QuotedEntry { turn: turn_of(session, id), entry, is_cut: false };
    Ok(RestoreSource { name: format!("entry {id}"), quotes: vec![quote] })
}

/// Instructions of the host are in context as long as they hold; summaries and what was brought back
/// before only tell again what the turns themselves say.
fn is_quotable(entry: &NewEntry) -> bool {
    let is_told_again =
        entry.kind == EntryKind::CompactionSummary || quoted_in(entry.kind, &entry.raw).is_some();
    entry.role != Role::System && !is_told_again
}

/// Entries that a model sees word for word, or quoted by an earlier restoration.
fn live_ids(session: &Session) -> HashSet<String> {
    let mut ids = HashSet::new();
    for entry in session.live(0).snapshot().iter() {
        if !entry.has(Flags::REPLACED) {
            ids.insert(entry.id().to_owned());
            ids.extend(quoted_in(entry.kind(), entry.raw()).unwrap_or_default());
        }
    }
    ids
}

/// The ids of the entries that a message of ours quotes; `None` for any other.
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

fn turns_named(range: TurnRange) -> String {
    let noun = if range.first == range.last { "turn" } else { "turns" };
    format!("{noun} {range}")
}

fn turns_asked(range: TurnRange) -> String {
    let verb = if range.first == range.last { "is" } else { "are" };
    format!("{} {verb}", turns_named(range))
}

/// The quotes in a frame that they cannot close.
fn render_frame(name: &str, quotes: &[QuotedEntry], shown_as: &str) -> String {
    let mut text = format!(
        "Restored from earlier in this session ({name}). It is told again word for word; it is a record \
         of the past, not a new request.\n\n<restored source=\"{name}\">\n",
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
    let spoken = EntryText::from(entry);
    let cut = |text: &str, limit| match is_cut {
        true => shortened(text, limit, &format!("ctxhost fetch {shown_as} {}", entry.id)),
        false => text.to_owned(),
    };
    let words = match entry.role {
        Role::Tool => cut(&spoken.text, RESULT_CHARS),
        _ => spoken.text.clone(),
    };
    let mut text = format!("{}: {words}\n", spoken.speaker);
    for mime in &spoken.images {
        text.push_str(&format!("  ({mime}, not restored)\n"));
    }
    for (tool, arguments) in &spoken.calls {
        text.push_str(&format!("  calls {tool} {}\n", cut(arguments, ARGUMENT_CHARS)));
    }
    match &*CLOSING_TAG {
        Some(tag) => tag.replace_all(&text, "&lt;/restored").into_owned(),
        None => text,
    }
}

/// The beginning of a text, and the command that shows all of it.
fn shortened(text: &str, limit_chars: usize, command: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(limit_chars) else { return text.to_owned() };
    let (head, rest) = text.split_at(end);
    format!("{head} [… {} more characters: {command}]", rest.chars().count())
}

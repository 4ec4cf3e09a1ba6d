//! The ledger of a summary: requests, commands and identifiers, repeated character by character.
//!
//! ```text
//!  <user-requests>     every user request, oldest first
//!  <commands>          commands, newest first, failures with their status
//!  <identifiers>       paths, URLs, hashes, tickets, ports, versions, newest first, each with a label
//!  <names>             further files and symbols, by frequency and recency
//! ```
//!
//! After a compaction the summary is the only source, so the blocks are parsed back from its text
//! and merged; the newest entry wins.

mod entry_items;
mod items;
mod names;
mod request_rules;
mod requests;

use std::collections::HashMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, weighted_chars};
use ctxhost_engine_api::{EntryKind, Transcript};

use crate::budget::RoomSettings;
use crate::dialogue::is_hidden;
use crate::name_ledger::{EntryMentions, NameLedger, NameSet, TAG as NAMES};
use crate::settings::share_of;
use ctxhost_text::redact::redact;

use entry_items::{EntryItems, NameUse};
use items::{LedgerItem, LedgerItems};
use request_rules::RequestRules;

/// Tags of the blocks; the next compaction parses them.
const REQUESTS: &str = "user-requests";
const COMMANDS: &str = "commands";
const IDENTIFIERS: &str = "identifiers";

/// Newest entries that are read for further names.
// The weight of a mention halves every forty entries, so older ones would not be listed.
const NAME_ENTRIES: u64 = 1_000;
/// Share of the room that names get if not everything fits.
const NAME_ROOM_DIVISOR: u64 = 3;

/// Steps in which requests get more room.
const WIDENING_STEPS: u64 = 4;

/// Lower bound of a command line, in weighted characters: a terminal line.
const LEAST_COMMAND_CHARS: u64 = 96;
/// Upper bound for the tags of a block, in weighted characters.
const SLACK_CHARS: u64 = 64;
/// Prefix that identifies a command, in weighted characters.
// Shorter than `LEAST_COMMAND_CHARS`, so that a command cut by an earlier summary still matches.
const COMMAND_KEY_CHARS: u64 = 90;

/// Requests, commands and identifiers of a history.
#[derive(Clone, Debug)]
pub struct SummaryLedger {
    requests: LedgerItems,
    commands: LedgerItems,
    names: LedgerItems,
    all_names: NameLedger,
}

impl Default for SummaryLedger {
    fn default() -> Self {
        // An earlier summary may have cut a command to its minimum, so commands match by prefix.
        // Requests and names match in full.
        SummaryLedger {
            requests: LedgerItems::new(u64::MAX),
            commands: LedgerItems::new(COMMAND_KEY_CHARS),
            names: LedgerItems::new(u64::MAX),
            all_names: NameLedger::default(),
        }
    }
}

/// Size limits of the blocks, in weighted characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerLimits {
    /// All requests.
    pub request_chars: u64,
    /// More for long requests that would be cut otherwise.
    pub long_request_chars: u64,
    /// Commands and identifiers together.
    pub ledger_chars: u64,
    /// Further names of files and symbols.
    pub name_chars: u64,
    /// One command.
    pub command_chars: u64,
}

impl LedgerLimits {
    /// The limits for a budget in tokens.
    pub fn new(budget_tokens: u64, settings: &RoomSettings) -> LedgerLimits {
        let chars = |share| share_of(budget_tokens, share) * CHARS_PER_TOKEN;
        let room_chars = chars(settings.ledger_share).min(settings.ledger_chars);
        let name_chars = share_of(room_chars, settings.name_share);
        LedgerLimits {
            request_chars: chars(settings.request_share),
            // As much again: a specification is not longer than what was asked about it.
            long_request_chars: chars(settings.request_share),
            ledger_chars: room_chars - name_chars,
            name_chars,
            command_chars: settings.command_chars,
        }
    }
}

/// Reads the ledgers of several ranges of one transcript; each entry is searched only once.
// A compaction tries several cuts, and searching a long history for names takes seconds.
#[derive(Debug)]
pub struct LedgerReader<'t> {
    transcript: &'t Transcript,
    by_entry: HashMap<u64, EntryItems>,
    mentions: HashMap<u64, EntryMentions>,
    rules: RequestRules,
}

impl<'t> LedgerReader<'t> {
    /// A reader that has read nothing yet.
    pub fn new(transcript: &'t Transcript) -> LedgerReader<'t> {
        LedgerReader {
            transcript,
            by_entry: HashMap::new(),
            mentions: HashMap::new(),
            rules: RequestRules::default(),
        }
    }

    /// Collects the ledger of ranges in rising order, including the ledgers of earlier summaries.
    pub fn read(&mut self, ranges: &[Range<u64>]) -> SummaryLedger {
        let mut ledger = SummaryLedger::default();
        let mut left: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        let transcript = self.transcript;
        let is_read = |seq: u64| ranges.iter().any(|range| range.contains(&seq));
        for entry in ranges.iter().flat_map(|range| transcript.range(range.clone())) {
            let items = self.by_entry.entry(entry.seq());
            ledger.add(items.or_insert_with(|| EntryItems::read(transcript, &entry)), is_read);
            let is_summary = entry.kind() == EntryKind::CompactionSummary;
            if is_summary || (left <= NAME_ENTRIES && !is_hidden(&entry)) {
                let mentions = self.mentions.entry(entry.seq());
                ledger.all_names.add_entry(mentions.or_insert_with(|| EntryMentions::read(&entry)));
            }
            left = left.saturating_sub(1);
        }
        for range in ranges {
            // A kept request may refer to what the summary replaces.
            let mut behind = transcript.range(range.end..transcript.len() as u64);
            let next = behind.find(|entry| entry.is_user_message());
            if let Some(entry) = next.filter(|entry| !is_read(entry.seq())) {
                let items = self.by_entry.entry(entry.seq());
                let items = items.or_insert_with(|| EntryItems::read(transcript, &entry));
                items
                    .reply_to(is_read)
                    .into_iter()
                    .for_each(|item| ledger.requests.add(item.clone()));
            }
        }
        self.rules.mark(&mut ledger.requests);
        ledger
    }
}

impl SummaryLedger {
    /// Reduces the limits to `chars` weighted characters. Requests have priority; the rest gets
    /// what they leave. Requests that do not fit get what commands and identifiers leave.
    pub fn fit_limits(&self, limits: LedgerLimits, chars: u64) -> LedgerLimits {
        let most_chars = limits.request_chars.min(chars);
        let is_cut = requests::cuts_long(&self.requests, most_chars, REQUESTS);
        let more_chars = limits.long_request_chars.min(chars - most_chars);
        let most_chars = most_chars + if is_cut { more_chars } else { 0 };
        let (needed_chars, is_whole) = self.request_chars(most_chars);
        let request_chars = needed_chars.min(most_chars);
        let room = chars - request_chars;
        let name_chars = limits.name_chars.min(room / NAME_ROOM_DIVISOR);
        let ledger_chars = limits.ledger_chars.min(room - name_chars);
        let fitted = LedgerLimits {
            request_chars,
            long_request_chars: 0,
            ledger_chars,
            name_chars,
            ..limits
        };
        if is_whole {
            return fitted;
        }
        // A talk without tools has few commands and names, but many requests.
        let free_chars = ledger_chars.saturating_sub(self.line_chars(limits.command_chars));
        let most_chars = request_chars + free_chars;
        let needed_chars = self.request_chars(most_chars).0.min(most_chars);
        let more_chars = needed_chars.saturating_sub(request_chars);
        LedgerLimits {
            request_chars: request_chars + more_chars,
            ledger_chars: ledger_chars - more_chars,
            ..fitted
        }
    }

    /// The limits with more room for requests if some are not listed, in at most `chars` weighted characters for all blocks.
    pub fn widen_requests(&self, limits: LedgerLimits, chars: u64) -> LedgerLimits {
        let is_off = limits.request_chars == 0;
        if is_off || self.request_chars(limits.request_chars).1 {
            return limits;
        }
        let others_chars = self.chars(LedgerLimits { request_chars: 0, ..limits }) + SLACK_CHARS;
        let free_chars = chars.saturating_sub(others_chars + limits.request_chars);
        let mut widened = limits;
        // No more than lists all of them: the rest would be for long ones, which are mostly pasted text.
        for part in 1..=WIDENING_STEPS {
            let most_chars = limits.request_chars + free_chars * part / WIDENING_STEPS;
            let (needed_chars, is_whole) = self.request_chars(most_chars);
            widened.request_chars = needed_chars.min(most_chars).max(limits.request_chars);
            if is_whole {
                break;
            }
        }
        widened
    }

    /// What requests take of a room, in weighted characters, and whether all are shown.
    fn request_chars(&self, most_chars: u64) -> (u64, bool) {
        // Render once with the maximum to learn what the requests really take.
        let lines = requests::render(&self.requests, most_chars, REQUESTS);
        let chars = block(REQUESTS, &lines).map_or(0, |b| weighted_chars(&b) + SLACK_CHARS);
        (chars, lines.len() == self.requests.len())
    }

    /// Upper bound of the blocks of commands and identifiers, in weighted characters.
    fn line_chars(&self, command_chars: u64) -> u64 {
        let blocks = [self.commands.chars(command_chars), self.names.chars(u64::MAX)];
        // Commands get two thirds of the room beside names.
        blocks.iter().map(|chars| chars / 2 * 3 + SLACK_CHARS).sum()
    }

    /// Maximum size of the blocks, in weighted characters.
    pub fn chars(&self, limits: LedgerLimits) -> u64 {
        weighted_chars(&self.render(limits, ""))
    }

    /// Whether the ledger is empty.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.commands.is_empty() && self.names.is_empty()
    }

    /// Renders the non-empty blocks. A name that occurs in `shown` or in an earlier block is left
    /// out.
    pub fn render(&self, limits: LedgerLimits, shown: &str) -> String {
        let mut parts = Vec::new();
        let requests = requests::render(&self.requests, limits.request_chars, REQUESTS);
        parts.extend(block(REQUESTS, &requests));
        let mut room_chars = limits.ledger_chars;
        // Names are short and are used again most often, so commands leave them a third of the
        // room.
        let command_chars = if self.names.is_empty() { room_chars } else { room_chars / 3 * 2 };
        let commands = self.command_lines(command_chars, limits.command_chars);
        parts.extend(block(COMMANDS, &commands));
        room_chars = room_chars.saturating_sub(parts.get(1).map_or(0, |part| weighted_chars(part)));
        // Repeating a name that the summary already shows wastes room.
        let mut mentioned = format!("{shown}\n{}", parts.join("\n"));
        let is_new = |item: &LedgerItem| !names::is_mentioned(&item.text, &mentioned);
        let names = self.names.fit_lines(room_chars, LedgerItem::line, is_new);
        mentioned.push_str(&names.join("\n"));
        parts.extend(block(IDENTIFIERS, &names));
        let mentioned = self.all_names.name_numbers(&mentioned).into_iter().collect();
        let boosted = NameSet::default();
        let further = self.all_names.render(&mentioned, [], &boosted, limits.name_chars).text;
        parts.extend(Some(redact(&further).into_owned()).filter(|names| !names.is_empty()));
        parts.join("\n\n")
    }

    fn command_lines(&self, room_chars: u64, most_chars: u64) -> Vec<String> {
        let level = self.commands.fair_line_chars(room_chars, most_chars).max(LEAST_COMMAND_CHARS);
        let shown = |item: &LedgerItem| item.clipped(level.min(most_chars)).line();
        self.commands.fit_lines(room_chars, shown, |_| true)
    }

    /// Adds the items of an entry. `is_read` is whether the ledger is of an entry, too.
    fn add(&mut self, items: &EntryItems, is_read: impl Fn(u64) -> bool) {
        match items.reply_to(is_read) {
            Some(reply) => self.requests.add(reply.clone()),
            None => items.requests.iter().for_each(|item| self.requests.add(item.clone())),
        }
        items.commands.iter().for_each(|item| self.commands.add(item.clone()));
        for name in &items.names {
            match name {
                NameUse::Mentioned(item) => self.names.add(item.clone()),
                NameUse::Printed(item) => self.names.add_printed(item.clone()),
            }
        }
    }
}

/// Removes the blocks of a ledger, so that the rest can be parsed as prose or sections.
pub fn strip_ledger(text: &str) -> String {
    let tags = [REQUESTS, COMMANDS, IDENTIFIERS, NAMES];
    let empty = |tag: &str| format!("<{tag}>\n\n</{tag}>");
    let left = tags
        .iter()
        .fold(text.to_owned(), |text, tag| items::strip_block(&text, tag).replace(&empty(tag), ""));
    left.trim_end().to_owned()
}

/// The requests that the ledger of a summary lists.
pub(crate) fn listed_requests(summary: &str) -> Vec<String> {
    items::read_texts(summary, REQUESTS)
}

/// A block of requests, as in a ledger; empty without any.
pub(crate) fn render_requests(requests: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> =
        requests.map(|request| items::text_line(&redact(&request), REQUESTS)).collect();
    block(REQUESTS, &lines).unwrap_or_default()
}

/// Appends the ledger to a summary.
pub fn append_ledger(summary: &str, ledger: &SummaryLedger, limits: LedgerLimits) -> String {
    let blocks = ledger.render(limits, summary);
    if blocks.is_empty() { summary.to_owned() } else { format!("{summary}\n\n{blocks}") }
}

/// Wraps lines in the tags of a block; `None` without lines.
fn block(tag: &str, lines: &[String]) -> Option<String> {
    (!lines.is_empty()).then(|| format!("<{tag}>\n{}\n</{tag}>", lines.join("\n")))
}

#[cfg(test)]
mod tests;

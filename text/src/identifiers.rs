//! Finds the facts of a text that must be repeated character by character: paths, addresses, contacts, numbers,
//! names of code.
//!
//! There is one recogniser, `scan`, and one file per kind of fact. The name ledger, the ledger of a summary, the
//! rules, the search and the host's measurements use it, so that they agree on what a fact is.

mod addresses;
mod amounts;
mod characters;
mod codes;
mod contacts;
mod dates;
mod encoded;
mod files;
mod labelled;
mod quotations;
mod references;
mod scan;
mod secret_context;
mod switches;
mod symbols;
mod word;

use std::borrow::Cow;
use std::collections::HashSet;

use crate::own_text::own_parts;
use crate::{hash, redact};

pub use characters::is_unspaced;
pub use scan::for_each_identifier;

/// Identifiers per summary.
// Enough for the current work, few enough that a model repeats all of them.
pub const MAX_IDENTIFIERS: usize = 12;

/// Length of an identifier, in bytes; a longer one is data.
const IDENTIFIER_BYTES: std::ops::RangeInclusive<usize> = 3..=200;
/// Minimum length of an identifier of a summary, in bytes: shorter ones are found in any text.
const MIN_EXTRACTED_BYTES: usize = 4;
/// Of a longer text, in bytes, only head and end are searched: results and pasted files.
const SEARCHED_BYTES: usize = 24_000;
/// Bytes of a user message that state facts.
// Users write at the beginning; the rest of a long message was pasted.
pub const STATED_BYTES: usize = 8_000;
/// Part of the first and the last line of a private key.
const KEY_BLOCK: &str = "PRIVATE KEY-----";
/// Length of the pseudonym of an anonymised identifier.
const PSEUDONYM_CHARS: usize = 6;

/// What an identifier is, judged by its characters and the words around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdentifierKind {
    /// A path or a file name.
    File,
    /// A URL, a host with its port, an IP or MAC address.
    Address,
    /// The number after the word port.
    Port,
    /// A mail address or a phone number.
    Contact,
    /// The number of an order, ticket or invoice, a booking code, an IBAN.
    Reference,
    /// A number with a currency.
    Amount,
    /// A date or a time.
    Date,
    /// A hash, a UUID, a long number, a version.
    Code,
    /// The name of a branch.
    Branch,
    /// An environment variable or a constant: `DATABASE_URL`.
    Variable,
    /// A long option of a command: `--no-verify`.
    Flag,
    /// A short text in quotation marks.
    Quotation,
    /// A code symbol: `parse_body`, `parseBody`, `http::Body`.
    Symbol,
}

impl IdentifierKind {
    /// Whether it names one thing, which a text without it cannot be made to show again.
    pub fn is_exact(self) -> bool {
        !matches!(self, IdentifierKind::Flag | IdentifierKind::Quotation | IdentifierKind::Symbol)
    }

    /// Whether the outputs of tools are full of it, so that only what a person or a model writes counts.
    pub fn is_noise_in_output(self) -> bool {
        matches!(
            self,
            IdentifierKind::Amount
                | IdentifierKind::Date
                | IdentifierKind::Branch
                | IdentifierKind::Flag
                | IdentifierKind::Quotation
        )
    }
}

/// An identifier in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identifier<'t> {
    /// Its characters, a slice of the text.
    pub text: &'t str,
    /// What it is.
    pub kind: IdentifierKind,
    /// Where it begins in the text, in bytes.
    pub start: usize,
}

impl<'t> Identifier<'t> {
    /// The form in which it is compared: hex in upper case. Listed is what was written: a digest in upper case is none.
    pub fn canonical(&self) -> Cow<'t, str> {
        if self.kind == IdentifierKind::Code && is_hex(self.text) {
            Cow::Owned(self.text.to_ascii_uppercase())
        } else {
            Cow::Borrowed(self.text)
        }
    }

    /// Whether it is a path with its folders.
    pub fn is_path(&self) -> bool {
        self.kind == IdentifierKind::File && self.text.contains(['/', '\\'])
    }

    /// Whether it is a fact if a user states it. Symbols and source files belong to the code, which can be read
    /// again.
    pub fn is_fact(&self) -> bool {
        match self.kind {
            IdentifierKind::File => files::is_document(self.text),
            IdentifierKind::Symbol | IdentifierKind::Variable | IdentifierKind::Flag => false,
            _ => true,
        }
    }

    /// Whether it is exact without its surroundings. A file name alone, a port and a date are not.
    pub fn is_distinct(&self) -> bool {
        match self.kind {
            IdentifierKind::File => files::is_rooted(self.text),
            IdentifierKind::Address
            | IdentifierKind::Contact
            | IdentifierKind::Reference
            | IdentifierKind::Amount => true,
            IdentifierKind::Code => codes::is_long(self.text),
            _ => false,
        }
    }
}

/// Returns at most `max` identifiers of `texts`, in the order of the texts (newest first).
pub fn extract<'a>(texts: impl IntoIterator<Item = &'a str>, max: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for text in texts {
        if found.len() >= max {
            break;
        }
        for_each_identifier(&redact::redact(text), |identifier| {
            let is_wanted =
                identifier.is_distinct() && identifier.text.len() >= MIN_EXTRACTED_BYTES;
            if is_wanted && found.len() < max && seen.insert(identifier.canonical().into_owned()) {
                found.push(identifier.text.to_owned());
            }
        });
    }
    found
}

/// Calls `found` with each identifier of a text without its secrets; of a long text only head and end are read.
/// Returns whether all of the text was read and has no secret.
pub fn for_each_clean_identifier(text: &str, mut found: impl FnMut(Identifier<'_>)) -> bool {
    // The end of a key block is recognised only with its beginning.
    if text.contains(KEY_BLOCK) {
        let clean = redact::redact(text);
        searched_parts(&clean).for_each(|part| for_each_identifier(part, &mut found));
        return false;
    }
    let mut is_clean = text.len() <= SEARCHED_BYTES;
    // Redaction takes most of the time, so it reads what is searched.
    for part in searched_parts(text) {
        let part = redact::redact(part);
        is_clean &= matches!(part, Cow::Borrowed(_));
        for_each_identifier(&part, &mut found);
    }
    is_clean
}

/// Calls `found` with the facts at the beginning of a user message, without secrets.
pub fn for_each_stated_fact(text: &str, mut found: impl FnMut(Identifier<'_>)) {
    let end = text.floor_char_boundary(text.len().min(STATED_BYTES));
    let clean = redact::redact(text.get(..end).unwrap_or_default());
    // What is quoted or pasted is not stated.
    for line in own_parts(&clean) {
        for_each_named(line, Identifier::is_fact, &mut found);
    }
}

/// Calls `found` with all names of a text: its identifiers, and what only the word before it shows to be an id.
pub fn for_each_name<'t>(text: &'t str, mut found: impl FnMut(Identifier<'t>)) {
    for_each_named(text, |_| true, &mut found);
}

/// Calls `found` with the wanted identifiers of a line, then with those that only the word before them shows.
fn for_each_named<'t>(
    line: &'t str,
    is_wanted: impl Fn(&Identifier<'t>) -> bool,
    found: &mut impl FnMut(Identifier<'t>),
) {
    let mut ends = Vec::new();
    for_each_identifier(line, |identifier| {
        if is_wanted(&identifier) {
            ends.push(identifier.start + identifier.text.len());
            found(identifier);
        }
    });
    labelled::for_each_labelled_id(line, |id| {
        if !ends.contains(&(id.start + id.text.len())) {
            found(id);
        }
    });
}

/// Calls `found` with the ids that an answer of the model states, without secrets.
pub fn for_each_stated_id(text: &str, mut found: impl FnMut(Identifier<'_>)) {
    for part in searched_parts(text) {
        let clean = redact::redact(part);
        // What is quoted or in a block of code was printed or written elsewhere.
        for line in own_parts(&clean) {
            let is_wanted = |id: &Identifier<'_>| id.kind == IdentifierKind::Reference;
            for_each_named(line, is_wanted, &mut found);
        }
    }
}

/// Whether a user message states a fact.
pub fn states_fact(text: &str) -> bool {
    let mut is_found = false;
    for_each_stated_fact(text, |_| is_found = true);
    is_found
}

/// Head and end of a long text, up to whole words: half a secret would not be recognised.
fn searched_parts(text: &str) -> impl Iterator<Item = &str> {
    let (head, tail) = if text.len() <= SEARCHED_BYTES {
        (text, "")
    } else {
        // Names in the middle of a long result are rarely used again.
        let head = text.get(..text.floor_char_boundary(SEARCHED_BYTES / 2)).unwrap_or_default();
        let from = text.ceil_char_boundary(text.len() - SEARCHED_BYTES / 2);
        let tail = text.get(from..).unwrap_or_default();
        let head = head.rsplit_once(char::is_whitespace).map_or("", |(head, _)| head);
        let tail = tail.split_once(char::is_whitespace).map_or("", |(_, tail)| tail);
        (head, tail)
    };
    [head, tail].into_iter()
}

/// Whether a text contains an identifier; hex is compared case-insensitively.
pub fn is_mentioned(identifier: &str, text: &str) -> bool {
    // Models change the case of hashes but not of paths.
    text.contains(identifier)
        || (is_hex(identifier)
            && text.to_ascii_uppercase().contains(&identifier.to_ascii_uppercase()))
}

/// Replaces every identifier by a pseudonym: `/srv/app` becomes `path-kdwxqa`. Equal identifiers
/// have equal pseudonyms, which cannot be reversed.
pub fn anonymise(text: &str) -> Cow<'_, str> {
    let mut anonymous = String::new();
    let mut copied = 0;
    for_each_identifier(text, |identifier| {
        let Some(kind) = pseudonym_kind(&identifier) else { return };
        // An identifier inside a longer one is gone with it.
        let Some(before) = text.get(copied..identifier.start) else { return };
        anonymous.push_str(before);
        let key = hash::hash_letters(&identifier.canonical(), PSEUDONYM_CHARS);
        anonymous.push_str(&format!("{kind}-{key}"));
        copied = identifier.start + identifier.text.len();
    });
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    anonymous.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(anonymous)
}

fn pseudonym_kind(identifier: &Identifier<'_>) -> Option<&'static str> {
    match identifier.kind {
        IdentifierKind::File => identifier.is_path().then_some("path"),
        IdentifierKind::Address if identifier.text.contains("://") => Some("url"),
        IdentifierKind::Address => Some("host"),
        IdentifierKind::Contact => Some("contact"),
        IdentifierKind::Reference => Some("id"),
        IdentifierKind::Code => codes::is_long(identifier.text).then_some("id"),
        _ => None,
    }
}

/// Whether a text is a hash: at least eight hex digits, not all of them decimal.
// A long decimal number keeps its case anyway.
fn is_hex(text: &str) -> bool {
    text.len() >= 8
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests;

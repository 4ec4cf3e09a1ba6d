//! The scan: one pass over a text, word by word.
//!
//! A word ends at a space, a bracket or a quotation mark. Facts with spaces (phone numbers, amounts, dates, quoted
//! paths) are tried where they may begin and look only a bounded number of bytes ahead, so that the time is linear
//! in the text.

use super::characters::{bare, is_break, is_quote, is_unspaced};
use super::encoded::{is_dense, is_encoded};
use super::secret_context::SecretContext;
use super::word::{Marks, is_inside_word, word_len};
use super::{
    IDENTIFIER_BYTES, Identifier, IdentifierKind, addresses, amounts, codes, contacts, dates,
    files, quotations, references, switches, symbols,
};
use crate::redact;

/// A longer word, in bytes, is data.
const LONGEST_WORD_BYTES: usize = 240;
/// Identifiers of a line that is data, such as minified code.
// JSON on one line may hold a listing that the next calls use: with 64, recall at 16,000 tokens loses 0.7 points of the
// identifiers of a recorded session.
const DENSE_IDENTIFIERS: usize = 256;
/// Of a longer word, in bytes, not all characters are looked at: it may be the rest of a text without spaces.
const MARKED_BYTES: usize = 2 * LONGEST_WORD_BYTES;
/// Parts of a word between colons or commas that are looked at.
const MOST_PARTS: usize = 16;
/// A shorter name without digits is never checked for the shape of a key, in bytes.
const KEY_BYTES: usize = 24;

/// Calls `found` with each identifier of a text, in order of their beginning. What looks like a secret is left out,
/// but a name does not show that it is one without its context: redact a text of unknown origin first.
pub fn for_each_identifier<'t>(text: &'t str, mut found: impl FnMut(Identifier<'t>)) {
    let mut start = 0;
    for line in text.split('\n') {
        LineScan::new(line, start).run(&mut found);
        start += line.len() + 1;
    }
}

/// The scan of one line.
struct LineScan<'t> {
    line: &'t str,
    /// Where the line begins in the text.
    start: usize,
    is_dense: bool,
    /// Whether quotation marks show values; checked at the first one.
    is_prose: Option<bool>,
    /// Where the text of a quoted path ends, whose words are not looked at.
    word_end: usize,
    previous: &'t str,
    context: SecretContext<'t>,
    count: usize,
}

impl<'t> LineScan<'t> {
    fn new(line: &'t str, start: usize) -> LineScan<'t> {
        LineScan {
            line,
            start,
            is_dense: is_dense(line),
            is_prose: None,
            word_end: 0,
            previous: "",
            context: SecretContext::default(),
            count: 0,
        }
    }

    fn run(mut self, found: &mut impl FnMut(Identifier<'t>)) {
        let mut at = 0;
        while let Some(byte) = self.line.as_bytes().get(at) {
            let first = if byte.is_ascii() {
                char::from(*byte)
            } else {
                self.line.get(at..).and_then(|rest| rest.chars().next()).unwrap_or_default()
            };
            if !is_inside_word(first) {
                at = self.read_break(at, first, found);
                continue;
            }
            if at >= self.word_end {
                let rest = self.line.get(at..).unwrap_or_default();
                self.word_end = at + word_len(rest);
            }
            at = self.read_word(at, first, found);
        }
    }

    /// Moves behind a break; a quotation mark may begin a value or a path with spaces.
    fn read_break(
        &mut self,
        at: usize,
        character: char,
        found: &mut impl FnMut(Identifier<'t>),
    ) -> usize {
        let behind = at + character.len_utf8();
        if character == ' ' || self.is_dense || !is_quote(character) {
            return behind;
        }
        let Some(quoted) = self.line.get(at..).and_then(quotations::quoted) else { return behind };
        if let Some(path) = files::spaced_path(quoted) {
            let start = behind + (quoted.len() - quoted.trim_start().len());
            self.add(start, path, IdentifierKind::File, found);
            return behind + quoted.len();
        }
        let line = self.line;
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        let after = line.get(behind + quoted.len()..).and_then(|after| after.chars().nth(1));
        let is_value = quotations::is_value(quoted, before, after)
            && *self.is_prose.get_or_insert_with(|| quotations::is_prose(line));
        // A value that is itself a name is found as that.
        if is_value && (quoted.contains(' ') || !has_own_kind(quoted)) {
            self.add(behind, quoted, IdentifierKind::Quotation, found);
        }
        behind
    }

    /// Reads the word at `at`, or the first part of it, and returns where to go on.
    fn read_word(
        &mut self,
        at: usize,
        first: char,
        found: &mut impl FnMut(Identifier<'t>),
    ) -> usize {
        let line = self.line;
        let mut end = self.word_end;
        let word = line.get(at..end).unwrap_or_default();
        let mut marks = Marks::of(word, MARKED_BYTES);
        if word.len() <= LONGEST_WORD_BYTES && is_plain(word, marks) {
            return self.skip_plain(at, end, word, found);
        }
        let rest = line.get(at..).unwrap_or_default();
        let may_be_url = marks.has(Marks::COLON) && marks.has(Marks::SLASH);
        if may_be_url && let Some((start, url)) = self.url(word, rest) {
            if !url.is_empty() {
                self.add(at + start, url, IdentifierKind::Address, found);
            }
            self.previous = "";
            return (at + start + url.len()).max(end);
        }
        let has_unspaced = marks.has(Marks::NON_ASCII) && word.contains(is_unspaced);
        if has_unspaced {
            let is_start =
                at == 0 || line.get(..at).is_some_and(|before| before.ends_with(is_break));
            let file = if is_start && word.len() <= LONGEST_WORD_BYTES {
                files::unspaced_file_in(word)
            } else {
                None
            };
            if let Some(file) = file {
                let start = at + (file.as_ptr() as usize - word.as_ptr() as usize);
                self.add(start, file, IdentifierKind::File, found);
                self.previous = "";
                return start + file.len();
            }
            // Such scripts have no spaces around names, so a change of script ends a word.
            let is_same = |c: char| is_unspaced(c) == is_unspaced(first);
            end = at + word.find(|c| !is_same(c)).unwrap_or(word.len());
            if is_unspaced(first) {
                let part = line.get(at..end).unwrap_or_default();
                // The end is enough: `端口` announces a port however the sentence began.
                self.previous = part;
                self.context.advance(part);
                return end;
            }
            marks = Marks::of(line.get(at..end).unwrap_or_default(), MARKED_BYTES);
        }
        let word = line.get(at..end).unwrap_or_default();
        if word.len() > LONGEST_WORD_BYTES || is_encoded(word) {
            self.previous = "";
            return end;
        }
        let next = self.read_parts(at, word, marks, rest, found);
        self.previous = word;
        self.context.advance(word);
        next
    }

    /// A plain word may begin an identifier, such as a date.
    fn skip_plain(
        &mut self,
        at: usize,
        end: usize,
        word: &'t str,
        found: &mut impl FnMut(Identifier<'t>),
    ) -> usize {
        let rest = self.line.get(at..).unwrap_or_default();
        if word.starts_with(char::is_uppercase) {
            let (len, kind) = match amounts::amount_len(rest) {
                0 => (dates::date_len(rest), IdentifierKind::Date),
                len => (len, IdentifierKind::Amount),
            };
            if len > word.len() {
                self.add(at, rest.get(..len).unwrap_or_default(), kind, found);
                self.previous = "";
                return at + len;
            }
        }
        self.previous = word;
        self.context.advance(word);
        end
    }

    fn url(&self, word: &str, rest: &'t str) -> Option<(usize, &'t str)> {
        if word.len() <= MARKED_BYTES { addresses::url_in(word, rest) } else { None }
    }

    /// Reads the fact with spaces that begins here, or else the parts of the word. Returns where to go on.
    fn read_parts(
        &mut self,
        at: usize,
        word: &'t str,
        marks: Marks,
        rest: &'t str,
        found: &mut impl FnMut(Identifier<'t>),
    ) -> usize {
        let end = at + word.len();
        if let Some(name) = whole_word(word, marks, self.previous) {
            let (name, kind) = name;
            self.add(at + offset(word, name), name, kind, found);
            return end;
        }
        let is_joint = |c: char| matches!(c, '~' | '≈' | '-' | '=' | ':' | ',');
        let skipped = word.len() - word.trim_start_matches(is_joint).len();
        if let Some((len, kind)) = spaced_fact(rest.get(skipped..).unwrap_or_default()) {
            let start = at + skipped;
            self.add(start, rest.get(skipped..skipped + len).unwrap_or_default(), kind, found);
            // The rest of a word is read on: `14:30/15:00`.
            return start + len;
        }
        if !marks.has(Marks::SEPARATOR.and(Marks::BACKSLASH)) {
            self.read_part(at, word, marks, self.previous, found);
            return end;
        }
        // `KEY=value` are two names; so are both sides of a comma, and of a backslash outside of a path.
        let parts = word.split(['=', ',', '\\']).filter(|part| !part.is_empty());
        let mut before = self.previous;
        for part in parts.take(MOST_PARTS) {
            let marks = Marks::of(part, MARKED_BYTES);
            self.read_part(at + offset(word, part), part, marks, before, found);
            before = part;
        }
        end
    }

    fn read_part(
        &mut self,
        at: usize,
        part: &'t str,
        marks: Marks,
        before: &str,
        found: &mut impl FnMut(Identifier<'t>),
    ) {
        if let Some((name, kind)) = name_in(part, marks, before) {
            return self.add(at + offset(part, name), name, kind, found);
        }
        let mut is_found = false;
        if marks.has(Marks::COLON) && part.contains(':') && !symbols::has_double_colon(part) {
            let mut before = before;
            for piece in part.split(':').take(MOST_PARTS) {
                let marks = Marks::of(piece, MARKED_BYTES);
                if let Some((name, kind)) = name_in(piece, marks, before) {
                    self.add(at + offset(part, name), name, kind, found);
                    is_found = true;
                }
                before = piece;
            }
        }
        let may_be_symbol = marks.has(Marks::UNDERSCORE.and(Marks::COLON))
            || (marks.has(Marks::LOWER) && marks.has(Marks::UPPER));
        if !is_found && may_be_symbol {
            for name in symbols::symbols_in(part) {
                let is_variable = switches::is_variable(name);
                let kind =
                    if is_variable { IdentifierKind::Variable } else { IdentifierKind::Symbol };
                self.add(at + offset(part, name), name, kind, found);
            }
        }
    }

    fn add(
        &mut self,
        at: usize,
        name: &'t str,
        kind: IdentifierKind,
        found: &mut impl FnMut(Identifier<'t>),
    ) {
        let is_full = self.is_dense && self.count >= DENSE_IDENTIFIERS;
        // `src/{old => new}/main.rs` and `${root}/main.rs`: what begins behind the bracket is not at the root.
        let is_rest = kind == IdentifierKind::File
            && name.starts_with('/')
            && self.line.get(..at).is_some_and(|before| before.ends_with(['}', ')', ']', '>']));
        if is_full || is_rest || !is_sized(name, kind) || self.is_secret(name, kind) {
            return;
        }
        self.count += 1;
        found(Identifier { text: name, kind, start: self.start + at });
    }

    /// Checks cheap features first: the secret patterns are the most expensive step.
    fn is_secret(&self, name: &str, kind: IdentifierKind) -> bool {
        use IdentifierKind as Kind;
        let has_digit = name.bytes().any(|byte| byte.is_ascii_digit());
        let may_be_key = matches!(
            kind,
            Kind::Code
                | Kind::Reference
                | Kind::Symbol
                | Kind::Variable
                | Kind::Quotation
                | Kind::File
        );
        let is_announced =
            (matches!(kind, Kind::Quotation | Kind::Port | Kind::Amount | Kind::Date)
                || (may_be_key && kind != Kind::File && has_digit))
                && self.context.is_announced();
        let is_mixed = (has_digit || name.len() > KEY_BYTES) && !name.contains('/');
        is_announced || (may_be_key && is_mixed && redact::contains_secret(name))
    }
}

/// Whether a length fits: a file name, a port and a symbol have their own minimum.
fn is_sized(name: &str, kind: IdentifierKind) -> bool {
    let least = match kind {
        IdentifierKind::Port | IdentifierKind::Amount | IdentifierKind::Reference => 2,
        _ => *IDENTIFIER_BYTES.start(),
    };
    (least..=*IDENTIFIER_BYTES.end()).contains(&name.len())
}

/// Whether a word is alphabetic, in one case but for the first character, with marks at its end.
fn is_plain(word: &str, marks: Marks) -> bool {
    let is_apart = Marks::DIGIT
        .and(Marks::SLASH)
        .and(Marks::BACKSLASH)
        .and(Marks::HYPHEN)
        .and(Marks::UNDERSCORE)
        .and(Marks::AT);
    if marks.has(is_apart) {
        return false;
    }
    let word = word.trim_end_matches(['.', ',', ':', '?']);
    // One of hex digits may be a hash, and one of a script without spaces may be followed by a name.
    if !marks.has(Marks::NON_ASCII) {
        return is_plain_ascii(word) && !codes::is_hex_word(word);
    }
    let mut characters = word.chars();
    let is_first = characters.next().is_none_or(char::is_alphabetic);
    is_first && characters.all(|c| c.is_lowercase()) && !word.contains(is_unspaced)
}

fn is_plain_ascii(word: &str) -> bool {
    match word.as_bytes() {
        [first, rest @ ..] => {
            first.is_ascii_alphabetic() && rest.iter().all(u8::is_ascii_lowercase)
        }
        [] => true,
    }
}

/// Whether a quoted word has a kind of its own.
fn has_own_kind(word: &str) -> bool {
    let marks = Marks::of(word, MARKED_BYTES);
    whole_word(word, marks, "").is_some()
        || name_in(word, marks, "").is_some()
        || spaced_fact(word).is_some()
}

/// Names that are a whole word with all of its characters: addresses, contacts, paths of Windows, options.
fn whole_word<'t>(
    word: &'t str,
    marks: Marks,
    previous: &str,
) -> Option<(&'t str, IdentifierKind)> {
    if let Some(flag) = switches::flag_in(word) {
        return Some((flag, IdentifierKind::Flag));
    }
    let bare = bare(word);
    if marks.has(Marks::BACKSLASH) && files::is_windows_path(bare) {
        return Some((bare, IdentifierKind::File));
    }
    if marks.has(Marks::DIGIT)
        && let Some(port) = addresses::port_in(bare, previous)
    {
        return Some((port, IdentifierKind::Port));
    }
    // A MAC address may have neither.
    let may_be_address = marks.has(Marks::DIGIT.and(Marks::COLON)) || marks.has(Marks::HYPHEN);
    if may_be_address
        && marks.has(Marks::POINT.and(Marks::COLON).and(Marks::HYPHEN))
        && !(marks.has(Marks::SEPARATOR) && bare.contains(['=', ',']))
        && let Some(address) = addresses::address_in(word)
    {
        return Some((address, IdentifierKind::Address));
    }
    if marks.has(Marks::AT)
        && let Some(mail) = contacts::mail_in(word)
    {
        return Some((mail, IdentifierKind::Contact));
    }
    references::issue_in(word).map(|issue| (issue, IdentifierKind::Reference))
}

/// The fact at the beginning of a text that may have spaces, and its length in bytes.
fn spaced_fact(rest: &str) -> Option<(usize, IdentifierKind)> {
    let first = rest.chars().next()?;
    if first.is_ascii_lowercase() || first == '/' || first == '_' || first == '.' {
        return None;
    }
    let len = references::iban_len(rest);
    if len > 0 {
        return Some((len, IdentifierKind::Reference));
    }
    let may_be_number = first.is_ascii_digit() || first == '+' || !first.is_alphanumeric();
    if !may_be_number && !first.is_uppercase() {
        return None;
    }
    let len = dates::date_len(rest);
    if len > 0 {
        return Some((len, IdentifierKind::Date));
    }
    let len = amounts::amount_len(rest);
    if len > 0 {
        return Some((len, IdentifierKind::Amount));
    }
    let is_number = first.is_ascii_digit() || first == '+';
    let len = if is_number { contacts::phone_len(rest) } else { 0 };
    (len > 0).then_some((len, IdentifierKind::Contact))
}

/// The name that a part of a word is.
fn name_in<'t>(part: &'t str, marks: Marks, before: &str) -> Option<(&'t str, IdentifierKind)> {
    let name = bare(part);
    if name.len() < 2 {
        return None;
    }
    let has_digit = marks.has(Marks::DIGIT);
    if has_digit && let Some(port) = addresses::port_in(name, before) {
        return Some((port, IdentifierKind::Port));
    }
    if has_digit && marks.has(Marks::UPPER) && references::is_reference(name) {
        return Some((name, IdentifierKind::Reference));
    }
    let may_be_branch = Marks::SLASH.and(Marks::DIGIT).and(Marks::UNDERSCORE).and(Marks::HYPHEN);
    if marks.has(may_be_branch)
        && switches::is_branch(name, before)
        && files::file_in(name).is_none_or(|_| name.contains('/'))
    {
        return Some((name, IdentifierKind::Branch));
    }
    if marks.has(Marks::POINT.and(Marks::SLASH).and(Marks::BACKSLASH))
        && let Some(file) = files::file_in(part)
    {
        return Some((file, IdentifierKind::File));
    }
    // `12:deadbeef` names the code behind the colon, which is another part.
    let name = if marks.has(Marks::COLON) { name.split(':').next().unwrap_or(name) } else { name };
    if name.is_ascii() && codes::is_code(name) {
        return Some((name, IdentifierKind::Code));
    }
    switches::is_variable(name).then_some((name, IdentifierKind::Variable))
}

/// Where a part begins in a text that contains it.
fn offset(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len())
}

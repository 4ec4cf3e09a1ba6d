//! The lines of a ledger block: unique, ordered by use, with a label and a count.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use regex::Regex;

use super::requests::RequestKind;
use crate::caps::fair_cap;
use crate::summary::envelope::escape_tag;
use ctxhost_text::truncate::{clip, one_line, prefix};

/// A mark before the text of a line: `[changed, 3x]`, `[exit 101]`. A shell's own `[ -f x ]` starts
/// with a space and does not match.
const MARK: &str = r"^\[(?<mark>[^\s\[\]][^\[\]]{0,48})\] (?<text>.+)$";
/// The count in a mark.
const TIMES: &str = r"^(\d{1,4})x$";
/// Labels that only commands have.
const STATUS: &str = r"^(?:exit \d{1,3}|failed|no result|cancelled)$";

/// Upper bound of the counted mentions.
// Otherwise a name of a hundred turns ago would never lose its rank.
const MAX_WEIGHT: u64 = 8;

static MARKS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(MARK).ok());
static TIMES_MARKS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TIMES).ok());
static STATUSES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(STATUS).ok());

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LedgerItem {
    /// The exact text.
    pub(super) text: String,
    /// Label in a word or two; may be empty.
    pub(super) label: String,
    /// Mentions by user or model; 0 if only a tool printed it.
    pub(super) mentions: u64,
    /// Of a name: who states it.
    pub(super) author: NameAuthor,
    /// Of a request: what it holds.
    pub(super) request_kind: RequestKind,
    /// Of a request: the place of the later one that replaces a rule of it, oldest first.
    pub(super) replaced_by: Option<usize>,
}

/// Who states a name that needs its exact characters. Only the user can repeat what the user stated, and the model
/// seldom prints an id twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameAuthor {
    /// A tool, or a name that can be read again.
    #[default]
    Tool,
    /// The model.
    Model,
    /// The user.
    User,
}

/// Parts of the room that names of an author have before those of other ones.
const AUTHOR_ROOMS: [(NameAuthor, u64); 2] = [(NameAuthor::User, 2), (NameAuthor::Model, 4)];

impl LedgerItem {
    pub(super) fn new(text: impl Into<String>) -> LedgerItem {
        LedgerItem { text: text.into(), mentions: 1, ..LedgerItem::default() }
    }

    pub(super) fn with_label(self, what: String) -> LedgerItem {
        LedgerItem { label: what, ..self }
    }

    pub(super) fn clipped(&self, chars: u64) -> LedgerItem {
        LedgerItem { text: clip(&self.text, chars).into_owned(), ..self.clone() }
    }

    /// `- [exit 1, 3x] cargo test`
    pub(super) fn line(&self) -> String {
        let times = (self.mentions > 1).then(|| format!("{}x", self.mentions));
        let label = (!self.label.is_empty()).then(|| self.label.clone());
        let mark: Vec<String> = label.into_iter().chain(times).collect();
        if mark.is_empty() {
            return format!("- {}", self.text);
        }
        format!("- [{}] {}", mark.join(", "), self.text)
    }

    fn parse(line: &str, is_mark: impl Fn(&str) -> bool) -> LedgerItem {
        let found = MARKS.as_ref().and_then(|pattern| pattern.captures(line));
        let parts =
            found.as_ref().and_then(|found| Some((found.name("mark")?, found.name("text")?)));
        let Some((mark, text)) = parts else { return LedgerItem::new(line) };
        let mut item = LedgerItem::new(text.as_str());
        for part in mark.as_str().split(", ") {
            match times_in(part) {
                Some(times) => item.mentions = times,
                None if is_mark(part) => item.label = part.to_owned(),
                // An unknown mark is part of the text, such as a shell test.
                None => return LedgerItem::new(line),
            }
        }
        item
    }

    /// Rank weight: frequent mentions outlive single ones.
    fn weight(&self) -> u64 {
        (2 * self.mentions.min(MAX_WEIGHT)).max(1)
    }
}

/// The unique lines of a block.
#[derive(Clone, Debug)]
pub(super) struct LedgerItems {
    by_key: HashMap<String, (u64, LedgerItem)>,
    next: u64,
    /// Two texts with an equal prefix of this many weighted characters are the same line.
    key_chars: u64,
}

impl LedgerItems {
    pub(super) fn new(key_chars: u64) -> LedgerItems {
        LedgerItems { by_key: HashMap::new(), next: 0, key_chars }
    }

    /// The identity of a line: its words, whatever the white space.
    fn key(&self, text: &str) -> String {
        prefix(&one_line(text), self.key_chars, 1).to_owned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Size of all lines with texts of at most `most_chars`, in weighted characters.
    pub(super) fn chars(&self, most_chars: u64) -> u64 {
        let sizes = self.by_key.values().map(|(_, item)| {
            let mark = weighted_chars(&item.label) + LEAST_LINE_CHARS + TIMES_CHARS;
            weighted_chars(&item.text).min(most_chars) + mark
        });
        sizes.sum()
    }

    /// Adds a line, or moves a known one to the end. A later label wins, except that `read` does
    /// not replace `changed`.
    pub(super) fn add(&mut self, item: LedgerItem) {
        // A counter instead of a list: moving a line to the end costs no shift.
        let order = self.next;
        self.next += 1;
        let key = self.key(&item.text);
        let Some((place, known)) = self.by_key.get_mut(&key) else {
            self.by_key.insert(key, (order, item));
            return;
        };
        *place = order;
        known.mentions += item.mentions;
        known.author = known.author.max(item.author);
        // An earlier summary may list the cut form; the longer text is kept.
        let is_cut = item.text.strip_suffix('…').is_some_and(|head| known.text.starts_with(head));
        if !is_cut {
            known.text = item.text;
        }
        // A command that failed and later succeeded is not a failure.
        let is_command = is_status(&known.label);
        let is_weaker = item.label.is_empty() || (known.label == "changed" && item.label == "read");
        if is_command || !is_weaker {
            known.label = item.label;
        }
    }

    /// Adds a printed item. A known item is not refreshed by a tool's output.
    pub(super) fn add_printed(&mut self, item: LedgerItem) {
        // A listing would otherwise make every old name new again.
        if !self.by_key.contains_key(&self.key(&item.text)) {
            self.add(LedgerItem { mentions: 0, ..item });
        }
    }

    /// The lines, oldest first.
    pub(super) fn oldest_first(&self) -> Vec<&LedgerItem> {
        let mut items: Vec<&(u64, LedgerItem)> = self.by_key.values().collect();
        items.sort_unstable_by_key(|(order, _)| *order);
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// The same to change them; their texts must stay.
    pub(super) fn oldest_first_mut(&mut self) -> Vec<&mut LedgerItem> {
        let mut items: Vec<&mut (u64, LedgerItem)> = self.by_key.values_mut().collect();
        items.sort_unstable_by_key(|(order, _)| *order);
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// The cap of a text with which all lines fit, at most `most_chars`; in weighted characters.
    pub(super) fn fair_line_chars(&self, room_chars: u64, most_chars: u64) -> u64 {
        let sizes = self
            .by_key
            .values()
            .map(|(_, item)| weighted_chars(&item.clipped(most_chars).line()) + 1);
        fair_cap(sizes.collect(), room_chars).unwrap_or(most_chars)
    }

    /// The highest ranked lines in at most `room_chars` weighted characters, newest first.
    /// `is_wanted` is checked only for lines that fit.
    pub(super) fn fit_lines(
        &self,
        room_chars: u64,
        show: impl Fn(&LedgerItem) -> String,
        is_wanted: impl Fn(&LedgerItem) -> bool,
    ) -> Vec<String> {
        let newest_first = self.oldest_first().into_iter().rev();
        let mut ranked: Vec<(u64, usize, &LedgerItem)> = newest_first
            .enumerate()
            .map(|(age, item)| ((age as u64 + 1) * 16 / item.weight(), age, item))
            .collect();
        // The score is age divided by weight, so that lower is better.
        ranked.sort_unstable_by_key(|(score, age, _)| (*score, *age));
        let mut left_chars = room_chars.saturating_sub(TAG_CHARS);
        let mut shown: BTreeMap<usize, String> = BTreeMap::new();
        let mut add = |items: &[(u64, usize, &LedgerItem)],
                       most_chars: u64,
                       author: Option<NameAuthor>| {
            let mut room = most_chars.min(left_chars);
            for (_, age, item) in items {
                if room < LEAST_LINE_CHARS {
                    break;
                }
                if author.is_some_and(|author| item.author != author) || shown.contains_key(age) {
                    continue;
                }
                let line = show(item);
                let chars = weighted_chars(&line) + 1;
                // Checked last: searching for a name in a long text is the most expensive step.
                if chars <= room && is_wanted(item) {
                    room -= chars;
                    left_chars -= chars;
                    shown.insert(*age, line);
                }
            }
        };
        for (author, part) in AUTHOR_ROOMS {
            add(&ranked, room_chars / part, Some(author));
        }
        add(&ranked, room_chars, None);
        shown.into_values().collect()
    }
}

/// Whether a label is one that only commands have. Most are the words before a name.
fn is_status(label: &str) -> bool {
    let may_be_status = label.starts_with(['e', 'f', 'n', 'c']);
    may_be_status && STATUSES.as_ref().is_some_and(|status| status.is_match(label))
}

fn times_in(mark: &str) -> Option<u64> {
    TIMES_MARKS.as_ref()?.captures(mark)?.get(1)?.as_str().parse().ok()
}

/// Size of the tags of a block, in weighted characters.
const TAG_CHARS: u64 = 36;
/// Minimum size of a line, in weighted characters.
const LEAST_LINE_CHARS: u64 = 4;
/// Upper bound of a mark without its label: `[, 9999x] `.
const TIMES_CHARS: u64 = 12;

/// Parses the lines of a block.
pub(super) fn read_items(text: &str, tag: &str) -> Vec<LedgerItem> {
    let is_mark = |what: &str| tag != super::COMMANDS || is_status(what);
    let lines = bodies(text, tag).into_iter().flat_map(str::lines);
    let lines = lines.filter_map(|line| line.strip_prefix("- "));
    lines.map(|line| LedgerItem::parse(line.trim_end(), is_mark)).collect()
}

/// Parses a block whose texts may have several lines.
pub(super) fn read_texts(text: &str, tag: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for line in bodies(text, tag).into_iter().flat_map(str::lines) {
        match (line.strip_prefix("- "), texts.last_mut()) {
            (Some(first), _) => texts.push(first.to_owned()),
            (None, Some(last)) => {
                last.push('\n');
                last.push_str(line.strip_prefix("  ").unwrap_or(line));
            }
            (None, None) => {}
        }
    }
    texts.into_iter().map(|text| text.trim_end().to_owned()).collect()
}

/// Renders a text of several lines as one item that cannot close its tag.
pub(super) fn text_line(text: &str, tag: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("- {}", escape_tag(&lines.join("\n  "), tag))
}

/// Removes the contents of a block.
pub(super) fn strip_block(text: &str, tag: &str) -> String {
    let inside = bodies(text, tag).into_iter();
    inside.fold(text.to_owned(), |rest, inside| rest.replacen(inside, "", 1))
}

/// The contents of all blocks with a tag; two merged summaries have two.
fn bodies<'a>(text: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>\n"), format!("\n</{tag}>"));
    text.split(&open).skip(1).filter_map(|part| Some(part.split_once(&close)?.0)).collect()
}

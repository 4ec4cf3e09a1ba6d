//! The facts that one message states.
//!
//! | category | a fact is |
//! |---|---|
//! | asks | what the user wrote in a message, if it is more than a confirmation |
//! | paths, ids | a name by the engines' definition; dates, amounts and branches in outputs are none |
//! | commands | the command of a call, or one that the user ran |
//! | numbers | a number with a unit |
//! | failures | the output of a failed call or command |
//!
//! Asks, commands and failures are compared by their beginning, which is what a summary quotes.

use std::borrow::Cow;
use std::sync::LazyLock;

use ctxhost_engine_api::{Entry, EntryKind, PlanItem, Role};
use ctxhost_engine_kit::{calls, dialogue};
use ctxhost_text::identifiers::IdentifierKind;
use ctxhost_text::injected_text::request_text;
use regex::Regex;
use serde_json::Value;

use super::Category;
use super::matching::normalize;
use super::names::{calls_of, for_each_exact, texts_with_secrets};
use super::secrets::KnownSecrets;

/// The length in characters of a beginning that identifies a long fact: about a line.
const BEGINNING_CHARS: usize = 80;
/// The length in characters of the shown text of a long fact: two lines of a terminal.
const SHOWN_CHARS: usize = 160;

/// A number with a unit of time, size, share or count that is common in programming.
const NUMBER: &str = r"(?i)(?:^|[^\w.,%-])([+-]?\d[\d,_]*(?:\.\d+)?)[ \u{a0}]?(%|(?:percent|µs|us|ns|ms|s|secs?|seconds?|min|minutes?|h|hours?|days?|[kmgt]i?b|bytes?|chars|characters|tokens?|lines?|files?|tests?|passed|failed|errors?|warnings?|entries|rows|requests?|times|px|fps|x)\b)";

static NUMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NUMBER).ok());

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) category: Category,
    /// The text as it is shown.
    pub(super) text: String,
    /// The text as it is compared.
    pub(super) key: String,
    /// Whether the key is only the beginning of the text.
    pub(super) is_beginning: bool,
}

/// The content of a message, without secrets.
#[derive(Debug)]
pub(super) struct Statement {
    /// Its texts, and those in the arguments of its calls.
    texts: Vec<String>,
    /// Facts that follow from the kind of message: asks, commands, failures.
    acts: Vec<Fact>,
    /// Whether a tool or a command printed it.
    is_output: bool,
}

impl Statement {
    /// The statement of an item. Adds its secrets to `secrets`.
    pub(super) fn from_item(item: &PlanItem<'_>, secrets: &mut KnownSecrets) -> Statement {
        let mut texts = texts_with_secrets(item, secrets);
        let commands: Vec<String> =
            calls_of(item).iter().filter_map(calls::command_argument).collect();
        let mut acts: Vec<Fact> = commands
            .iter()
            .filter_map(|command| excerpt_fact(Category::Commands, command))
            .collect();
        // A command given as a list is in no text as a whole.
        for command in commands {
            if !texts.contains(&command) {
                texts.push(command);
            }
        }
        if let PlanItem::Kept(entry) = item {
            if entry.kind() == EntryKind::Bash
                && let Some(command) = user_command(entry)
            {
                acts.extend(excerpt_fact(Category::Commands, &command));
                // The text of such an entry is the output alone.
                texts.push(command);
            }
            if entry.is_user_message() {
                // A summary quotes the user, and not what a client inserted before the user's words.
                let request = request_text(entry);
                // "yes" and "go on" ask for nothing that a summary could keep.
                let is_ask = !dialogue::is_assent(&request);
                acts.extend(is_ask.then(|| excerpt_fact(Category::Asks, &request)).flatten());
            }
            if calls::has_failed(entry) {
                let printed = calls::printed_text(entry);
                acts.extend(excerpt_fact(Category::Failures, &printed));
                // An output in JSON has its line breaks escaped.
                if let Cow::Owned(printed) = printed {
                    texts.push(printed);
                }
            }
        }
        // First of all, so that no secret can reach a report as a lost fact.
        let texts = texts.iter().map(|text| secrets.redact_shown(text)).collect();
        let is_output = match item {
            PlanItem::Kept(entry) => entry.role() == Role::Tool || entry.kind() == EntryKind::Bash,
            _ => false,
        };
        Statement { texts, acts, is_output }
    }

    /// All facts, names before numbers.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let mut facts = self.acts.clone();
        for text in &self.texts {
            for_each_exact(text, |name| {
                // Logs are full of times.
                if self.is_output && name.kind.is_noise_in_output() {
                    return;
                }
                let is_file = name.kind == IdentifierKind::File;
                let category = if is_file { Category::Paths } else { Category::Ids };
                let (text, key) = (name.text.to_owned(), normalize(name.text));
                facts.push(Fact { category, key, text, is_beginning: false });
            });
        }
        facts.extend(self.numbers());
        facts
    }

    /// The measured numbers in it.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Fact> {
        let parts = self.texts.iter().flat_map(|text| searched_parts(text));
        // A regex that does not compile finds nothing; a test fails then.
        let found = parts
            .flat_map(|text| NUMBERS.iter().flat_map(move |pattern| pattern.captures_iter(text)));
        found.filter_map(|parts| Some(number(parts.get(1)?.as_str(), parts.get(2)?.as_str())))
    }

    /// Its texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }
}

/// The parts of a text in which numbers are searched: all of it, or the lines of one that is not all ASCII.
// Borders of words slow the search down where other characters are, and no match crosses a line.
fn searched_parts(text: &str) -> impl Iterator<Item = &str> {
    let (whole, lines) =
        if text.is_ascii() { (Some(text), None) } else { (None, Some(text.split('\n'))) };
    let parts = whole.into_iter().chain(lines.into_iter().flatten());
    parts.filter(|part| !part.is_ascii() || part.bytes().any(|byte| byte.is_ascii_digit()))
}

fn number(digits: &str, unit: &str) -> Fact {
    // `1,204` and `1204` are the same number.
    let digits = digits.replace([',', '_'], "");
    let text = format!("{digits} {}", unit.to_lowercase());
    Fact { category: Category::Numbers, key: text.clone(), text, is_beginning: false }
}

/// A fact identified by its beginning; `None` for an empty text.
fn excerpt_fact(category: Category, text: &str) -> Option<Fact> {
    let text = KnownSecrets::default().redact_shown(text);
    let whole = normalize(&text);
    // Summaries shorten long requests; one whose beginning is there was kept.
    let key: String = whole.chars().take(BEGINNING_CHARS).collect();
    let is_beginning = key.len() < whole.len();
    let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text: String = shown.chars().take(SHOWN_CHARS).collect();
    if text.len() < shown.len() {
        text.push('…');
    }
    (!key.is_empty()).then_some(Fact { category, text, key, is_beginning })
}

/// The command of an entry that the user ran.
fn user_command(entry: &Entry<'_>) -> Option<String> {
    let raw: Value = serde_json::from_str(entry.raw()).ok()?;
    raw.get("command")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<String> {
        let statement = Statement { texts: vec![text.into()], acts: Vec::new(), is_output: false };
        statement.numbers().map(|fact| fact.text).collect()
    }

    #[test]
    fn a_number_is_measured_where_a_unit_follows() {
        assert_eq!(
            numbers("took 1,204.5 ms, 12ms and 87% of 3 GiB"),
            ["1204.5 ms", "12 ms", "87 %", "3 gib"]
        );
        assert_eq!(
            numbers("214 passed; 0 failed; -3 % (2x)"),
            ["214 passed", "0 failed", "-3 %", "2 x"]
        );
        assert_eq!(
            numbers("é 5 ms\n7 files\r\nat 3\n% and 9é, 12 s\n→ 40 %\n"),
            ["5 ms", "7 files", "12 s", "40 %"]
        );
        assert_eq!(
            numbers("version 1.2.3 at line 40, 0x1f, e2s, %-28s, 7 dwarfs"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_long_fact_is_identified_by_its_beginning() {
        let fact = excerpt_fact(Category::Asks, &format!("Do\n  {}", "it ".repeat(200))).unwrap();
        assert!(fact.is_beginning && fact.key.starts_with("do it it"));
        assert_eq!(fact.key.chars().count(), BEGINNING_CHARS);
        assert!(fact.text.ends_with('…'));
        assert_eq!(excerpt_fact(Category::Asks, " \n"), None);
        let secret = excerpt_fact(Category::Commands, "login --token=abcdef123456").unwrap();
        assert_eq!(secret.text, "login --token=[redacted:credential]");
    }
}

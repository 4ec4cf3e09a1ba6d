//! Whether a request still showed the names that its answer came back to.
//!
//! Needed is an identifier (path, URL, hash, long number) that an answer of the recording names again
//! after a pause. It was kept when it stood anywhere in the request that was answered. The engines'
//! own words for identifiers count, and the paths of files inside a project, which they leave out.

use std::collections::HashMap;
use std::sync::LazyLock;

use ctxhost_engine_api::{Entry, Item, Message, ToolCall};
use ctxhost_engine_kit::identifiers;
use regex::Regex;
use serde_json::Value;

use super::prefix;

/// Entries that an identifier must have been silent for, so that it counts as coming back. What was
/// said a moment ago is in every request; 20 entries are about ten steps of a coding agent.
const PAUSE_ENTRIES: u64 = 20;

/// `src/main.rs`, but neither `and/or` nor the rest of an absolute path.
const RELATIVE_PATH: &str = r#"(?:^|[\s"'`(\[=:,<|])(?:\./)?((?:[A-Za-z0-9_.@+-]+/)+[A-Za-z0-9_.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7})\b"#;

static RELATIVE_PATHS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(RELATIVE_PATH).ok());

/// Counts needed and kept identifiers. Each text is searched once.
#[derive(Default)]
pub(super) struct IdentifierMeter {
    /// A number for each identifier.
    numbers: HashMap<String, usize>,
    /// The entry that named it last, by number.
    last_named: Vec<u64>,
    /// The identifiers of an item, by its identity.
    named: HashMap<u64, Vec<usize>>,
    entries: u64,
    needed: u64,
    kept: u64,
}

impl IdentifierMeter {
    /// An answer came to a request that was shaped as these items.
    pub(super) fn answered(&mut self, items: &[Item<'_>], answer: &Entry<'_>) {
        let named = self.read(&Item::Kept(*answer)).to_vec();
        let mut missing: Vec<usize> = named.into_iter().filter(|n| self.comes_back(*n)).collect();
        let needed = missing.len() as u64;
        for item in items {
            if missing.is_empty() {
                break;
            }
            let shown = self.read(item);
            missing.retain(|number| shown.binary_search(number).is_err());
        }
        self.needed += needed;
        self.kept += needed - missing.len() as u64;
    }

    /// The recording has one more entry.
    pub(super) fn grew(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        for number in self.read(&Item::Kept(*entry)).to_vec() {
            if let Some(last) = self.last_named.get_mut(number) {
                *last = self.entries;
            }
        }
    }

    /// Needed identifiers, and how many of them were kept.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.needed, self.kept)
    }

    fn comes_back(&self, number: usize) -> bool {
        let last = self.last_named.get(number).copied().unwrap_or(0);
        last > 0 && self.entries - last >= PAUSE_ENTRIES
    }

    /// The numbers of an item's identifiers, each once.
    fn read(&mut self, item: &Item<'_>) -> &[usize] {
        let identity = prefix::identity(item);
        if !self.named.contains_key(&identity) {
            let texts = texts_of(item);
            let mut found = identifiers::extract(texts.iter().map(String::as_str), usize::MAX);
            texts.iter().for_each(|text| found.extend(relative_paths(text)));
            let mut numbers: Vec<_> = found.into_iter().map(|name| self.number_of(name)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            self.named.insert(identity, numbers);
        }
        self.named.get(&identity).map_or(&[], Vec::as_slice)
    }

    fn number_of(&mut self, identifier: String) -> usize {
        let next = self.last_named.len();
        let number = *self.numbers.entry(identifier).or_insert(next);
        if number == next {
            self.last_named.push(0);
        }
        number
    }
}

/// The paths of files inside a project.
fn relative_paths(text: &str) -> impl Iterator<Item = String> {
    let found = RELATIVE_PATHS.iter().flat_map(|pattern| pattern.captures_iter(text));
    found.filter_map(|parts| Some(parts.get(1)?.as_str().to_owned()))
}

/// What an item says: its text and the texts in the arguments of its calls.
fn texts_of(item: &Item<'_>) -> Vec<String> {
    let mut texts = vec![item.text().into_owned()];
    let calls = match item {
        Item::Kept(entry) | Item::Retold { entry, .. } => entry.tool_calls(),
        Item::Rewritten { raw, .. } => Message::parse(raw, "").tool_calls(),
        _ => Vec::new(),
    };
    for call in &calls {
        add_arguments(call, &mut texts);
    }
    texts
}

fn add_arguments(call: &ToolCall<'_>, texts: &mut Vec<String>) {
    let mut values = vec![call.arguments_value()];
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) => texts.push(text),
            Value::Number(number) => texts.push(number.to_string()),
            Value::Array(list) => values.extend(list),
            Value::Object(fields) => values.extend(fields.into_iter().map(|(_, value)| value)),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::Conversation;
    use ctxhost_engine_api::{Plan, Role, Transcript};

    use super::*;

    /// What an engine would show of a transcript: it is given that and the position of the answer.
    type Shape = fn(&Transcript, u64) -> Plan;

    /// Runs a meter over a transcript as a replay does.
    fn measured(transcript: &Transcript, shape: Shape) -> (u64, u64) {
        let mut meter = IdentifierMeter::default();
        for entry in transcript.iter() {
            if entry.role() == Role::Assistant {
                let plan = shape(transcript, entry.seq());
                meter.answered(&plan.project(transcript), &entry);
            }
            meter.grew(&entry);
        }
        meter.counts()
    }

    fn whole(_: &Transcript, until: u64) -> Plan {
        let mut plan = Plan::default();
        plan.keep(0..until);
        plan
    }

    fn newest_four(_: &Transcript, until: u64) -> Plan {
        let mut plan = Plan::default();
        plan.keep(until.saturating_sub(4)..until);
        plan
    }

    fn with_a_note(transcript: &Transcript, until: u64) -> Plan {
        let mut plan = Plan::default();
        plan.insert(Role::User, "earlier: commit deadbeefcafe01", 0..0);
        plan.ops.extend(newest_four(transcript, until).ops);
        plan
    }

    fn a_path_and_a_hash(silent_entries: usize) -> Conversation {
        let mut talk = Conversation::new();
        talk.user("look at /srv/app/main.rs, commit deadbeefcafe01");
        for _ in 0..silent_entries {
            talk.assistant("going on");
        }
        talk.calls(&[("a", "edit", r#"{"path": "line\n/srv/app/main.rs"}"#)]);
        talk.result("a", "edit", "done")
            .assistant("/srv/app/main.rs is changed since DEADBEEFCAFE01");
        talk
    }

    #[test]
    fn what_comes_back_after_a_pause_is_needed_and_kept_where_the_request_shows_it() {
        let talk = a_path_and_a_hash(PAUSE_ENTRIES as usize);
        let transcript = talk.transcript();
        assert_eq!(
            measured(&transcript, whole),
            (2, 2),
            "the path of the call, the hash of the text"
        );
        assert_eq!(measured(&transcript, newest_four), (2, 0));
        assert_eq!(measured(&transcript, with_a_note), (2, 1), "a summary may name it too");
    }

    #[test]
    fn a_path_inside_a_project_is_an_identifier() {
        let found = |text| relative_paths(text).collect::<Vec<_>>();
        assert_eq!(
            found("see ./src/a.rs:12, `b/c.toml` d/e.md"),
            ["src/a.rs", "b/c.toml", "d/e.md"]
        );
        let none = "and/or 1/2.5 /srv/app/main.rs https://example.com/a.html main.rs";
        assert_eq!(found(none), Vec::<String>::new());
    }

    #[test]
    fn what_was_named_a_moment_ago_is_not_needed() {
        let talk = a_path_and_a_hash(PAUSE_ENTRIES as usize / 2);
        assert_eq!(measured(&talk.transcript(), newest_four), (0, 0));
    }
}

//! Builds a leaf entry by entry: the user's requests and rules, failures, reports, and names.

use ctxhost_engine_api::{Entry, EntryKind, HistoryEntry, Role, Transcript};
use ctxhost_engine_kit::antecedent::Antecedent;
use ctxhost_engine_kit::calls::{describe_call, find_call, has_failed};
use ctxhost_engine_kit::dialogue::{is_assent, is_hidden};
use ctxhost_engine_kit::rules::find_rules;
use ctxhost_text::hash;
use ctxhost_text::identifiers::for_each_identifier;
use ctxhost_text::redact::{redact, redacted_ends};
use ctxhost_text::truncate::{clip, one_line};
use serde_json::Value;

use crate::condense::heaviest;
use crate::node::{DagNode, LineKind, NodeLine, REQUEST, WeightedName};
use crate::settings::Settings;

/// Of a longer text, in weighted characters, only head and end are read.
// Bounds the work for one entry: requests come first, outcomes last.
const HEAD_CHARS: u64 = 3_000;
const END_CHARS: u64 = 1_000;
/// Length of a line, in weighted characters.
const LINE_CHARS: u64 = 180;
/// A shorter first sentence is a greeting, in bytes.
const SENTENCE_BYTES: usize = 24;

/// Weights of a mention in a call, in a text of user or model, and in an output.
const USED_WEIGHT: f32 = 4.0;
const STATED_WEIGHT: f32 = 2.0;
const PRINTED_WEIGHT: f32 = 1.0;

/// A leaf that still grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeafDraft {
    node: DagNode,
    names: Vec<WeightedName>,
    turns: u64,
    tokens: u64,
    newest_ms: i64,
    /// Whether the newest line is the report of the running turn.
    has_report: bool,
}

impl LeafDraft {
    /// Whether it has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.node.sources.is_empty()
    }

    /// Whether it ends before an entry at which a cut separates no pair.
    pub(crate) fn ends_before(&self, is_request: bool, at_ms: i64, settings: &Settings) -> bool {
        let pause_ms = i64::try_from(settings.pause_minutes.saturating_mul(60_000));
        // Work after a break is usually about something else, and a leaf should have one subject.
        let is_pause = at_ms.saturating_sub(self.newest_ms) > pause_ms.unwrap_or(i64::MAX)
            && self.newest_ms > 0;
        let has_turns = self.turns >= settings.leaf_turns && is_request;
        !self.is_empty() && (has_turns || is_pause || self.tokens >= settings.leaf_tokens)
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, transcript: &Transcript, entry: &Entry<'_>) {
        self.add_source(entry.id(), entry.tokens(), entry.timestamp_ms());
        if is_hidden(entry) {
            return;
        }
        let text = shortened(entry.text());
        // What the agent passed to a tool is what it will need again; outputs print far more names than are used.
        for call in entry.tool_calls() {
            self.add_names(&argument_text(&call.arguments_value()), USED_WEIGHT);
        }
        if entry.is_user_message() {
            self.add_request(&text, Antecedent::find(transcript, entry));
        } else if has_failed(entry) {
            let call = find_call(transcript, entry).map(|call| describe_call(&call));
            let call = call.unwrap_or_else(|| "a call".to_owned());
            self.add_line(LineKind::Failure, &format!("failed: {}", redact(&call)));
        } else if entry.role() == Role::Assistant {
            self.add_report(&text);
        }
        let is_output = entry.role() == Role::Tool || entry.kind() == EntryKind::Bash;
        self.add_names(&text, if is_output { PRINTED_WEIGHT } else { STATED_WEIGHT });
    }

    /// Adds an entry of the history, which has no calls.
    pub(crate) fn push_history(&mut self, entry: &HistoryEntry) {
        self.add_source(&entry.id, entry.tokens, entry.timestamp_ms);
        let text = shortened(&entry.text);
        match entry.role.as_str() {
            "user" => self.add_request(&text, None),
            "assistant" => self.add_report(&text),
            _ => {}
        }
        let is_stated = ["user", "assistant"].contains(&entry.role.as_str());
        self.add_names(&text, if is_stated { STATED_WEIGHT } else { PRINTED_WEIGHT });
    }

    /// The leaf with its text.
    pub(crate) fn finish(&self, settings: &Settings) -> DagNode {
        let mut node = DagNode { names: heaviest(self.names.iter()), ..self.node.clone() };
        node.render(settings.leaf_text_tokens);
        node
    }

    fn add_source(&mut self, id: &str, tokens: u64, at_ms: i64) {
        self.node.sources.push(id.to_owned());
        self.node.entries += 1;
        self.tokens += tokens;
        self.newest_ms = self.newest_ms.max(at_ms);
        // An edited entry keeps its id but not its size.
        self.node.fingerprint =
            self.node.fingerprint.rotate_left(7) ^ hash::fnv1a(id) ^ tokens.rotate_left(32);
    }

    fn add_request(&mut self, text: &str, antecedent: Option<Antecedent>) {
        self.turns += 1;
        self.has_report = false;
        if antecedent.is_none() && is_assent(text) {
            return;
        }
        let rule = find_rules(text).next();
        let kind = if rule.is_some() { LineKind::Rule } else { LineKind::Request };
        let mut line = first_sentences(text);
        // A rule is often the end of a longer request.
        if let Some(rule) = rule.filter(|rule| !line.contains(rule.as_str())) {
            line = format!("{line} {rule}");
        }
        if let Some(antecedent) = antecedent {
            line = antecedent.append_to(&line);
        }
        self.add_line(kind, &format!("{REQUEST}{line}"));
    }

    /// The last answer of a turn reports what the turn did.
    fn add_report(&mut self, text: &str) {
        let report = first_sentences(text);
        if report.is_empty() {
            return;
        }
        // Of the reports of a turn the last one states the outcome.
        if self.has_report {
            let last = self.node.lines.iter().rposition(|line| line.kind == LineKind::Report);
            if let Some(at) = last {
                self.node.lines.remove(at);
            }
        }
        self.has_report = true;
        self.add_line(LineKind::Report, &report);
    }

    fn add_line(&mut self, kind: LineKind, text: &str) {
        let text = clip(&one_line(text), LINE_CHARS).into_owned();
        if !self.node.lines.iter().any(|line| line.text == text) {
            self.node.lines.push(NodeLine { kind, text });
        }
    }

    fn add_names(&mut self, text: &str, weight: f32) {
        let mut names: Vec<&str> = Vec::new();
        for_each_identifier(text, |name| {
            // Once per entry: a listing repeats its folder in every line.
            if !name.kind.is_noise_in_output() && !names.contains(&name.text) {
                names.push(name.text);
            }
        });
        self.names.extend(names.into_iter().map(|name| (name.to_owned(), weight)));
    }
}

/// Head and end of a text, without secrets.
fn shortened(text: &str) -> String {
    redacted_ends(text, HEAD_CHARS, END_CHARS, "\n").into_owned()
}

/// The text values of a call, without secrets and without file contents.
fn argument_text(arguments: &Value) -> String {
    let mut texts = Vec::new();
    let mut open = vec![arguments];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => texts.push(shortened(text)),
            Value::Array(list) => open.extend(list),
            Value::Object(fields) => open.extend(fields.values()),
            _ => {}
        }
    }
    texts.join("\n")
}

/// The first sentence that says something, or two short ones, on one line.
fn first_sentences(text: &str) -> String {
    let text = one_line(clip(text, 2 * LINE_CHARS).as_ref());
    let mut end = 0;
    for sentence in text.split_inclusive(". ") {
        end += sentence.len();
        if end >= SENTENCE_BYTES {
            break;
        }
    }
    text.get(..end).unwrap_or(&text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn leaf(talk: &TranscriptBuilder) -> DagNode {
        let transcript = talk.transcript();
        let mut draft = LeafDraft::default();
        transcript.iter().for_each(|entry| draft.push(&transcript, &entry));
        draft.finish(&Settings::default())
    }

    #[test]
    fn a_leaf_has_requests_reports_failures_and_names() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Move the cache to src/cache.rs. Then run the tests of the crate.");
        talk.calls(&[("c1", "bash", r#"{"command":"cargo test -p cache"}"#)]);
        talk.failure("c1", "bash", "error in src/lib.rs:12");
        talk.assistant("I will look at it.")
            .assistant("Moved the cache and fixed the import. Done.");
        let leaf = leaf(&talk);
        let lines: Vec<&str> = leaf.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            lines,
            [
                "user: Move the cache to src/cache.rs.",
                "failed: bash cargo test -p cache",
                "Moved the cache and fixed the import.",
            ]
        );
        assert!(leaf.text.contains("src/cache.rs") && leaf.text.contains("src/lib.rs"), "{leaf:?}");
        assert_eq!((leaf.entries, leaf.sources.len()), (5, 5));
    }

    #[test]
    fn a_leaf_contains_no_secret() {
        let mut talk = TranscriptBuilder::new();
        let secret = "ghp_aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vWxYz1";
        talk.user(&format!("Use the key {secret} for the deployment."));
        talk.calls(&[("c1", "bash", &format!(r#"{{"command":"deploy --key {secret}"}}"#))]);
        talk.failure("c1", "bash", secret)
            .assistant(&format!("I remember {secret}, as you asked."));
        assert!(!serde_json::to_string(&leaf(&talk)).unwrap().contains(secret));
    }
}

//! Pruning: old output becomes one line, old arguments become short, and stay so byte for byte.
//!
//! Pressure: half of the window is full. Cost: the model must read a file again where it needs it;
//! no model is asked and the session keeps everything.

mod line;

use std::collections::{BTreeMap, HashMap};

use ctxhost_engine_api::serde_json::{self, Value};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, Flags, Message, Plan, Role, Transcript};
use ctxhost_engine_kit::text::{clip, grouped};
use ctxhost_engine_kit::turns::Reading;

use crate::settings::Settings;
pub(crate) use line::about;

/// The layer that notes name.
const LAYER: &str = "pruning";

/// What is pruned of one session. A decision is made once.
#[derive(Debug, Default)]
pub(crate) struct Pruned {
    reading: Reading,
    /// Entries before it have been decided.
    until: u64,
    changes: BTreeMap<u64, Change>,
    saved_tokens: u64,
}

/// An entry in its other form.
#[derive(Clone, Debug)]
struct Change {
    /// Of the entry: positions move with each compaction.
    id: String,
    form: Form,
    tokens: u64,
    detail: String,
}

#[derive(Clone, Debug)]
enum Form {
    Text(String),
    Raw(String),
}

impl Pruned {
    /// Keeps up with the transcript; after a compaction decisions move to where their entries are.
    pub(crate) fn follow(&mut self, transcript: &Transcript) {
        if self.reading.advance(transcript).start > 0 || self.until == 0 {
            return;
        }
        let old = std::mem::take(&mut self.changes).into_values();
        let mut by_id: HashMap<String, Change> = old.map(|c| (c.id.clone(), c)).collect();
        (self.until, self.saved_tokens) = (0, 0);
        for entry in transcript.iter() {
            if let Some(change) = by_id.remove(entry.id()) {
                self.until = entry.seq() + 1;
                self.put(&entry, Some(change));
            }
        }
    }

    /// What pruning saves so far, in tokens.
    pub(crate) fn saved_tokens(&self) -> u64 {
        self.saved_tokens
    }

    /// Whether the results between what is decided and `tail` are worth a new prefix.
    pub(crate) fn is_due(&self, transcript: &Transcript, tail: u64, batch_tokens: u64) -> bool {
        let undecided = transcript.range(self.until..tail).filter(|e| e.role() == Role::Tool);
        undecided.map(|entry| entry.tokens()).sum::<u64>() >= batch_tokens.max(1)
    }

    /// Decides every entry before `tail`.
    pub(crate) fn prune_until(&mut self, transcript: &Transcript, tail: u64, settings: &Settings) {
        if tail <= self.until {
            return;
        }
        let newest = newest_of_each(transcript, settings);
        for entry in transcript.range(self.until..tail) {
            let change = match entry.role() {
                _ if entry.has(Flags::PINNED) => None,
                Role::Tool => result(transcript, &entry, &newest, settings),
                Role::Assistant if entry.has(Flags::TOOL_CALLS) => arguments(&entry, settings),
                _ => None,
            };
            self.put(&entry, change);
        }
        self.until = tail;
    }

    /// The whole transcript, with its changes.
    pub(crate) fn plan(&self, transcript: &Transcript) -> Plan {
        let mut plan = Plan::default();
        let mut from = 0;
        for (&seq, change) in &self.changes {
            plan.keep(from..seq);
            match &change.form {
                Form::Text(text) => plan.replace_text(seq, text.as_str()),
                Form::Raw(raw) => plan.replace_raw(seq, raw.as_str()),
            };
            plan.note(LAYER, change.detail.as_str());
            from = seq + 1;
        }
        plan.keep(from..transcript.len() as u64);
        plan.estimated_tokens = transcript.total_tokens().saturating_sub(self.saved_tokens);
        plan
    }

    /// A change that saves nothing is none.
    fn put(&mut self, entry: &Entry<'_>, change: Option<Change>) {
        let saves = |change: &Change| entry.tokens().checked_sub(change.tokens).filter(|n| *n > 0);
        if let Some((change, saved_tokens)) = change.and_then(|c| saves(&c).map(|n| (c, n))) {
            self.saved_tokens += saved_tokens;
            self.changes.insert(entry.seq(), change);
        }
    }
}

/// Where each text that is long enough to matter was printed last.
fn newest_of_each<'a>(transcript: &'a Transcript, settings: &Settings) -> HashMap<&'a str, u64> {
    let results = transcript.iter().filter(|entry| entry.role() == Role::Tool);
    let long = results.filter(|entry| is_long(entry, settings));
    long.map(|entry| (entry.text(), entry.seq())).collect()
}

/// Four characters of any script are at least a token, so most texts need no count.
fn is_long(entry: &Entry<'_>, settings: &Settings) -> bool {
    entry.text().len() as u64 > settings.prune_result_chars
        && tokens::weighted_chars(entry.text()) > settings.prune_result_chars
}

fn result(
    transcript: &Transcript,
    entry: &Entry<'_>,
    newest: &HashMap<&str, u64>,
    settings: &Settings,
) -> Option<Change> {
    if !is_long(entry, settings) && !entry.has(Flags::IMAGES) {
        return None;
    }
    let is_repeated = newest.get(entry.text()).is_some_and(|&seq| seq > entry.seq());
    let line = line::of(transcript, entry, is_repeated);
    let before_chars = grouped(entry.text().chars().count() as u64);
    Some(Change {
        id: entry.id().to_owned(),
        tokens: tokens::estimate(&line),
        detail: match is_repeated {
            true => format!("{before_chars} chars, printed again later"),
            false => format!("{before_chars} -> {} chars", line.chars().count()),
        },
        form: Form::Text(line),
    })
}

/// A call with the texts in its long arguments shortened; the JSON stays JSON.
fn arguments(entry: &Entry<'_>, settings: &Settings) -> Option<Change> {
    let mut message: Value = serde_json::from_str(entry.raw()).ok()?;
    let mut shortened = 0;
    for block in message.get_mut("content")?.as_array_mut()? {
        let is_call = block.get("type").and_then(Value::as_str) == Some("toolCall");
        let Some(arguments) = block.get_mut("arguments").filter(|_| is_call) else { continue };
        if tokens::weighted_chars(&arguments.to_string()) > settings.prune_arguments_chars {
            shortened += shorten(arguments, settings.keep_argument_chars);
        }
    }
    let raw = message.to_string();
    (shortened > 0).then(|| Change {
        id: entry.id().to_owned(),
        tokens: tokens::message(&Message::parse(&raw, "")),
        form: Form::Raw(raw),
        detail: format!("{shortened} arguments shortened"),
    })
}

/// How many texts in a value were longer than `limit_chars` and no longer are.
fn shorten(value: &mut Value, limit_chars: u64) -> usize {
    match value {
        Value::String(text) if tokens::weighted_chars(text) > limit_chars => {
            *text = clip(text, limit_chars).into_owned();
            1
        }
        Value::Array(items) => items.iter_mut().map(|item| shorten(item, limit_chars)).sum(),
        Value::Object(map) => map.values_mut().map(|item| shorten(item, limit_chars)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::Conversation;

    use super::*;

    fn seen(pruned: &Pruned, transcript: &Transcript) -> Vec<String> {
        let plan = pruned.plan(transcript);
        plan.project(transcript).iter().map(|item| item.text().into_owned()).collect()
    }

    fn reads(talk: &mut Conversation, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let id = format!("c{number}");
            talk.calls(&[(&id, "read", &format!(r#"{{"path":"src/{number}.rs"}}"#))]);
            talk.result(&id, "read", &format!("fn part{number}() {{}}\n").repeat(40));
        }
    }

    #[test]
    fn old_results_are_lines_and_what_was_decided_stays_byte_for_byte() {
        let settings = Settings::default();
        let mut talk = Conversation::new();
        talk.user("read");
        reads(&mut talk, 0..6);
        let (mut pruned, first) = (Pruned::default(), talk.transcript());
        pruned.follow(&first);
        pruned.prune_until(&first, 9, &settings);
        let before = seen(&pruned, &first);
        assert_eq!(before[2], "[old output left out: read src/0.rs -> ok, 40 lines, 560 chars]");
        assert!(before[10].starts_with("fn part4"));
        reads(&mut talk, 6..9);
        let later = talk.transcript();
        pruned.follow(&later);
        assert_eq!(seen(&pruned, &later)[..before.len()], before);
        let plan = pruned.plan(&later);
        let cost: u64 = plan.project(&later).iter().map(|item| item.tokens()).sum();
        assert_eq!(cost, plan.estimated_tokens);
    }

    #[test]
    fn of_equal_results_the_newest_is_kept() {
        let mut talk = Conversation::new();
        talk.user("go");
        for id in ["a", "b", "c"] {
            talk.calls(&[(id, "ls", "{}")]).result(id, "ls", &"same\n".repeat(100));
        }
        let transcript = talk.transcript();
        let mut pruned = Pruned::default();
        pruned.follow(&transcript);
        pruned.prune_until(&transcript, 5, &Settings::default());
        let seen = seen(&pruned, &transcript);
        assert_eq!(seen[2], "[old output left out: ls; the same was printed again later]");
        assert_eq!(seen[4], seen[2]);
        assert!(seen[6].starts_with("same\n"));
    }

    #[test]
    fn arguments_stay_json_and_calls_keep_their_ids() {
        let long = format!(r#"{{"path":"a.rs","edits":[{{"new":"{}"}}]}}"#, "x".repeat(900));
        let mut talk = Conversation::new();
        talk.user("go").calls(&[("a", "edit", &long), ("b", "ls", "{}")]);
        talk.result("a", "edit", "ok").result("b", "ls", "ok").assistant("done");
        let transcript = talk.transcript();
        let mut pruned = Pruned::default();
        pruned.follow(&transcript);
        pruned.prune_until(&transcript, 4, &Settings::default());
        let plan = pruned.plan(&transcript);
        let ctxhost_engine_api::Action::ReplaceRaw { raw, .. } = &plan.ops[1].action else {
            panic!("{:?}", plan.ops);
        };
        let calls = Message::parse(raw, "").tool_calls();
        assert_eq!((calls[0].id.as_ref(), calls[1].id.as_ref()), ("a", "b"));
        let text = calls[0].arguments_value()["edits"][0]["new"].as_str().unwrap().to_owned();
        assert_eq!(text.chars().count(), 200);
        assert!(text.ends_with('…'));
        assert_eq!(ctxhost_engine_api::testing::plan_fault(&plan, &transcript), None);
    }

    #[test]
    fn decisions_follow_their_entries_into_a_new_epoch() {
        let mut talk = Conversation::new();
        talk.user("read");
        reads(&mut talk, 0..6);
        let before = talk.transcript();
        let mut pruned = Pruned::default();
        pruned.follow(&before);
        pruned.prune_until(&before, 9, &Settings::default());
        let line = seen(&pruned, &before)[8].clone();
        let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(1);
        for entry in before.range(7..13) {
            log.append(ctxhost_engine_api::transcript::log::NewEntry {
                id: entry.id().into(),
                parent_id: String::new(),
                timestamp_ms: 0,
                role: entry.role(),
                kind: entry.kind(),
                flags: Flags::default(),
                tokens: entry.tokens(),
                text: entry.text().into(),
                raw: entry.raw().into(),
                calls: entry.tool_calls().iter().map(|call| call.id.to_string()).collect(),
                answers: entry.tool_result().map(|result| result.call_id.to_string()),
            });
        }
        let after = log.snapshot();
        pruned.follow(&after);
        assert_eq!(seen(&pruned, &after)[1], line);
        assert!(!pruned.is_due(&after, 2, 1));
        assert!(pruned.is_due(&after, 4, 1));
    }
}

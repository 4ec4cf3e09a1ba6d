//! Compactions of every format: nothing of the history is lost, and the context is the agent's.

use ctxhost_session::{Record, RecordKind, Session};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::open::open_bytes;

/// A step of a talk; its place is its text.
#[derive(Clone, Debug)]
enum Step {
    Ask,
    Reply,
    /// A compaction that keeps so many of the newest messages.
    Compact(usize),
}

/// A message of a talk.
#[derive(Clone, Debug, PartialEq)]
struct TalkMessage {
    id: String,
    is_reply: bool,
    text: String,
}

/// Writes a talk in the format of an agent.
struct Writer {
    agent: &'static str,
    lines: Vec<Value>,
    /// All messages.
    messages: Vec<TalkMessage>,
    /// What the agent sees.
    context: Vec<TalkMessage>,
}

impl Writer {
    fn write(agent: &'static str, steps: &[Step]) -> Writer {
        let mut writer =
            Writer { agent, lines: Vec::new(), messages: Vec::new(), context: Vec::new() };
        let header = match agent {
            "codex" => json!({ "type": "session_meta", "payload": { "id": "t", "cwd": "/p" } }),
            "gemini-cli" => json!({ "sessionId": "t", "projectHash": "h" }),
            _ => Value::Null,
        };
        writer.lines.extend((!header.is_null()).then_some(header));
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Compact(kept) => writer.compact(number, *kept),
                _ => writer.add_message(number, matches!(step, Step::Reply)),
            }
        }
        writer
    }

    fn add_message(&mut self, number: usize, is_reply: bool) {
        let message =
            TalkMessage { id: format!("id{number:03}"), is_reply, text: format!("text {number}") };
        let (kind, role) = if is_reply { ("assistant", "assistant") } else { ("user", "user") };
        let line = match self.agent {
            "claude-code" => {
                let content = json!([{ "type": "text", "text": message.text }]);
                let parent = self.messages.last().map(|before| before.id.clone());
                json!({ "type": kind, "uuid": message.id, "parentUuid": parent,
                        "message": { "id": message.id, "role": role, "content": content } })
            }
            "codex" => self.codex_message(&message),
            "gemini-cli" => gemini_message(&message, &message.id),
            _ => json!({ "info": { "id": message.id, "role": role, "time": { "created": number } },
                         "parts": [{ "type": "text", "text": message.text }] }),
        };
        self.lines.push(line);
        self.messages.push(message.clone());
        self.context.push(message);
    }

    fn codex_message(&self, message: &TalkMessage) -> Value {
        let role = if message.is_reply { "assistant" } else { "user" };
        json!({ "type": "response_item", "payload": { "type": "message", "role": role,
                "content": [{ "type": "input_text", "text": message.text }] } })
    }

    fn compact(&mut self, number: usize, kept: usize) {
        // A file that begins with a compaction has nothing to replace.
        if self.messages.is_empty() {
            return;
        }
        let from = self.context.len().saturating_sub(kept);
        // Each agent keeps messages of the talk, not what it inserted earlier.
        let tail: Vec<TalkMessage> = self.context[from..]
            .iter()
            .filter(|message| self.messages.contains(message))
            .cloned()
            .collect();
        let summary = TalkMessage {
            id: format!("sum{number:03}"),
            is_reply: self.agent == "opencode",
            text: format!("summary {number}"),
        };
        match self.agent {
            "claude-code" => {
                let uuids: Vec<&String> = tail.iter().map(|message| &message.id).collect();
                self.lines.push(json!({ "type": "system", "subtype": "compact_boundary",
                    "uuid": format!("b{number}"), "compactMetadata": { "trigger": "auto",
                    "preservedMessages": { "uuids": uuids } } }));
                self.lines
                    .push(json!({ "type": "user", "uuid": summary.id, "isCompactSummary": true,
                    "message": { "role": "user", "content": summary.text } }));
            }
            "codex" => {
                let items = tail.iter().chain([&summary]);
                let items: Vec<Value> =
                    items.map(|message| self.codex_message(message)["payload"].clone()).collect();
                self.lines.push(json!({ "type": "compacted",
                    "payload": { "message": summary.text, "replacement_history": items } }));
            }
            "gemini-cli" => {
                let copies = tail
                    .iter()
                    .map(|message| gemini_message(message, &format!("{}-{number}", message.id)));
                let first = gemini_message(&summary, &summary.id);
                let messages: Vec<Value> = std::iter::once(first).chain(copies).collect();
                self.lines.push(json!({ "$set": { "messages": messages } }));
            }
            _ => {
                let start = tail.first().map(|message| message.id.clone());
                let marker = format!("mark{number:03}");
                self.lines.push(
                    json!({ "info": { "id": marker, "role": "user", "time": { "created": number } },
                    "parts": [{ "type": "compaction", "auto": true, "tail_start_id": start }] }),
                );
                self.lines.push(
                    json!({ "info": { "id": summary.id, "role": "assistant", "summary": true,
                    "parentID": marker, "time": { "created": number } },
                    "parts": [{ "type": "text", "text": summary.text }] }),
                );
            }
        }
        self.context = match self.agent {
            "codex" => tail.into_iter().chain([summary]).collect(),
            _ => std::iter::once(summary).chain(tail).collect(),
        };
    }

    fn bytes(&self) -> Vec<u8> {
        if self.agent == "opencode" {
            return json!({ "info": { "id": "ses_1" }, "messages": self.lines }).to_string().into();
        }
        self.lines.iter().map(|line| format!("{line}\n")).collect::<String>().into()
    }
}

fn gemini_message(message: &TalkMessage, id: &str) -> Value {
    let kind = if message.is_reply { "gemini" } else { "user" };
    json!({ "id": id, "type": kind, "content": message.text })
}

fn history(session: &Session) -> Vec<String> {
    let original = session.branch().into_iter().filter(|r| *r.kind() == RecordKind::Message);
    original.filter_map(|record| Some(record.to_entry()?.text)).collect()
}

fn context(session: &Session) -> Vec<String> {
    session.live(0).snapshot().iter().map(|entry| entry.text().to_owned()).collect()
}

fn texts(message: &[TalkMessage]) -> Vec<String> {
    message.iter().map(|message| message.text.clone()).collect()
}

const AGENTS: [&str; 4] = ["claude-code", "codex", "gemini-cli", "opencode"];

/// Replies of Codex without anything between them become one, so every other step is a request.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![4 => Just(None), 1 => (0..6_usize).prop_map(Some)];
    prop::collection::vec(step, 1..30).prop_map(|steps| {
        let turns = steps.into_iter().flat_map(|step| match step {
            None => vec![Step::Ask, Step::Reply],
            Some(kept) => vec![Step::Compact(kept)],
        });
        std::iter::once(Step::Ask).chain(turns).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_import_loses_no_text_and_has_the_context_of_the_agent(
        agent in prop::sample::select(AGENTS.as_slice()), steps in steps(),
    ) {
        let written = Writer::write(agent, &steps);
        let opened = open_bytes("t", &written.bytes()).unwrap();
        prop_assert_eq!(&opened.format, agent);
        prop_assert!(opened.problems.is_empty(), "{:?}", opened.problems);
        prop_assert_eq!(history(&opened.session), texts(&written.messages));
        prop_assert_eq!(context(&opened.session), texts(&written.context));
        // The session is one of Pi: written to a file, it reads the same.
        let again = Session::parse("t", &opened.session.to_bytes()).unwrap();
        prop_assert_eq!(context(&again), texts(&written.context));
    }

    #[test]
    fn a_damaged_recording_is_no_panic_and_keeps_its_projections(
        agent in prop::sample::select(AGENTS.as_slice()), steps in steps(),
        at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>(),
    ) {
        let mut bytes = Writer::write(agent, &steps).bytes();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(length - cut % (length / 2).max(1));
        if let Ok(opened) = open_bytes("t", &bytes) {
            let compactions = opened.session.branch().into_iter().filter(|r| r.compaction().is_some());
            for id in compactions.map(Record::id) {
                prop_assert!(opened.session.live_at(id).is_ok());
            }
        }
    }
}

#[test]
fn pi_reads_a_kept_tail_by_its_first_record() {
    let written =
        Writer::write("claude-code", &[Step::Ask, Step::Reply, Step::Ask, Step::Compact(2)]);
    let session = open_bytes("t", &written.bytes()).unwrap().session;
    let branch = session.branch();
    let compaction: Value = serde_json::from_str(branch.last().unwrap().line()).unwrap();
    let tail = branch.iter().find(|record| record.line().contains("text 1")).unwrap();
    assert_eq!(compaction["firstKeptEntryId"], tail.id());
    assert_eq!(compaction["summary"], "summary 3");
    assert_eq!(compaction["details"]["ctxhost"]["engine"], "claude-code");
}

#[test]
fn compactions_of_openclaw_and_of_the_first_version_of_pi() {
    let openclaw = concat!(
        r#"{"type":"session","version":3,"id":"o","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/p"}"#,
        "\n",
        r#"{"type":"message","id":"a1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"one"}}"#,
        "\n",
        r#"{"type":"message","id":"a2","parentId":"a1","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"two"}}"#,
        "\n",
        r#"{"type":"compaction","id":"c1","parentId":"a2","timestamp":"2026-01-01T00:00:03.000Z","summary":"so far","firstKeptEntryId":"a2","tokensBefore":90,"tokensAfter":9,"fromHook":true}"#,
        "\n",
    );
    let session = open_bytes("t", openclaw.as_bytes()).unwrap().session;
    assert_eq!(context(&session)[1..], ["two"]);
    let recorded = session.branch().last().unwrap().compaction().unwrap();
    assert_eq!((recorded.tokens_before, recorded.tokens_after), (90, Some(9)));

    let first_version = concat!(
        r#"{"type":"session","id":"p","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/p"}"#,
        "\n",
        r#"{"type":"message","timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"one"}}"#,
        "\n",
        r#"{"type":"message","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"two"}}"#,
        "\n",
        r#"{"type":"compaction","timestamp":"2026-01-01T00:00:03.000Z","summary":"so far","firstKeptEntryIndex":2,"tokensBefore":90}"#,
        "\n",
    );
    let session = open_bytes("t", first_version.as_bytes()).unwrap().session;
    assert_eq!(context(&session)[1..], ["two"]);
}

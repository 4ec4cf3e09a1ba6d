//! Tests of histories: what is restored, undone or exported equals the original.

mod bisecting;
mod exporting;
mod forking;
mod losing;
mod restoring;
mod undoing;

use ctxhost_engine_api::testing::generate;
use ctxhost_engine_api::{Plan, Role, Transcript};
use proptest::prelude::*;
use serde_json::{Value, json};

use ctxhost_session::{NewCompaction, RecordBody, Session, SessionHeader};

fn memory() -> Session {
    Session::in_memory(SessionHeader::new(Some("test"), "/home/dev/app", 1_000))
}

fn say(session: &mut Session, message: Value) -> String {
    session.append_at(RecordBody::message(&message.to_string()).unwrap(), 1_000).unwrap()
}

fn user(session: &mut Session, text: &str) -> String {
    say(session, json!({ "role": "user", "content": text }))
}

/// A turn that calls a tool: its question, call, result and answer.
fn turn(session: &mut Session, number: usize, result: &str) -> [String; 4] {
    let call = json!({ "type": "toolCall", "id": format!("c{number}"), "name": "read",
        "arguments": { "path": format!("src/file_{number}.rs") } });
    [
        user(session, &format!("question {number}")),
        say(session, json!({ "role": "assistant", "content": [call] })),
        say(
            session,
            json!({ "role": "toolResult", "toolCallId": format!("c{number}"), "toolName": "read",
                "content": [{ "type": "text", "text": result }] }),
        ),
        say(
            session,
            json!({ "role": "assistant",
                "content": [{ "type": "text", "text": format!("answer {number}") }] }),
        ),
    ]
}

/// Compacts all but the last `kept` entries into a summary.
fn fold(session: &mut Session, kept: u64, summary: &str) -> String {
    fold_without(session, &[], kept, summary)
}

/// The same for what the session would be without these compactions.
fn fold_without(session: &mut Session, ignored: &[String], kept: u64, summary: &str) -> String {
    let view = session.live_without(ignored, 0).snapshot();
    let from = view.len() as u64 - kept;
    let mut plan = Plan::default();
    plan.insert(Role::User, summary, 0..from).keep(from..view.len() as u64);
    compact_view(session, &plan, &view, ignored)
}

fn compact(session: &mut Session, plan: &Plan) -> String {
    let view = session.live(0).snapshot();
    compact_view(session, plan, &view, &[])
}

fn compact_view(
    session: &mut Session,
    plan: &Plan,
    view: &Transcript,
    ignored: &[String],
) -> String {
    let compaction = NewCompaction {
        plan,
        view,
        tokens_before: view.total_tokens(),
        tokens_after: 7,
        engine: "window".to_owned(),
        engine_version: "0.1.0".to_owned(),
        trigger: "manual".to_owned(),
        timestamp_ms: Some(9_000),
        ignored,
        extra_details: Value::Null,
    };
    session.compact(compaction).unwrap()
}

fn texts(session: &Session) -> Vec<String> {
    session.live(0).snapshot().iter().map(|entry| entry.text().to_owned()).collect()
}

/// Conversations with compactions in between: any that the contract's generator makes, folded at any
/// place.
fn sessions() -> impl Strategy<Value = Session> {
    let part = (generate::transcripts(), prop::option::of(0..4_u64));
    prop::collection::vec(part, 1..4).prop_map(|parts| {
        let mut session = memory();
        for (talk, kept) in parts {
            for body in talk.entries.iter().filter_map(|e| RecordBody::message(&e.raw).ok()) {
                session.append_at(body, 1_000).unwrap();
            }
            if let Some(kept) = kept.filter(|_| !session.live(0).is_empty()) {
                let live = session.live(0).len() as u64;
                fold(&mut session, kept.min(live), "what went before");
            }
        }
        session
    })
}

//! Tests of sessions, by situation.

mod branches;
mod compaction;
mod damage;
mod durability;
mod faults;
mod faulty_disk;
mod format;
mod fsck;
mod older_versions;
mod opening;
mod path_check;
mod pending;
mod repair;
mod results;
mod round_trip;
mod undo;
mod written_by_pi;

use std::path::PathBuf;

use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::{EntryKind, Flags, Role};

use super::{RecordBody, Session, SessionHeader};

/// One entry of a live transcript, to compare whole.
#[derive(Debug, PartialEq)]
struct Seen {
    id: String,
    parent: String,
    role: Role,
    kind: EntryKind,
    flags: Flags,
    tokens: u64,
    timestamp_ms: i64,
    text: String,
    raw: String,
    frame: u64,
}

fn seen(log: &TranscriptLog) -> Vec<Seen> {
    let see = |entry: ctxhost_engine_api::Entry<'_>| Seen {
        id: entry.id().to_owned(),
        parent: entry.parent_id().to_owned(),
        role: entry.role(),
        kind: entry.kind(),
        flags: entry.flags(),
        tokens: entry.tokens(),
        timestamp_ms: entry.timestamp_ms(),
        text: entry.text().to_owned(),
        raw: entry.raw().to_owned(),
        frame: entry.frame(),
    };
    log.snapshot().iter().map(see).collect()
}

fn texts(session: &Session) -> Vec<String> {
    seen(&session.live(0)).into_iter().map(|entry| entry.text).collect()
}

/// Recorded sessions outside this repository, or `None`, with a message.
#[allow(clippy::print_stderr)] // A skipped test has no other way to report it.
fn fixtures() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let folder = std::env::var_os("CTXHOST_FIXTURES").map_or(beside, PathBuf::from).join("pi");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no recorded sessions; set CTXHOST_FIXTURES to the folder that holds `pi`");
    None
}

/// A folder in memory where the machine has one: many small sessions would wait long for a disk.
fn quick_folder() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn memory() -> Session {
    Session::in_memory(SessionHeader::new(Some("test"), "/home/dev", 1_000))
}

fn user(text: &str) -> RecordBody {
    message(serde_json::json!({ "role": "user", "content": text }))
}

fn assistant(text: &str) -> RecordBody {
    let content = serde_json::json!([{ "type": "text", "text": text }]);
    message(serde_json::json!({
        "role": "assistant", "content": content, "provider": "p", "model": "m", "stopReason": "stop",
    }))
}

fn message(value: serde_json::Value) -> RecordBody {
    RecordBody::message(&value.to_string()).unwrap()
}

/// A session of user messages, numbered from 1.
fn talk(session: &mut Session, messages: usize) {
    for number in 1..=messages {
        session.append_at(user(&format!("message {number}")), 1_000 + number as i64).unwrap();
    }
}

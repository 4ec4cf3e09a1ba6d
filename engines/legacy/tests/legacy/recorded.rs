//! A recorded coding session: every turn fits and compactions are rare.

use std::path::{Path, PathBuf};

use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{
    Action, AssembleRequest, CompactRequest, Compaction, EntryKind, Flags, Message, ModelRef, Role,
    Transcript,
};
use serde_json::{Value, json};

use crate::fixtures::{assemble, compact, engine, offline};

const WINDOW_TOKENS: u64 = 64_000;
/// As a host computes it: window less reserve, divided by the margin.
const BUDGET_TOKENS: u64 = 40_000;

#[test]
fn a_recorded_coding_session_runs_through_all_layers() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let folder = std::env::var_os("CTXHOST_FIXTURES").map_or_else(beside, PathBuf::from);
    let path = folder.join("pi/before-compaction.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        report(&format!(
            "SKIPPED: no recorded session at {}; set CTXHOST_FIXTURES",
            path.display()
        ));
        return;
    };
    let engine = engine(&offline(), &json!({}));
    let mut log = TranscriptLog::new(0);
    let mut compactions = 0;
    for entry in entries(&text) {
        let is_request = matches!(entry.role, Role::User | Role::Tool);
        log.append(entry);
        if !is_request {
            continue;
        }
        let model = ModelRef { window_tokens: WINDOW_TOKENS, ..ModelRef::default() };
        let request =
            AssembleRequest { budget: BUDGET_TOKENS, model: model.clone(), ..Default::default() };
        let snapshot = log.snapshot();
        let plan = assemble(&engine, &snapshot, request).unwrap();
        if plan.estimated_tokens <= BUDGET_TOKENS {
            continue;
        }
        let request = CompactRequest {
            budget: BUDGET_TOKENS,
            attempt: 1,
            current_tokens: snapshot.total_tokens(),
            model,
            ..CompactRequest::default()
        };
        let Ok(Compaction::Plan(plan)) = compact(&engine, &snapshot, request) else { panic!() };
        log = applied(&snapshot, &plan);
        compactions += 1;
        let after = log.total_tokens();
        assert!(after <= BUDGET_TOKENS * 95 / 100, "compaction {compactions} left {after}");
        let summaries =
            log.snapshot().iter().filter(|e| e.kind() == EntryKind::CompactionSummary).count();
        assert!(summaries <= 2, "summaries are merged, not piled up");
        if std::env::var_os("SHOW_SUMMARIES").is_some() {
            let snapshot = log.snapshot();
            let summaries = snapshot.iter().filter(|e| e.kind() == EntryKind::CompactionSummary);
            summaries
                .for_each(|entry| report(&format!("--- {compactions}: {after}\n{}", entry.text())));
        }
    }
    assert!((10..40).contains(&compactions), "{compactions} compactions");
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn report(text: &str) {
    eprintln!("{text}");
}

/// The messages of a session file of version 1, in file order.
fn entries(text: &str) -> impl Iterator<Item = NewEntry> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let line: Value = serde_json::from_str(line).unwrap();
        let message = line.get("message")?;
        let raw = message.to_string();
        let parsed = Message::parse(&raw, "");
        let role = match parsed.role.as_ref() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "toolResult" => Role::Tool,
            _ => return None,
        };
        let is_error = message["isError"] == json!(true);
        Some(NewEntry {
            id: format!("{at:08x}"),
            parent_id: String::new(),
            timestamp_ms: 0,
            role,
            kind: EntryKind::Message,
            flags: if is_error {
                Flags::ERROR
            } else if at == 1 {
                Flags::PINNED
            } else {
                Flags::default()
            },
            tokens: tokens::message(&parsed),
            text: parsed.text(),
            calls: parsed.clone().tool_calls().iter().map(|call| call.id.to_string()).collect(),
            answers: message["toolCallId"].as_str().map(str::to_owned),
            raw,
        })
    })
}

/// Applies a plan like a host: a new epoch.
fn applied(transcript: &Transcript, plan: &ctxhost_engine_api::Plan) -> TranscriptLog {
    let mut log = TranscriptLog::new(transcript.epoch() + 1);
    for op in &plan.ops {
        match &op.action {
            Action::Keep(range) => {
                for entry in transcript.range(range.clone()) {
                    log.append(copied(&entry, None));
                }
            }
            Action::ReplaceText { seq, text } => {
                let entry = transcript.get(*seq).unwrap();
                log.append(copied(&entry, Some(text)));
            }
            Action::Insert { text, .. } => {
                let raw =
                    json!({"type": "compaction", "summary": text, "details": plan.extras.details});
                log.append(NewEntry {
                    id: format!("s{}-{}", transcript.epoch(), log.len()),
                    parent_id: String::new(),
                    timestamp_ms: 0,
                    role: Role::User,
                    kind: EntryKind::CompactionSummary,
                    flags: Flags::SYNTHETIC,
                    tokens: tokens::estimate(text),
                    text: text.clone(),
                    raw: raw.to_string(),
                    calls: vec![],
                    answers: None,
                });
            }
            _ => {}
        }
    }
    log
}

fn copied(entry: &ctxhost_engine_api::Entry<'_>, text: Option<&str>) -> NewEntry {
    let derived =
        Flags::TOOL_CALLS.with(Flags::UNANSWERED).with(Flags::DISPLACED).with(Flags::ORPHAN);
    NewEntry {
        id: entry.id().to_owned(),
        parent_id: String::new(),
        timestamp_ms: 0,
        role: entry.role(),
        kind: entry.kind(),
        flags: entry.flags().without(derived),
        tokens: text.map_or(entry.tokens(), tokens::estimate),
        text: text.unwrap_or(entry.text()).to_owned(),
        raw: entry.raw().to_owned(),
        calls: entry.tool_calls().iter().map(|call| call.id.to_string()).collect(),
        answers: entry.tool_result().map(|result| result.call_id.to_string()),
    }
}

//! Fixtures: the engine on a scripted host, and a session worth a summary.

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{
    Action, AssembleRequest, CompactRequest, Compaction, Completion, EngineError, EntryKind,
    ErrorKind, Flags, Message, ModelRef, Plan, Result, Role, Transcript, capability,
};
use ctxhost_engine_kit::summary::HEADINGS;
use ctxhost_engine_legacy::LegacyEngine;
use serde_json::{Value, json};

/// A host without a model.
pub(crate) fn offline() -> ScriptedHost {
    let host = ScriptedHost::new();
    host.set_capabilities(&[capability::KV, capability::PROMPT_CACHE]);
    host
}

/// A host whose model gives these answers, the last one repeatedly.
pub(crate) fn answering(answers: Vec<Result<String>>) -> ScriptedHost {
    let host = ScriptedHost::new();
    let completion = |text| Completion { text, model: "scripted".into(), ..Completion::default() };
    let last = answers.last().cloned();
    for answer in answers.into_iter().chain((0..40).filter_map(|_| last.clone())) {
        host.script(answer.map(completion));
    }
    host
}

pub(crate) fn failing(kind: ErrorKind) -> Result<String> {
    Err(EngineError::new(kind, "scripted failure"))
}

pub(crate) fn engine(host: &ScriptedHost, config: &Value) -> EngineHandle {
    EngineFactory::linked::<LegacyEngine>().create(Arc::new(host.clone()), config).unwrap()
}

pub(crate) fn assemble(
    engine: &EngineHandle,
    transcript: &Transcript,
    request: AssembleRequest,
) -> Result<Plan> {
    block_on(engine.assemble(transcript.clone(), request))
}

pub(crate) fn compact(
    engine: &EngineHandle,
    transcript: &Transcript,
    request: CompactRequest,
) -> Result<Compaction> {
    block_on(engine.compact(transcript.clone(), request))
}

pub(crate) fn planned(
    engine: &EngineHandle,
    transcript: &Transcript,
    request: CompactRequest,
) -> Plan {
    match compact(engine, transcript, request) {
        Ok(Compaction::Plan(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

/// A compaction to `budget` tokens in a window a quarter larger.
pub(crate) fn request(budget: u64, attempt: u32) -> CompactRequest {
    CompactRequest {
        budget,
        attempt,
        reserve_tokens: 20_000,
        model: ModelRef { window_tokens: budget * 5 / 4, ..ModelRef::default() },
        ..CompactRequest::default()
    }
}

/// The same in a window that fits everything into one request.
pub(crate) fn in_one_request(budget: u64) -> CompactRequest {
    let mut request = request(budget, 1);
    request.model.window_tokens = 200_000;
    request
}

/// A session of several turns with tools, about 300 tokens a turn.
pub(crate) fn session(turns: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for turn in 0..turns {
        let path = format!(r#"{{"path": "/srv/app/module_{turn}.rs"}}"#);
        talk.user(&format!(
            "Please fix bug {turn} in /srv/app/module_{turn}.rs. Never touch the schema."
        ));
        talk.calls(&[("a", "read", &path)]).result("a", "read", &"fn main() {}\n".repeat(60));
        talk.calls(&[("b", "edit", &path)]).failure("b", "edit", "no such file");
        talk.assistant(&format!(
            "I fixed bug {turn} by adding a guard instead of a lock. Next step: tests."
        ));
    }
    talk
}

/// A summary that passes the quality guard for the session above.
pub(crate) fn good_summary(turns: usize) -> String {
    let paths: Vec<String> = (0..turns).map(|turn| format!("/srv/app/module_{turn}.rs")).collect();
    let bodies = [
        "guards, no locks",
        "tests",
        "never touch the schema",
        "(answered) fix bug in module",
        &paths.join("\n- "),
    ];
    let section = |(heading, body): (&str, &str)| format!("{heading}\n- {body}");
    HEADINGS.into_iter().zip(bodies).map(section).collect::<Vec<_>>().join("\n\n")
}

/// The summaries that a plan inserts.
pub(crate) fn summaries(plan: &Plan) -> Vec<&str> {
    let text = |action: &'_ Action| matches!(action, Action::Insert { .. });
    let inserted = plan.ops.iter().filter(|op| text(&op.action));
    inserted
        .map(|op| match &op.action {
            Action::Insert { text, .. } => text.as_str(),
            _ => "",
        })
        .collect()
}

/// The writer of the first summary.
pub(crate) fn writer(plan: &Plan) -> &str {
    let op = plan.ops.iter().find(|op| matches!(op.action, Action::Insert { .. })).unwrap();
    op.note.as_ref().unwrap().detail.rsplit_once(", ").unwrap().1
}

/// The summary of an earlier compaction with its details.
pub(crate) fn earlier_summary(talk: &mut TranscriptBuilder, text: &str, details: &Value) {
    let raw = json!({"type": "compaction", "summary": text, "details": details}).to_string();
    let id = format!("summary-{}", talk.len());
    talk.push(NewEntry {
        id,
        parent_id: String::new(),
        timestamp_ms: 1,
        role: Role::User,
        kind: EntryKind::CompactionSummary,
        flags: Flags::SYNTHETIC,
        tokens: tokens::message(&Message::parse(&raw, text)),
        text: text.to_owned(),
        raw,
        calls: vec![],
        answers: None,
    });
}

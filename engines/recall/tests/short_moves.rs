//! Short moves of the window: the head stays, and nothing that has to be shown is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on, plan_fault};
use ctxhost_engine_api::{Action, AssembleRequest, Plan};
use ctxhost_engine_recall::RecallEngine;

const BUDGET: u64 = 4_000;

fn create(host: &ScriptedHost) -> EngineHandle {
    let engine = EngineFactory::linked::<RecallEngine>();
    engine.create(Arc::new(host.clone()), &json!({})).unwrap()
}

fn assemble(engine: &EngineHandle, talk: &TranscriptBuilder) -> Plan {
    let request = AssembleRequest { budget: BUDGET, ..AssembleRequest::default() };
    let plan = block_on(engine.assemble(talk.transcript(), request)).unwrap();
    assert_eq!(plan_fault(&plan, &talk.transcript()), None);
    assert!(plan.estimated_tokens <= BUDGET, "{}", plan.estimated_tokens);
    plan
}

/// A call and its result with names of its own.
fn work(talk: &mut TranscriptBuilder, step: u64) {
    let id = format!("call-{step}");
    let path = format!(r#"{{"path":"src/part{step}.rs"}}"#);
    talk.calls(&[(&id, "read", &path)]);
    talk.result(&id, "read", &format!("fn reads_part{step}() uses lib/dep{step}.rs ").repeat(20));
}

/// The text that follows the instructions.
fn head(plan: &Plan) -> String {
    let texts = plan.ops.iter().filter_map(|op| match &op.action {
        Action::Insert { text, .. } => Some(text.clone()),
        _ => None,
    });
    texts.into_iter().next().unwrap_or_default()
}

/// Where the newest entries begin.
fn tail_start(plan: &Plan) -> u64 {
    let dropped = plan.ops.iter().filter_map(|op| match &op.action {
        Action::Drop(range) => Some(range.end),
        _ => None,
    });
    dropped.max().unwrap_or(0)
}

#[test]
fn most_moves_keep_the_head_and_all_show_the_newest_names() {
    let (host, mut talk) = (ScriptedHost::new(), TranscriptBuilder::new());
    let engine = create(&host);
    talk.user("Read every part of the parser.");
    let (mut heads, mut starts) = (BTreeSet::new(), BTreeSet::new());
    for step in 0..120 {
        work(&mut talk, step);
        let plan = assemble(&engine, &talk);
        let start = tail_start(&plan);
        if start > 0 && starts.insert(start) {
            heads.insert(head(&plan));
        }
        if start > 0 {
            let transcript = talk.transcript();
            let texts = plan.project(&transcript).into_iter().map(|item| item.text().into_owned());
            let text: String = texts.collect();
            let hidden = transcript.get(start).unwrap().tool_calls()[0].arguments.to_string();
            let number: u64 =
                hidden.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
            assert!(text.contains(&format!("src/part{}.rs", number - 1)), "step {step}: {text}");
        }
    }
    assert!(
        starts.len() >= 10 && heads.len() * 3 <= starts.len(),
        "{} {}",
        heads.len(),
        starts.len()
    );
    // A restart continues with the stored layout.
    work(&mut talk, 120);
    assert_eq!(assemble(&create(&host), &talk), assemble(&engine, &talk));
}

#[test]
fn a_rule_that_leaves_the_newest_entries_is_still_shown() {
    let (host, mut talk) = (ScriptedHost::new(), TranscriptBuilder::new());
    let engine = create(&host);
    talk.user("Read every part of the parser.");
    for step in 0..160 {
        if matches!(step % 20, 10..=12) {
            talk.assistant("Go on?");
            let more = "and then read on, as before, with all parts in their order, ".repeat(18);
            talk.user(&format!("Never touch the folder zone{step}. Thanks; {more}please."));
        }
        work(&mut talk, step);
        let plan = assemble(&engine, &talk);
        let text: String = plan
            .project(&talk.transcript())
            .into_iter()
            .map(|item| item.text().into_owned())
            .collect();
        for stated in (0..=step).filter(|step| matches!(step % 20, 10..=12)) {
            let rule = format!("Never touch the folder zone{stated}.");
            assert!(text.contains(&rule), "{rule} at step {step}");
        }
    }
}

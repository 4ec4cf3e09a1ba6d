//! The document of the format keeps step with the code.

use ctxhost_engine_api::Plan;
use serde_json::{Value, json};

use super::*;
use crate::{NewCompaction, RecordKind};

const FORMAT: &str = include_str!("../FORMAT.md");

fn check_named(word: &str) {
    assert!(FORMAT.contains(&format!("`{word}`")), "FORMAT.md does not mention `{word}`");
}

#[test]
fn every_kind_of_record_is_described() {
    RecordKind::KNOWN.iter().for_each(|name| check_named(name));
    check_named("session");
}

/// All names of fields in a value, engine and host details excepted: these are not ours.
fn names(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.push(name.clone());
                if !name.ends_with("Details") {
                    names(value, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_that_is_written_is_described() {
    let mut session = memory();
    let bodies = [
        user("x"),
        RecordBody::model_change("p", "m"),
        RecordBody::thinking_level_change("off"),
        RecordBody::custom("state", &json!(1)),
        RecordBody::custom_message("note", "x", true),
        RecordBody::branch_summary("x", "x"),
        RecordBody::label("x", Some("y")),
        RecordBody::session_info("x"),
    ];
    for body in bodies {
        session.append(body).unwrap();
    }
    talk(&mut session, 5);
    let view = session.live(0).snapshot();
    let mut plan = Plan::default();
    plan.keep(0..1).insert(Role::User, "s", 1..2).insert(Role::Assistant, "t", 2..3);
    plan.replace_text(4, "x").replace_raw(5, r#"{"role":"user","content":"x"}"#).keep(6..8);
    plan.extras.details = json!({ "readFiles": [], "modifiedFiles": [] });
    let compaction = NewCompaction {
        plan: &plan,
        view: &view,
        tokens_before: 2,
        tokens_after: 1,
        engine: "e".to_owned(),
        engine_version: "1".to_owned(),
        trigger: "manual".to_owned(),
        timestamp_ms: None,
        ignored: &[],
        extra_details: json!({ "a": 1 }),
    };
    session.compact(compaction).unwrap();
    let header = SessionHeader::new(None, "/", 0).with_parent_session("other.jsonl");
    let mut found = Vec::new();
    names(&serde_json::from_str(header.line()).unwrap(), &mut found);
    for record in session.records() {
        names(&serde_json::from_str(record.line()).unwrap(), &mut found);
    }
    for item in ["keep", "keepRange", "retell", "rewrite", "insert"] {
        assert!(found.iter().any(|name| name == item), "the test writes no `{item}`");
    }
    found.iter().for_each(|name| check_named(name));
}

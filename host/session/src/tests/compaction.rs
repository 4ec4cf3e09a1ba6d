//! Compactions: by Pi's rule, and by the projection that ctxhost recorded.

use ctxhost_engine_api::{Plan, PlanItem, Transcript};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{NewCompaction, RecordKind, SessionError};

pub(super) fn compact(
    session: &mut Session,
    build: impl Fn(&mut Plan),
) -> Result<String, SessionError> {
    let view = session.live(0).snapshot();
    let mut plan = Plan::default();
    build(&mut plan);
    session.compact(NewCompaction::of_tests(&plan, &view))
}

pub(super) fn reopened(session: &Session) -> Session {
    let again = Session::parse("again", &session.to_bytes()).unwrap();
    assert_eq!(again.problems(), []);
    again
}

fn written(session: &Session, id: &str) -> Value {
    serde_json::from_str(session.record(id).unwrap().line()).unwrap()
}

/// What Pi would show: the session as if ctxhost had left no details.
fn as_pi_reads(session: &Session) -> Vec<String> {
    let bytes = String::from_utf8(session.to_bytes()).unwrap();
    texts(&Session::parse("pi", bytes.replace("\"ctxhost\"", "\"ignored\"").as_bytes()).unwrap())
}

#[test]
fn a_projection_comes_back_exactly() {
    let mut session = memory();
    talk(&mut session, 6);
    let id = compact(&mut session, |plan| {
        plan.keep(0..1).insert(Role::User, "what happened", 1..3).keep(3..4);
        plan.replace_text(4, "shorter").keep(5..6);
    })
    .unwrap();
    assert_eq!(
        texts(&session),
        ["message 1", "what happened", "message 4", "shorter", "message 6"]
    );
    let live = seen(&session.live(1));
    assert_eq!(live[1].id, format!("{id}#0"));
    assert_eq!((live[1].kind, live[1].role), (EntryKind::CompactionSummary, Role::User));
    assert!(live[1].flags.contains(Flags::SYNTHETIC));
    assert!(live[0].flags.contains(Flags::PINNED));
    assert!(live[3].flags.contains(Flags::REPLACED));
    assert_eq!(live[3].id, session.records()[4].id());
    assert_eq!(seen(&reopened(&session).live(1)), live);
    assert_eq!(session.records().len(), 7, "nothing is deleted");
    assert_eq!(session.records()[4].to_entry().unwrap().text, "message 5");
}

#[test]
fn pi_finds_the_summary_and_the_tail() {
    let mut session = memory();
    talk(&mut session, 6);
    let fourth = session.records()[3].id().to_owned();
    let id = compact(&mut session, |plan| {
        plan.keep(0..1).insert(Role::User, "one", 1..2).insert(Role::User, "two", 2..3).keep(3..6);
    })
    .unwrap();
    let line = written(&session, &id);
    assert_eq!(line["summary"], "one\n\ntwo");
    assert_eq!(line["firstKeptEntryId"], fourth);
    assert_eq!(line["tokensBefore"], 18);
    let pi = as_pi_reads(&session);
    assert!(pi[0].contains("\none\n\ntwo\n</summary>"), "{}", pi[0]);
    assert_eq!(pi[1..], ["message 4", "message 5", "message 6"]);
}

#[test]
fn a_compaction_that_keeps_nothing_names_itself() {
    let mut session = memory();
    talk(&mut session, 2);
    let id = compact(&mut session, |plan| {
        plan.insert(Role::Assistant, "all of it", 0..2);
    })
    .unwrap();
    assert_eq!(written(&session, &id)["firstKeptEntryId"], id);
    let live = seen(&reopened(&session).live(0));
    assert_eq!(
        (live.len(), live[0].role, live[0].text.as_str()),
        (1, Role::Assistant, "all of it")
    );
    assert_eq!(as_pi_reads(&session).len(), 1);
}

#[test]
fn a_compaction_without_a_summary_has_a_fixed_text() {
    let mut session = memory();
    talk(&mut session, 4);
    let id = compact(&mut session, |plan| {
        plan.keep(2..4);
    })
    .unwrap();
    let summary = written(&session, &id)["summary"].as_str().unwrap().to_owned();
    assert!(summary.contains("window 0.1.0") && summary.contains("2 of 4 entries"), "{summary}");
    assert_eq!(texts(&session), ["message 3", "message 4"]);
}

#[test]
fn an_older_summary_stays_for_both_readers() {
    let mut session = memory();
    talk(&mut session, 3);
    let first = compact(&mut session, |plan| {
        plan.insert(Role::User, "older", 0..2).keep(2..3);
    })
    .unwrap();
    talk(&mut session, 2);
    let second = compact(&mut session, |plan| {
        plan.keep(0..1).replace_text(1, "brief").keep(2..4);
    })
    .unwrap();
    let live = seen(&reopened(&session).live(0));
    assert_eq!(live[0].id, format!("{first}#0"));
    let expected = ["older", "brief", "message 1", "message 2"];
    assert_eq!(live.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!(written(&session, &second)["summary"], "older");

    session.append(user("next")).unwrap();
    compact(&mut session, |plan| {
        plan.keep(0..2).keep(3..5);
    })
    .unwrap();
    assert_eq!(texts(&reopened(&session)), ["older", "brief", "message 2", "next"]);
    let pi = as_pi_reads(&session);
    assert!(pi[0].contains("older"));
    assert_eq!(pi[1..], ["message 2", "next"], "nothing comes back that was left out");
}

#[test]
fn what_the_engine_and_the_host_add_is_kept() {
    let mut session = memory();
    talk(&mut session, 2);
    let view = session.live(0).snapshot();
    let mut plan = Plan::default();
    plan.insert(Role::User, "s", 0..1).keep(1..2);
    plan.extras.details = json!({ "readFiles": ["a.rs"], "modifiedFiles": ["b.rs"], "parts": 2 });
    let extra_details = json!({ "attempt": 1 });
    let id = session
        .compact(NewCompaction { extra_details, ..NewCompaction::of_tests(&plan, &view) })
        .unwrap();
    let details = &written(&session, &id)["details"];
    assert_eq!(details["readFiles"], json!(["a.rs"]));
    assert_eq!(details["modifiedFiles"], json!(["b.rs"]));
    assert_eq!(details["ctxhost"]["engineDetails"]["parts"], 2);
    assert_eq!(details["ctxhost"]["hostDetails"]["attempt"], 1);
    assert_eq!(details["ctxhost"]["tokensAfter"], 7);
}

#[test]
fn a_plan_that_does_not_fit_is_refused_and_writes_nothing() {
    let mut session = memory();
    talk(&mut session, 3);
    let before = session.to_bytes();
    let refused = |session: &mut Session, build: fn(&mut Plan)| {
        assert!(matches!(compact(session, build), Err(SessionError::Plan { .. })));
    };
    refused(&mut session, |plan| {
        plan.keep(0..9);
    });
    refused(&mut session, |plan| {
        plan.keep(2..3).keep(0..1);
    });
    refused(&mut session, |plan| {
        plan.keep(0..2).replace_text(1, "twice");
    });
    refused(&mut session, |plan| {
        plan.insert(Role::System, "no", 0..1);
    });

    let mut other = memory();
    talk(&mut other, 2);
    let view = other.live(0).snapshot();
    let first = session.records()[0].id().to_owned();
    session.set_leaf(&first).unwrap();
    let plan = Plan::keep_all(2);
    assert!(matches!(
        session.compact(NewCompaction::of_tests(&plan, &view)),
        Err(SessionError::Plan { .. })
    ));
    assert_eq!(session.to_bytes(), before);
}

#[test]
fn a_projection_that_names_nothing_known_falls_back_to_the_rule() {
    let mut session = memory();
    talk(&mut session, 3);
    compact(&mut session, |plan| {
        plan.insert(Role::User, "short", 0..2).keep(2..3);
    })
    .unwrap();
    let third = session.records()[2].id().to_owned();
    let bytes = String::from_utf8(session.to_bytes()).unwrap();
    let damaged = bytes.replace(&format!("{{\"keep\":\"{third}\"}}"), "{\"keep\":\"gone\"}");
    let texts = texts(&Session::parse("damaged", damaged.as_bytes()).unwrap());
    assert!(texts[0].contains("\nshort\n"));
    assert_eq!(texts[1..], ["message 3"]);
}

/// A compaction as Pi writes it.
pub(super) fn by_pi(session: &mut Session, first_kept: &str, more: Value) -> String {
    let mut value = json!({ "type": "compaction", "summary": "by pi", "firstKeptEntryId": first_kept, "tokensBefore": 1 });
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    session.append(RecordBody::from_value(&value).unwrap()).unwrap()
}

#[test]
fn pis_own_rule_holds_for_its_compactions() {
    let mut session = memory();
    talk(&mut session, 3);
    let ids: Vec<String> = session.records().iter().map(|record| record.id().to_owned()).collect();
    by_pi(&mut session, &ids[2], json!({}));
    session.append(user("after")).unwrap();
    assert_eq!(texts(&session)[1..], ["message 3", "after"]);
    by_pi(&mut session, &ids[1], json!({}));
    let now = texts(&session);
    assert!(now[0].contains("by pi") && now[0].contains("trust=\"untrusted\""));
    assert_eq!(now[1..], ["message 2", "message 3", "after"], "older compactions add nothing");
    by_pi(&mut session, "nowhere", json!({}));
    assert_eq!(texts(&session).len(), 1);
}

#[test]
fn a_checkpoint_replaces_earlier_system_messages() {
    let mut session = memory();
    let system =
        session.append(message(json!({ "role": "system", "content": "old rules" }))).unwrap();
    talk(&mut session, 1);
    by_pi(
        &mut session,
        &system,
        json!({ "systemMessage": { "role": "system", "content": "all rules" } }),
    );
    let live = seen(&session.live(0));
    assert_eq!(live[0].text, "all rules");
    assert!(live[0].flags.contains(Flags::PINNED) && live[0].role == Role::System);
    assert_eq!(live[1].kind, EntryKind::CompactionSummary);
    assert_eq!((live.len(), live[2].text.as_str()), (3, "message 1"));

    compact(&mut session, |plan| {
        plan.keep(0..3);
    })
    .unwrap();
    assert_eq!(seen(&reopened(&session).live(0)), live);
}

pub(super) fn any_body(sort: u8, number: usize) -> RecordBody {
    match sort % 9 {
        0 => user(&format!("ask {number}")),
        1 => assistant(&format!("answer {number}")),
        2 => message(json!({ "role": "assistant", "stopReason": "toolUse", "content": [
            { "type": "thinking", "thinking": "hm", "thinkingSignature": "s=" },
            { "type": "text", "text": "let me look" },
            { "type": "toolCall", "id": format!("c{number}"), "name": "read", "arguments": { "p": 1.0 } } ] })),
        3 => message(
            json!({ "role": "toolResult", "toolCallId": format!("c{}", number.saturating_sub(1)),
            "toolName": "read", "isError": false, "content": [{ "type": "text", "text": "内容" }] }),
        ),
        4 => RecordBody::label("x", None),
        5 => RecordBody::custom_message("note", "remember", false),
        6 => message(
            json!({ "role": "bashExecution", "command": "ls", "output": "a\nb", "exitCode": 1 }),
        ),
        7 => RecordBody::branch_summary("x", "elsewhere"),
        _ => RecordBody::custom("state", &json!({ "n": number })),
    }
}

/// A plan from one choice for each position.
pub(super) fn any_plan(view: &Transcript, choices: &[u8]) -> Plan {
    let mut plan = Plan::default();
    for entry in view.iter() {
        let seq = entry.seq();
        match choices[seq as usize % choices.len()] % 7 {
            0..=2 => plan.keep(seq..seq + 1),
            3 => plan.replace_text(seq, format!("short {seq}")),
            4 if entry.kind() == EntryKind::Message => {
                plan.replace_raw(seq, entry.raw().replace("read", "read again"))
            }
            5 => plan.insert(Role::User, format!("summary {seq}"), seq..seq + 1),
            _ => plan.leave_out(seq..seq + 1),
        };
    }
    plan
}

fn summary_of_item(item: &PlanItem<'_>) -> (Role, String, u64) {
    (item.role(), item.text().into_owned(), item.tokens())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn live_is_the_projection_before_and_after_a_reopen(
        rounds in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..15), prop::collection::vec(any::<u8>(), 1..9)),
            1..5,
        ),
    ) {
        let mut session = memory();
        let mut number = 0;
        for (sorts, choices) in rounds {
            for sort in sorts {
                session.append_at(any_body(sort, number), 1_000 + number as i64).unwrap();
                number += 1;
            }
            let view = session.live(0).snapshot();
            let plan = any_plan(&view, &choices);
            let expected: Vec<_> = plan.project(&view).iter().map(summary_of_item).collect();
            session.compact(NewCompaction::of_tests(&plan, &view)).unwrap();
            let live = seen(&session.live(1));
            let found: Vec<_> =
                live.iter().map(|entry| (entry.role, entry.text.clone(), entry.tokens)).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(seen(&reopened(&session).live(1)), live);
        }
    }
}

#[test]
fn the_record_is_a_compaction_of_pi() {
    let mut session = memory();
    talk(&mut session, 2);
    let id = compact(&mut session, |plan| {
        plan.keep(1..2);
    })
    .unwrap();
    assert_eq!(session.record(&id).unwrap().kind(), &RecordKind::Compaction);
    let keys: Vec<String> = written(&session, &id).as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        keys,
        [
            "type",
            "id",
            "parentId",
            "timestamp",
            "summary",
            "firstKeptEntryId",
            "tokensBefore",
            "details"
        ]
    );
}

/// Compacts the live transcript without these compactions.
fn compact_without(
    session: &mut Session,
    ignored: &[String],
    build: impl Fn(&mut Plan),
) -> Result<String, SessionError> {
    let view = session.live_without(ignored, 0).snapshot();
    let mut plan = Plan::default();
    build(&mut plan);
    session.compact(NewCompaction { ignored, ..NewCompaction::of_tests(&plan, &view) })
}

#[test]
fn the_newest_compactions_can_be_ignored() {
    let mut session = memory();
    talk(&mut session, 4);
    let large = compact(&mut session, |plan| {
        plan.insert(Role::User, "large", 0..2).keep(2..4);
    })
    .unwrap();
    session.append(user("fifth")).unwrap();
    let small = compact(&mut session, |plan| {
        plan.insert(Role::User, "small", 0..3).keep(3..4);
    })
    .unwrap();
    let smaller = compact(&mut session, |plan| {
        plan.insert(Role::User, "smaller", 0..2);
    })
    .unwrap();
    session.append(user("sixth")).unwrap();
    let without = |ids: &[&String]| {
        let ids: Vec<String> = ids.iter().map(|id| (*id).clone()).collect();
        let live = seen(&session.live_without(&ids, 0));
        live.into_iter().map(|entry| entry.text).collect::<Vec<_>>()
    };
    assert_eq!(without(&[]), ["smaller", "sixth"]);
    assert_eq!(without(&[&smaller]), ["small", "fifth", "sixth"]);
    assert_eq!(without(&[&smaller, &small]), ["large", "message 3", "message 4", "fifth", "sixth"]);
    let all = ["message 1", "message 2", "message 3", "message 4", "fifth", "sixth"];
    assert_eq!(without(&[&smaller, &small, &large]), all);
    assert_eq!(
        without(&[&small]),
        ["smaller", "sixth"],
        "a newer one that counts was made from it"
    );
}

#[test]
fn a_compaction_that_was_made_without_others_names_them() {
    let mut session = memory();
    talk(&mut session, 4);
    let small = compact(&mut session, |plan| {
        plan.insert(Role::User, "small", 0..4);
    })
    .unwrap();
    session.append(user("fifth")).unwrap();
    let before = session.to_bytes();
    let id = compact_without(&mut session, std::slice::from_ref(&small), |plan| {
        plan.insert(Role::User, "large", 0..2).keep(2..5);
    })
    .unwrap();
    let large = ["large", "message 3", "message 4", "fifth"];
    assert_eq!(texts(&session), large);
    assert_eq!(texts(&reopened(&session)), large);
    assert_eq!(written(&session, &id)["details"]["ctxhost"]["ignoredCompactions"], json!([small]));
    assert_eq!(session.live_before(&id).unwrap().snapshot().len(), 5, "what it was made from");
    assert_eq!(as_pi_reads(&session)[1..], ["message 3", "message 4", "fifth"]);

    session.append(user("sixth")).unwrap();
    compact(&mut session, |plan| {
        plan.insert(Role::User, "next", 0..3).keep(3..5);
    })
    .unwrap();
    assert_eq!(texts(&reopened(&session)), ["next", "fifth", "sixth"]);
    session.undo_newest_compaction().unwrap();
    assert_eq!(texts(&reopened(&session)), ["large", "message 3", "message 4", "fifth", "sixth"]);
    session.undo_compaction_of(&id).unwrap();
    assert_eq!(texts(&reopened(&session)), ["small", "fifth", "sixth"]);

    // Its view is not the live transcript of the branch, which it has to say.
    let mut session = Session::parse("again", &before).unwrap();
    let whole = session.live_without(std::slice::from_ref(&small), 0).snapshot();
    let plan = Plan::keep_all(whole.len());
    let unsaid = session.compact(NewCompaction::of_tests(&plan, &whole));
    assert!(matches!(unsaid, Err(SessionError::Plan { .. })));
    assert_eq!(session.to_bytes(), before);
}

//! Contract tests of the `dag` engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::testing::{
    ContractOptions, ScriptedHost, TranscriptBuilder, block_on, contract, plan_fault,
};
use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{
    Action, AssembleRequest, CompactRequest, Compaction, HistoryEntry, MaintainRequest, Plan,
    ToolCallRequest, Transcript,
};
use ctxhost_engine_dag::DagEngine;
use proptest::prelude::*;

const BUDGET: u64 = 2_000;

#[test]
fn keeps_the_contract() {
    let small = json!({ "leaf_turns": 1, "fanout": 2, "slack_share": 0.0, "leaf_text_tokens": 20 });
    for config in [json!({}), small, json!({ "tools": false, "agent_tail_share": 0.05 })] {
        let options = ContractOptions { config, ..ContractOptions::default() };
        let report = contract(EngineFactory::linked::<DagEngine>(), &options);
        assert!(report.passed(), "{report}");
    }
}

fn create_on(host: &ScriptedHost, config: &Value) -> EngineHandle {
    EngineFactory::linked::<DagEngine>().create(Arc::new(host.clone()), config).unwrap()
}

fn create() -> EngineHandle {
    create_on(&ScriptedHost::new(), &json!({}))
}

fn assemble_view(engine: &EngineHandle, view: &Transcript, budget: u64, prompt: &str) -> Plan {
    let request = AssembleRequest { budget, prompt: prompt.into(), ..AssembleRequest::default() };
    block_on(engine.assemble(view.clone(), request)).unwrap()
}

fn assemble(engine: &EngineHandle, talk: &TranscriptBuilder, budget: u64, prompt: &str) -> Plan {
    assemble_view(engine, &talk.transcript(), budget, prompt)
}

fn compact(engine: &EngineHandle, view: &Transcript, budget: u64) -> Option<Plan> {
    let current_tokens = view.total_tokens();
    let request = CompactRequest { budget, current_tokens, ..CompactRequest::default() };
    match block_on(engine.compact(view.clone(), request)).unwrap() {
        Compaction::Plan(plan) => Some(plan),
        _ => None,
    }
}

fn call(engine: &EngineHandle, view: &Transcript, name: &str, arguments: Value) -> (String, bool) {
    let request = ToolCallRequest { name: name.into(), arguments, ..ToolCallRequest::default() };
    let answer = block_on(engine.call_tool(view.clone(), request)).unwrap();
    (answer.text, answer.is_error)
}

fn shown(plan: &Plan, view: &Transcript) -> String {
    let texts = plan.project(view).into_iter().map(|item| item.text().into_owned());
    texts.collect::<Vec<_>>().join("\n")
}

fn size(plan: &Plan, view: &Transcript) -> u64 {
    plan.project(view).iter().map(|item| item.tokens()).sum()
}

/// The ids of nodes in a text: `root`, `d1-3`.
fn node_ids(text: &str) -> Vec<String> {
    let is_id = |word: &&str| {
        let depth = word.strip_prefix('d').and_then(|rest| rest.split_once('-'));
        let is_node = depth.is_some_and(|(depth, index)| {
            [depth, index].iter().all(|part| part.parse::<usize>().is_ok())
        });
        *word == "root" || is_node
    };
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(is_id).map(str::to_owned).collect()
}

/// The entry ids that `context_expand` reaches from some nodes.
fn reachable(engine: &EngineHandle, view: &Transcript, from: Vec<String>) -> BTreeSet<String> {
    let (mut open, mut seen, mut entries) =
        (VecDeque::from(from), BTreeSet::new(), BTreeSet::new());
    while let Some(id) = open.pop_front() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let (text, is_error) =
            call(engine, view, "context_expand", json!({ "id": id, "tokens": 8_000 }));
        assert!(!is_error, "{id}: {text}");
        if id.starts_with("d0-") {
            let heads = text.lines().filter_map(|line| line.strip_prefix('['));
            entries.extend(heads.filter_map(|head| Some(head.split_once(' ')?.0.to_owned())));
        } else {
            let lines = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once(','));
            open.extend(lines.map(|(id, _)| id.to_owned()).filter(|id| !node_ids(id).is_empty()));
        }
    }
    entries
}

/// The history that a host has after some epochs.
fn history_of(view: &Transcript, known: &mut Vec<HistoryEntry>) {
    for entry in view.iter() {
        if !known.iter().any(|before| before.id == entry.id()) {
            known.push(HistoryEntry {
                id: entry.id().into(),
                role: entry.role().name().into(),
                text: entry.text().into(),
                timestamp_ms: entry.timestamp_ms(),
                tokens: entry.tokens(),
            });
        }
    }
}

/// The transcript of the next epoch: what a plan keeps, with its insertion as the summary.
fn applied(plan: &Plan, view: &Transcript, epoch: u64) -> TranscriptBuilder {
    let mut next = TranscriptBuilder::with_epoch(epoch);
    for item in plan.project(view) {
        let text = item.text().into_owned();
        let Some(entry) = item.entry() else {
            next.summary(&text);
            continue;
        };
        next.push(NewEntry {
            id: entry.id().into(),
            parent_id: String::new(),
            timestamp_ms: entry.timestamp_ms(),
            role: entry.role(),
            kind: entry.kind(),
            flags: entry.flags(),
            tokens: item.tokens(),
            text,
            raw: entry.raw().into(),
            calls: entry.tool_calls().iter().map(|call| call.id.to_string()).collect(),
            answers: entry.tool_result().map(|result| result.call_id.into_owned()),
        });
    }
    next
}

/// Small talk, with one fact far back.
fn long_talk() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("Help me plan the year.").assistant("Gladly.");
    talk.user("My sister Irene keeps a saffron farm near Teruel.").assistant("Lovely.");
    for number in 0..200 {
        add_week(&mut talk, number);
    }
    talk
}

fn add_week(talk: &mut TranscriptBuilder, number: u64) {
    talk.user(&format!("What about week {number} and its errands?"));
    talk.assistant(
        &format!("Week {number} has room for a walk and some reading at home. ").repeat(4),
    );
}

#[test]
fn what_fits_stays_as_it_is() {
    let talk = long_talk();
    let plan = assemble(&create(), &talk, 1_000_000, "anything");
    assert_eq!(plan.ops.len(), 1);
    assert_eq!(size(&plan, &talk.transcript()), talk.transcript().total_tokens());
}

#[test]
fn a_prompt_finds_an_old_message_and_the_rest_is_an_outline() {
    let mut talk = long_talk();
    let prompt = "Where is the saffron farm of Irene?";
    talk.user(prompt);
    let (view, budget) = (talk.transcript(), 4_000);
    let plan = assemble(&create(), &talk, budget, prompt);
    let text = shown(&plan, &view);
    assert!(text.contains("near Teruel") && text.contains("[d"), "{text}");
    assert_eq!(size(&plan, &view), plan.estimated_tokens);
    assert!(plan.estimated_tokens <= budget);
}

#[test]
fn the_outline_is_finer_where_the_prompt_matches() {
    let mut talk = long_talk();
    talk.user("Where is the saffron farm?");
    let lines = |prompt: &str| {
        let config = json!({ "chat_node_share": 0.2, "request_share": 0.0 });
        let engine = create_on(&ScriptedHost::new(), &config);
        let plan = assemble(&engine, &talk, 8_000, prompt);
        let text = plan.ops.iter().find_map(|op| match &op.action {
            Action::Insert { text, .. } if text.starts_with("<outline") => Some(text.clone()),
            _ => None,
        });
        node_ids(&text.unwrap())
    };
    let (near, far) = (lines("Where is the saffron farm?"), lines("What about week 120?"));
    assert!(near.contains(&"d0-0".to_owned()), "{near:?}");
    assert!(!far.contains(&"d0-0".to_owned()), "{far:?}");
}

#[test]
fn the_beginning_stays_the_same_until_the_window_moves() {
    let (engine, mut talk) = (create(), long_talk());
    talk.user("Where is the saffron farm?");
    let first = assemble(&engine, &talk, BUDGET, "Where is the saffron farm?");
    talk.assistant("Near Teruel.");
    talk.user("And who keeps it?");
    let second = assemble(&engine, &talk, BUDGET, "And who keeps it?");
    let stable = first.ops.iter().zip(&second.ops).take_while(|(one, two)| one == two).count();
    assert!(stable + 3 >= first.ops.len(), "{stable} of {}", first.ops.len());
}

#[test]
fn a_node_leads_to_its_entries() {
    let (engine, talk) = (create(), long_talk());
    let view = talk.transcript();
    let entries = reachable(&engine, &view, vec!["root".into()]);
    assert_eq!(entries.len(), view.len());
    let (found, _) = call(&engine, &view, "context_search", json!({ "query": "saffron farm" }));
    let line = found.lines().find(|line| line.contains("Teruel")).unwrap();
    let id = line.trim_start_matches('[').split(' ').next().unwrap();
    let (entry, _) = call(&engine, &view, "context_expand", json!({ "id": id }));
    assert!(entry.contains("saffron farm near Teruel"), "{entry}");
    for (name, arguments) in [
        ("context_expand", json!({ "id": "d9-9" })),
        ("context_expand", json!({})),
        ("context_search", json!({})),
    ] {
        assert!(call(&engine, &view, name, arguments).1);
    }
}

#[test]
fn the_tools_show_no_secret() {
    let secret = "ghp_aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vWxYz1";
    let mut talk = long_talk();
    talk.user(&format!("The deployment key is {secret}."));
    talk.calls(&[("k1", "bash", &format!(r#"{{"command":"deploy --key {secret}"}}"#))]);
    talk.result("k1", "bash", &format!("deployed with {secret}"));
    let mut history = Vec::new();
    history_of(&talk.transcript(), &mut history);
    let host = ScriptedHost::new();
    host.set_history(history);
    let engine = create_on(&host, &json!({}));
    let folded = long_talk();
    for view in [talk.transcript(), folded.transcript()] {
        let query = json!({ "query": "deployment key" });
        let (hits, _) = call(&engine, &view, "context_search", query);
        assert!(!hits.contains(secret), "{hits}");
        for entry in talk.transcript().range(talk.len() - 3..talk.len()) {
            let arguments = json!({ "id": entry.id(), "tokens": 8_000 });
            let (shown, is_error) = call(&engine, &view, "context_expand", arguments);
            assert!(!is_error, "{shown}");
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[test]
fn a_long_entry_is_read_part_by_part() {
    let (engine, mut talk) = (create(), TranscriptBuilder::new());
    let text: String = (0..4_000).map(|number| format!("line {number}\n")).collect();
    talk.user("Read it.").calls(&[("c1", "read", "{}")]).result("c1", "read", &text);
    let view = talk.transcript();
    let id = view.get(2).unwrap().id().to_owned();
    let (mut read, mut from) = (String::new(), 0);
    loop {
        let arguments = json!({ "id": id, "from": from });
        let (part, _) = call(&engine, &view, "context_expand", arguments);
        let part = part.split_once('\n').unwrap().1.to_owned();
        let Some((part, more)) = part.rsplit_once("\n[") else {
            read.push_str(&part);
            break;
        };
        read.push_str(part);
        from = more.trim_end_matches(']').rsplit(' ').next().unwrap().parse().unwrap();
    }
    assert_eq!(read, text);
}

#[test]
fn a_session_without_its_stored_state_has_the_same_nodes() {
    let talk = long_talk();
    let view = talk.transcript();
    let host = ScriptedHost::new();
    let root =
        |engine: &EngineHandle| call(engine, &view, "context_expand", json!({ "id": "root" })).0;
    let engine = create_on(&host, &json!({}));
    let before = root(&engine);
    block_on(engine.maintain(view.clone(), MaintainRequest::default())).unwrap();
    assert!(host.kv().keys().any(|key| key.starts_with("nodes/1/")));
    assert_eq!(root(&create_on(&host, &json!({}))), before);
    assert_eq!(root(&create()), before);
}

/// Five compactions with new talk between them; each time on an engine that has just started, on the
/// same host or without stored values.
fn five_compactions(keeps_store: bool) {
    let mut host = ScriptedHost::new();
    let (mut talk, mut history) = (long_talk(), Vec::new());
    for epoch in 1..=5 {
        let engine = create_on(&host, &json!({}));
        history_of(&talk.transcript(), &mut history);
        host.set_history(history.clone());
        let plan = compact(&engine, &talk.transcript(), 4_000).expect("it shrinks");
        talk = applied(&plan, &talk.transcript(), epoch);
        if !keeps_store {
            host = ScriptedHost::new();
            host.set_history(history.clone());
        }
        (0..40).for_each(|number| add_week(&mut talk, epoch * 100 + number));
    }
    let prompt = "Where is the saffron farm of Irene?";
    talk.user(prompt);
    history_of(&talk.transcript(), &mut history);
    host.set_history(history.clone());
    let engine = create_on(&host, &json!({}));
    let view = talk.transcript();
    let text = shown(&assemble(&engine, &talk, 8_000, prompt), &view);
    assert!(text.contains("Irene keeps a saffron farm near Teruel"), "{text}");
    let reached = reachable(&engine, &view, vec!["root".into()]);
    let is_summary = |entry: &&HistoryEntry| entry.text.contains("leaves folded");
    let lost: Vec<&String> = history
        .iter()
        .filter(|entry| !is_summary(entry) && !reached.contains(&entry.id))
        .map(|entry| &entry.id)
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn five_compactions_keep_every_entry_reachable() {
    five_compactions(true);
}

#[test]
fn five_compactions_without_stored_nodes_keep_every_entry_reachable() {
    five_compactions(false);
}

#[test]
fn a_compaction_names_nodes_and_makes_room() {
    let (engine, talk) = (create(), long_talk());
    let view = talk.transcript();
    let plan = compact(&engine, &view, 4_000).unwrap();
    assert!((1_200..3_800).contains(&size(&plan, &view)), "{}", size(&plan, &view));
    assert!(!node_ids(&shown(&plan, &view)).is_empty());
}

#[test]
fn a_model_writes_nodes_and_a_bad_answer_changes_nothing() {
    let talk = long_talk();
    let view = talk.transcript();
    let host = ScriptedHost::new();
    let engine = create_on(&host, &json!({ "model_nodes": 2 }));
    host.answer("I am sorry, but this request cannot be fulfilled by me.");
    host.answer("The user planned week errands, and Irene keeps a saffron farm near Teruel.");
    block_on(engine.maintain(view.clone(), MaintainRequest::default())).unwrap();
    let (root, _) = call(&engine, &view, "context_expand", json!({ "id": "d2-0" }));
    assert!(root.contains("The user planned week errands") && !root.contains("sorry"), "{root}");
    let requests = host.completion_requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].prompt.contains("saffron"));
    // A restart keeps what was written.
    let (again, _) =
        call(&create_on(&host, &json!({})), &view, "context_expand", json!({ "id": "d2-0" }));
    assert_eq!(again, root);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn plans_fit_and_every_dropped_entry_is_below_a_shown_node(
        generated in transcripts(), budget in 50u64..4_000, turns in 1u64..4,
    ) {
        let view = generated.transcript();
        let config = json!({ "leaf_turns": turns, "leaf_tokens": 300, "fanout": 2 });
        let engine = create_on(&ScriptedHost::new(), &config);
        let plan = assemble_view(&engine, &view, budget, "what next");
        prop_assert_eq!(plan_fault(&plan, &view), None);
        prop_assert_eq!(size(&plan, &view), plan.estimated_tokens);
        prop_assert!(plan.estimated_tokens <= budget.max(view.total_tokens()));
        let items = plan.project(&view);
        let kept: BTreeSet<u64> =
            items.iter().filter_map(|item| item.entry()).map(|entry| entry.seq()).collect();
        let own = items.iter().filter(|item| item.entry().is_none());
        let ids = own.flat_map(|item| node_ids(&item.text())).collect();
        let reached = reachable(&engine, &view, ids);
        for entry in view.iter().filter(|entry| !kept.contains(&entry.seq())) {
            prop_assert!(reached.contains(entry.id()), "{} of {}", entry.id(), shown(&plan, &view));
        }
        // A frame is kept whole or not at all.
        for entry in view.iter().filter(|entry| !entry.is_cut_point()) {
            prop_assert_eq!(kept.contains(&entry.seq()), kept.contains(&entry.frame()));
        }
    }
}

/// Rules stay before other requests, in a request and in the next compaction; a replaced one does not.
#[test]
fn rules_outlive_what_was_asked_later() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Look at the repository.").assistant("It holds a parser.");
    talk.user("Always deploy to region eu-1.").assistant("Noted.");
    talk.user("Never push to main without review.").assistant("Noted.");
    for number in 0..200 {
        talk.user(&format!("Please explain module number{number} of the parser in detail."));
        talk.assistant(&format!("Module number{number} reads tokens and builds nodes. ").repeat(6));
    }
    talk.user("From now on deploy to region us-7 instead.").assistant("Noted.");
    for number in 0..40 {
        talk.user(&format!("Please explain part number{number} of the printer in detail."));
        talk.assistant(&format!("Part number{number} writes nodes as text. ").repeat(6));
    }
    talk.user("What is next?");
    let transcript = talk.transcript();
    let texts = |plan: &Plan| -> String {
        plan.project(&transcript).iter().map(|item| item.text().into_owned() + "\n").collect()
    };
    let check = |text: String| {
        for rule in ["From now on deploy to region us-7", "Never push to main without review"] {
            assert!(text.contains(rule), "{rule}: {text}");
        }
        assert!(!text.contains("deploy to region eu-1"), "{text}");
    };
    let engine = create();
    let request = AssembleRequest { budget: BUDGET, ..AssembleRequest::default() };
    check(texts(&block_on(engine.assemble(transcript.clone(), request)).unwrap()));
    let request = CompactRequest { budget: BUDGET, attempt: 1, ..CompactRequest::default() };
    let Compaction::Plan(plan) = block_on(engine.compact(transcript.clone(), request)).unwrap()
    else {
        panic!()
    };
    check(texts(&plan));
}

//! Tests of the search by meaning: what it finds, when it asks the embedder, and what happens without it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{
    AssembleRequest, EmbedPurpose, EngineError, ErrorKind, IngestRequest, Plan, SessionRef,
    capability,
};
use ctxhost_engine_recall::RecallEngine;

const BUDGET: u64 = 2_000;
const PROMPT: &str = "Which woman grows spices?";

/// Words of one meaning have one dimension.
const MEANINGS: [&[&str]; 4] = [
    &["sister", "woman"],
    &["saffron", "spices"],
    &["farm", "grows"],
    &["week", "walk", "reading", "plan", "year"],
];

fn meaning(text: &str) -> Vec<f32> {
    let text = text.to_lowercase();
    let count = |words: &&[&str]| words.iter().filter(|word| text.contains(**word)).count() as f32;
    MEANINGS.iter().map(count).chain([0.1]).collect()
}

fn long_talk() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("Help me plan the year.").assistant("Gladly.");
    talk.user("What do you know of my family?")
        .assistant("Your sister Irene keeps a saffron farm near Teruel.");
    for number in 0..200 {
        talk.user(&format!("What about week {number}?"));
        talk.assistant(
            &format!("Week {number} has room for a walk and some reading at home. ").repeat(4),
        );
    }
    talk.user(PROMPT);
    talk
}

fn create(host: &ScriptedHost, config: &Value) -> EngineHandle {
    EngineFactory::linked::<RecallEngine>().create(Arc::new(host.clone()), config).unwrap()
}

fn assemble(engine: &EngineHandle, talk: &TranscriptBuilder, prompt: &str) -> Plan {
    let session = SessionRef { id: "s".into(), ..SessionRef::default() };
    let request =
        AssembleRequest { session, budget: BUDGET, prompt: prompt.into(), ..Default::default() };
    block_on(engine.assemble(talk.transcript(), request)).unwrap()
}

fn seen(plan: &Plan, talk: &TranscriptBuilder) -> String {
    let transcript = talk.transcript();
    let texts = plan.project(&transcript).into_iter().map(|item| item.text().into_owned());
    texts.collect::<Vec<_>>().join("\n")
}

fn embedding_host() -> ScriptedHost {
    let host = ScriptedHost::new();
    host.embed_with(meaning);
    host
}

/// Texts that the host was asked to embed, by purpose.
fn asked(host: &ScriptedHost, purpose: EmbedPurpose) -> Vec<String> {
    let requests = host.embed_requests().into_iter();
    requests
        .filter(|request| request.purpose == purpose)
        .flat_map(|request| request.texts)
        .collect()
}

#[test]
fn a_paraphrase_is_found_by_meaning_alone() {
    let talk = long_talk();
    let by_words = assemble(&create(&ScriptedHost::new(), &json!({})), &talk, PROMPT);
    assert!(!seen(&by_words, &talk).contains("Teruel"), "no word in common");
    let host = embedding_host();
    let plan = assemble(&create(&host, &json!({})), &talk, PROMPT);
    assert!(seen(&plan, &talk).contains("Teruel"));
    assert!(plan.estimated_tokens <= BUDGET);
    assert_eq!(plan, assemble(&create(&embedding_host(), &json!({})), &talk, PROMPT));
    assert_eq!(asked(&host, EmbedPurpose::Query), [PROMPT]);
}

#[test]
fn words_still_find_what_no_meaning_knows() {
    let mut talk = long_talk();
    let prompt = "Who is Irene?";
    talk.assistant("A farmer.").user(prompt);
    let plan = assemble(&create(&embedding_host(), &json!({})), &talk, prompt);
    assert!(seen(&plan, &talk).contains("Teruel"));
}

#[test]
fn a_history_that_fits_asks_nothing_and_a_text_is_embedded_once() {
    let (host, mut talk) = (embedding_host(), long_talk());
    let engine = create(&host, &json!({}));
    let request = AssembleRequest { budget: 1_000_000, ..AssembleRequest::default() };
    block_on(engine.assemble(talk.transcript(), request)).unwrap();
    assert!(host.embed_requests().is_empty());
    assemble(&engine, &talk, PROMPT);
    let first = asked(&host, EmbedPurpose::Document).len();
    assert_eq!(first, talk.transcript().len());
    assemble(&engine, &talk, "");
    talk.assistant("Your sister.");
    assemble(&engine, &talk, PROMPT);
    let late = &asked(&host, EmbedPurpose::Document)[first..];
    assert_eq!(
        (late, asked(&host, EmbedPurpose::Query).len()),
        (&["Your sister.".to_owned()][..], 1)
    );
    // Another engine on the same store, as after a restart.
    let requests = host.embed_requests().len();
    let again = create(&host, &json!({}));
    let plan = assemble(&again, &talk, PROMPT);
    assert!(seen(&plan, &talk).contains("Teruel"));
    assert_eq!(host.embed_requests().len(), requests + 1, "the prompt alone");
}

#[test]
fn texts_of_one_request_are_limited_and_the_rest_follows() {
    let (host, talk) = (embedding_host(), long_talk());
    let engine = create(&host, &json!({ "embed_texts": 150 }));
    let texts = || asked(&host, EmbedPurpose::Document).len();
    // The status is about the session of the newest ingest.
    let session = SessionRef { id: "s".into(), ..SessionRef::default() };
    let request = IngestRequest { session, ..IngestRequest::default() };
    block_on(engine.ingest(talk.transcript(), request)).unwrap();
    let by_words = assemble(&create(&ScriptedHost::new(), &json!({})), &talk, PROMPT);
    assert_eq!(assemble(&engine, &talk, PROMPT), by_words, "few vectors would displace words");
    assert_eq!(texts(), 150);
    let status = engine.status().unwrap();
    let expected = "; ranked by words alone, with vectors of 150 of ";
    assert!(status.summary.contains(expected), "{}", status.summary);
    assemble(&engine, &talk, PROMPT);
    assert_eq!(texts(), 300);
    (0..3).for_each(|_| _ = assemble(&engine, &talk, PROMPT));
    let all = texts();
    assert!(seen(&assemble(&engine, &talk, PROMPT), &talk).contains("Teruel"));
    assert_eq!(texts(), all);
}

#[test]
fn a_failing_embedder_leaves_the_plan_of_words_and_is_left_alone_for_a_while() {
    let (host, talk) = (embedding_host(), long_talk());
    host.fail(capability::EMBED, EngineError::new(ErrorKind::ModelTimeout, "too slow"));
    let engine = create(&host, &json!({}));
    let by_words = assemble(&create(&ScriptedHost::new(), &json!({})), &talk, PROMPT);
    for _ in 0..3 {
        assert_eq!(assemble(&engine, &talk, PROMPT), by_words);
    }
    let status = engine.status().unwrap();
    assert!(status.summary.ends_with("ranked by words alone: too slow"), "{}", status.summary);
    assert_eq!(status.details["vectors"]["failure"], "too slow");
    let warnings = |host: &ScriptedHost| {
        let lines = host.log_lines().into_iter();
        lines.filter(|line| line.message.contains("too slow")).count()
    };
    assert_eq!(warnings(&host), 1);
    // After the pause it is asked again, and the same failure is not logged again.
    host.set_now_ms(1_767_225_600_000 + 60_000);
    assemble(&engine, &talk, PROMPT);
    assert_eq!(warnings(&host), 1);
}

#[test]
fn without_an_embedder_nothing_is_different() {
    let (host, talk) = (ScriptedHost::new(), long_talk());
    let engine = create(&host, &json!({}));
    assemble(&engine, &talk, PROMPT);
    assert!(host.kv().keys().all(|key| !key.starts_with("vectors/")));
    let status = engine.status().unwrap();
    assert!(!status.summary.contains("vector") && status.details.get("vectors").is_none());
}

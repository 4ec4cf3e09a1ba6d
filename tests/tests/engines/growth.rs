//! What a long session costs an engine with an index, in bytes.

use std::sync::Arc;

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{IngestRequest, MaintainRequest};
use ctxhost_engine_dag::DagEngine;
use ctxhost_engine_recall::RecallEngine;
use serde_json::json;

/// Maximum size of the index, in bytes per entry of some 50 words.
const ENTRY_BYTES: u64 = 1_500;

/// Words of a synthetic vocabulary with few common and many rare words.
fn sentence(seed: u64, words: u64) -> String {
    let mut random = random_numbers(seed);
    let word = |number: u64| format!("w{}x", 20_000 / (number % 20_000 + 1) * 7 + number % 97);
    (0..words).map(|_| word(random())).collect::<Vec<_>>().join(" ")
}

/// A xorshift generator.
fn random_numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }
}

fn long_talk(entries: u64) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for number in 0..entries / 4 {
        let (id, path) =
            (format!("c{number}"), format!(r#"{{"path":"src/m{}/f{number}.rs"}}"#, number % 40));
        talk.user(&sentence(number, 20)).calls(&[(&id, "read", &path)]);
        talk.result(&id, "read", &sentence(number + 1_000_000, 120))
            .assistant(&sentence(number + 2_000_000, 60));
    }
    talk
}

#[test]
fn a_new_leaf_rewrites_one_page_however_long_the_session_is() {
    let host = ScriptedHost::new();
    let engine = EngineFactory::linked::<DagEngine>()
        .create(Arc::new(host.clone()), &json!({ "leaf_turns": 1, "model_nodes": 0 }))
        .unwrap();
    let mut talk = long_talk(4_000);
    let maintain = |talk: &TranscriptBuilder| {
        block_on(engine.maintain(talk.transcript(), MaintainRequest::default())).unwrap();
        host.kv()
    };
    let before = maintain(&talk);
    talk.user("One more question.").assistant("One more answer.").user("And another.");
    let after = maintain(&talk);
    let changed = after.iter().filter(|(key, page)| before.get(*key) != Some(*page)).count();
    assert!((1..=6).contains(&changed), "{changed} of {} pages", after.len());
    assert!(after.len() > 30, "{}", after.len());
}

#[test]
fn the_index_grows_with_the_entries_and_no_faster() {
    for (name, factory) in [
        ("recall", EngineFactory::linked::<RecallEngine>()),
        ("dag", EngineFactory::linked::<DagEngine>()),
    ] {
        let bytes_of = |entries| {
            let engine = factory.create(Arc::new(ScriptedHost::new()), &json!({})).unwrap();
            let talk = long_talk(entries);
            let request = IngestRequest { entries: 0..talk.len(), ..IngestRequest::default() };
            block_on(engine.ingest(talk.transcript(), request)).unwrap();
            engine.status().unwrap().details["index_bytes"].as_u64().unwrap()
        };
        let (short, long) = (bytes_of(2_000), bytes_of(8_000));
        assert!(short > 2_000, "{name}: {short}");
        // Tables double when they are full, so twice the share is within their growth.
        assert!(long <= 2 * 4 * short, "{name}: {short}, {long}");
        assert!(long <= 8_000 * ENTRY_BYTES, "{name}: {long}");
    }
}

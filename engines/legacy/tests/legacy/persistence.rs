//! Decisions survive a restart, which sends the same bytes.

use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{
    AssembleRequest, BootstrapRequest, LogLevel, ModelRef, Plan, PromptCache, SessionRef,
    capability,
};
use serde_json::{Value, json};

use crate::fixtures::{assemble, engine, offline};

const TTL_MS: i64 = 300_000;

fn session() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for round in 0..12 {
        let id = round.to_string();
        talk.user("go").calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"x".repeat(20_000));
        talk.assistant("done");
    }
    talk
}

fn request(id: &str, now_ms: i64) -> AssembleRequest {
    AssembleRequest {
        session: SessionRef { id: id.into(), ..SessionRef::default() },
        model: ModelRef { window_tokens: 64_000, ..ModelRef::default() },
        budget: 60_000,
        now_ms,
        ..AssembleRequest::default()
    }
}

fn cold_host() -> ScriptedHost {
    let host = offline();
    host.set_prompt_cache(PromptCache { last_touch_ms: Some(1), ..PromptCache::default() });
    host
}

fn pruning() -> Value {
    json!({"pruning": {"mode": "cache-ttl"}})
}

/// The first request prunes; the second finds a warm cache.
fn first_plan(host: &ScriptedHost) -> Plan {
    let engine = engine(host, &pruning());
    assemble(&engine, &session().transcript(), request("s", TTL_MS + 1)).unwrap()
}

#[test]
fn a_restart_repeats_what_was_decided() {
    let host = cold_host();
    let before = first_plan(&host);
    let kept = host.kv();
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["decisions/1/s"]);
    let json: Value = serde_json::from_str(&kept["decisions/1/s"]).unwrap();
    assert_eq!(json["prunedAtMs"], json!(TTL_MS + 1));
    assert_eq!(json["pruned"].as_object().unwrap().len(), 11);

    for is_bootstrapped in [true, false] {
        // The mode is off now: no new decisions, earlier ones stay.
        let again = engine(&host, &json!({}));
        if is_bootstrapped {
            let session = SessionRef { id: "s".into(), ..SessionRef::default() };
            let request = BootstrapRequest { session, ..BootstrapRequest::default() };
            block_on(again.bootstrap(session_transcript(), request)).unwrap();
        }
        let after = assemble(&again, &session_transcript(), request("s", TTL_MS + 2)).unwrap();
        assert_eq!(after, before, "bootstrapped: {is_bootstrapped}");
        let other = assemble(&again, &session_transcript(), request("t", TTL_MS + 2)).unwrap();
        assert_ne!(other, before, "another session decides for itself");
    }
    assert_eq!(host.kv()["decisions/1/s"], kept["decisions/1/s"]);
}

fn session_transcript() -> ctxhost_engine_api::Transcript {
    session().transcript()
}

#[test]
fn nothing_new_writes_nothing() {
    let host = offline();
    let engine = engine(&host, &json!({}));
    let mut talk = TranscriptBuilder::new();
    talk.user("hello").assistant("hi");
    assemble(&engine, &talk.transcript(), request("s", 1)).unwrap();
    assert!(host.kv().is_empty());
}

#[test]
fn the_same_decisions_are_the_same_bytes() {
    let (one, two) = (cold_host(), cold_host());
    assert_eq!(first_plan(&one), first_plan(&two));
    assert_eq!(one.kv(), two.kv());
}

#[test]
fn what_the_aggregate_rule_has_cut_survives_too() {
    let host = offline();
    let before =
        assemble(&engine(&host, &json!({})), &session_transcript(), request("s", 1)).unwrap();
    let json: Value = serde_json::from_str(&host.kv()["decisions/1/s"]).unwrap();
    assert!(!json["reduced"].as_object().unwrap().is_empty());
    // Everything was sent since and is cached: nothing new is cut, earlier cuts stay.
    host.set_prompt_cache(PromptCache { last_touch_ms: Some(i64::MAX), ..PromptCache::default() });
    let after =
        assemble(&engine(&host, &json!({})), &session_transcript(), request("s", 1)).unwrap();
    assert_eq!(after, before);
}

#[test]
fn one_request_with_less_room_costs_later_ones_nothing() {
    let mut talk = TranscriptBuilder::new();
    for round in 0..12 {
        let id = round.to_string();
        talk.user("go").calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"x".repeat(9_000));
        talk.assistant("done");
    }
    let transcript = talk.transcript();
    let host = offline();
    let engine = engine(&host, &json!({}));
    let small = AssembleRequest {
        model: ModelRef { window_tokens: 16_500, ..ModelRef::default() },
        budget: 13_000,
        ..request("s", 1)
    };
    let whole = assemble(&engine, &transcript, request("s", 1)).unwrap();
    assert_eq!(whole.ops.len(), 1);
    let cut = assemble(&engine, &transcript, small.clone()).unwrap();
    assert!(cut.estimated_tokens < whole.estimated_tokens);
    assert_eq!(assemble(&engine, &transcript, request("s", 1)).unwrap(), whole);
    assert_eq!(assemble(&engine, &transcript, small).unwrap(), cut);
}

#[test]
fn replaced_images_stay_replaced_after_a_restart() {
    let mut talk = TranscriptBuilder::new();
    for _ in 0..8 {
        talk.image("look").assistant("I see");
    }
    let transcript = talk.transcript();
    let within = |budget| AssembleRequest { budget, ..request("s", 1) };
    let host = offline();
    let roomy = assemble(&engine(&host, &json!({})), &transcript, within(60_000)).unwrap();
    assert_eq!(roomy.ops.len(), 1, "a request that fits is unchanged: {:?}", roomy.ops);
    let tight = assemble(&engine(&host, &json!({})), &transcript, within(12_000)).unwrap();
    assert!(tight.estimated_tokens < 8_000, "{}", tight.estimated_tokens);
    // 12,000 is too small a budget for its decisions to count for the large one; the small one keeps them.
    for (budget, before) in [(23_000, &tight), (60_000, &roomy), (12_000, &tight)] {
        let again = assemble(&engine(&host, &json!({})), &transcript, within(budget)).unwrap();
        assert_eq!(&again, before, "{budget}");
    }
}

#[test]
fn a_store_that_fails_is_logged_and_fails_nothing() {
    let host = cold_host();
    let before = first_plan(&host);
    // Offers a store with an unreadable value.
    let broken = cold_host();
    let store = broken.handle();
    block_on(store.kv_put("decisions/1/s", "{not json")).unwrap();
    assert_eq!(first_plan(&broken), before);
    let warnings: Vec<_> =
        broken.log_lines().into_iter().filter(|line| line.level == LogLevel::Warn).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].message.starts_with("stored decisions are unreadable"));

    let without = cold_host();
    without.set_capabilities(&[capability::PROMPT_CACHE]);
    assert_eq!(first_plan(&without), before);
    assert!(without.kv().is_empty() && without.log_lines().is_empty());
}

//! Summaries in small windows: what a short summary leaves belongs to the user's requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{CompactRequest, Compaction, ModelRef, PlanItem};
use ctxhost_engine_head_tail::HeadTailEngine;

/// Compacts a conversation, and returns the texts of the prompt and its size.
fn compact(talk: &TranscriptBuilder, window_tokens: u64, budget: u64) -> (Vec<String>, u64) {
    let host = ScriptedHost::new();
    host.set_capabilities(&[]);
    let factory = EngineFactory::linked::<HeadTailEngine>();
    let engine = factory.create(Arc::new(host), &json!({})).unwrap();
    let model = ModelRef { window_tokens, ..ModelRef::default() };
    let request = CompactRequest { budget, model, attempt: 1, ..CompactRequest::default() };
    let transcript = talk.transcript();
    match block_on(engine.compact(transcript.clone(), request)).unwrap() {
        Compaction::Plan(plan) => {
            let items = plan.project(&transcript);
            let texts = items.iter().map(|item| item.text().into_owned()).collect();
            (texts, items.iter().map(PlanItem::tokens).sum())
        }
        other => panic!("{other:?}"),
    }
}

fn request(number: usize) -> String {
    let facts = ["Rome", "Oslo", "Lima", "Kyoto", "Quito"];
    format!("The contact of {} {number} is person{number}@example.com.", facts[number % 5])
}

#[test]
fn requests_outlive_compactions_in_small_windows() {
    // Budgets as a host has them: the window without its reserve, in its own tokens.
    for (window_tokens, budget) in [(6_000, 4_300), (8_000, 5_800), (16_000, 11_700)] {
        let trigger = window_tokens / 2;
        let mut talk = TranscriptBuilder::new();
        talk.user("Plan a trip with me. Never suggest Volaria.").assistant("Gladly.");
        let mut asked = 0;
        // A second compaction summarises the first summary.
        for compactions in 1..=2 {
            while talk.transcript().total_tokens() <= trigger {
                talk.user(&request(asked)).assistant(&"It rains there in winter. ".repeat(30));
                asked += 1;
            }
            let (texts, tokens) = compact(&talk, window_tokens, budget);
            let shown = texts.join("\n");
            let lost: Vec<usize> = (0..asked).filter(|at| !shown.contains(&request(*at))).collect();
            assert_eq!(lost, [0; 0], "{compactions} in {window_tokens}: {tokens} tokens\n{shown}");
            assert!(shown.contains("Never suggest Volaria."), "{shown}");
            assert!(tokens <= trigger, "{tokens} in {window_tokens}");
            talk = continued(compactions, &texts);
        }
    }
}

/// The conversation after a compaction.
fn continued(epoch: u64, texts: &[String]) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::with_epoch(epoch);
    for text in texts {
        match text {
            text if text.contains("<summary>") => talk.summary(text),
            text if text.starts_with("It rains") || text == "Gladly." => talk.assistant(text),
            text => talk.user(text),
        };
    }
    talk
}

#[test]
fn the_next_compaction_is_some_turns_away() {
    for budget in [4_000, 8_000] {
        let trigger = budget * 9 / 10;
        let mut talk = TranscriptBuilder::new();
        talk.user("Plan a trip with me.").assistant("Gladly.");
        let mut asked = 0;
        for compactions in 1..=6 {
            while talk.transcript().total_tokens() <= trigger {
                talk.user(&request(asked)).assistant(&"It rains there in winter. ".repeat(10));
                asked += 1;
            }
            let (texts, tokens) = compact(&talk, budget + 64, budget);
            assert!(tokens <= trigger * 3 / 4, "{tokens} of {budget}");
            assert!(tokens >= budget * 3 / 10, "{tokens} of {budget}");
            talk = continued(compactions, &texts);
        }
    }
}

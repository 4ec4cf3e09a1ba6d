//! Cost of the engine in a session of a hundred thousand entries.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr)]

use std::sync::Arc;

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{AssembleRequest, IngestRequest};
use ctxhost_engine_recall::RecallEngine;

const ENTRIES: u64 = 100_000;
/// Limits of the 99th percentile of assemble (a window move) and of the index.
const P99_US: u64 = 10_000;
const INDEX_BYTES: u64 = 150_000_000;

/// CPU time of this thread in microseconds; other load on the machine does not count.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<u64>().unwrap() / 1_000
}

/// Words of a synthetic vocabulary with few common and many rare words.
fn sentence(seed: u64, words: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let word = |number: u64| format!("w{}x", 20_000 / (number % 20_000 + 1) * 7 + number % 97);
    (0..words).map(|_| word(next() >> 11)).collect::<Vec<_>>().join(" ")
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
#[ignore = "takes a minute; run it with --release"]
fn a_hundred_thousand_entries() {
    let engine = EngineFactory::linked::<RecallEngine>()
        .create(Arc::new(ScriptedHost::new()), &json!({}))
        .unwrap();
    let mut talk = long_talk(ENTRIES);
    let ingest = |talk: &TranscriptBuilder, from: u64| {
        let begun = cpu_us();
        let request = IngestRequest { entries: from..talk.len(), ..IngestRequest::default() };
        block_on(engine.ingest(talk.transcript(), request)).unwrap();
        cpu_us() - begun
    };
    let whole_us = ingest(&talk, 0);
    let (mut times, mut one) = (Vec::new(), Vec::new());
    for number in 0..300 {
        let from = talk.len();
        let prompt = sentence(number * 37, 12);
        talk.user(&prompt);
        one.push(ingest(&talk, from));
        let request = AssembleRequest { budget: 32_000, prompt, ..AssembleRequest::default() };
        let begun = cpu_us();
        block_on(engine.assemble(talk.transcript(), request)).unwrap();
        times.push(cpu_us() - begun);
        talk.assistant(&sentence(number + 9_000_000, 200));
    }
    times.sort_unstable();
    one.sort_unstable();
    let bytes = engine.status().unwrap().details["index_bytes"].as_u64().unwrap();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    eprintln!("assemble p50 {p50} us, p99 {p99} us, worst {} us", times[times.len() - 1]);
    eprintln!("ingest of all {whole_us} us, of one p50 {} us, p99 {} us", one[150], one[297]);
    eprintln!("index {bytes} bytes");
    assert!(p99 < P99_US && bytes < INDEX_BYTES);
}

//! What a request costs in a session of 100,000 entries, in processor time: the worst case, where `recall` and `dag` move their window
//! and write a note for a new prompt in every request, and the usual one, a session that continues turn by turn. Baseline: the BM25
//! search for the same prompt alone, in the same run. The entries are the demo sessions, repeated with other spellings of a sixth of
//! their longer words, so that the vocabulary grows as in a real one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice, clippy::print_stdout)]

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::Criterion;
use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{AssembleRequest, IngestRequest, Transcript};
use ctxhost_engine_dag::DagEngine;
use ctxhost_engine_recall::RecallEngine;
use ctxhost_text::search::{TermIndex, distinct_terms, for_each_term, split_into_slices};
use regex::{Captures, Regex};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

const ENTRIES: u64 = 100_000;
/// A budget that rises by more than the slack moves the window, so these two in turn always do.
const BUDGETS: [u64; 2] = [32_000, 64_000];
/// The budgets of the session that continues, and its model calls at each.
const USUAL_BUDGETS: [u64; 3] = [16_000, 32_000, 64_000];
const USUAL_CALLS: usize = 1_500;
/// As in the engines.
const SLICE_TOKENS: u64 = 100;
const ROUNDS: usize = 300;
const MEGABYTE: u64 = 1_000_000;

fn main() {
    let (mut talk, prompts) = long_session(ENTRIES);
    let transcript = talk.transcript();
    let mut index = TermIndex::default();
    for entry in transcript.iter() {
        for range in split_into_slices(entry.text(), SLICE_TOKENS) {
            index.add(|terms| for_each_term(&entry.text()[range], |term| terms.push(term)));
        }
    }
    let search = |round: usize| {
        let terms = distinct_terms(prompt_of(&prompts, round)).into_iter();
        drop(black_box(index.search(&terms.map(|term| (term, 1.0)).collect::<Vec<_>>())));
    };
    let engines = [
        ("recall", EngineFactory::linked::<RecallEngine>()),
        ("dag", EngineFactory::linked::<DagEngine>()),
    ];
    let engines = engines.map(|(name, factory)| (name, open(factory, &talk)));
    let assemble = |engine: &EngineHandle, round: usize| {
        let budget = BUDGETS.get(round % BUDGETS.len()).copied().unwrap_or_default();
        assemble(engine, &transcript, budget, prompt_of(&prompts, round));
    };

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("100k entries, window move and note");
    let mut round = 0;
    group.bench_function("bm25 alone", |b| {
        b.iter(|| {
            round += 1;
            search(round);
        });
    });
    for (name, engine) in &engines {
        group.bench_function(*name, |b| {
            b.iter(|| {
                round += 1;
                assemble(engine, round);
            });
        });
    }
    group.finish();
    criterion.final_summary();

    for (name, engine) in &engines {
        let pairs =
            (0..ROUNDS).map(|round| (timed(|| search(round)), timed(|| assemble(engine, round))));
        let (alone, whole): (Vec<Duration>, Vec<Duration>) = pairs.unzip();
        let bytes = engine.status().unwrap().details["index_bytes"].as_u64().unwrap_or_default();
        println!(
            "{name}: bm25 alone p50 {:?}, p99 {:?}; assemble p50 {:?}, p99 {:?}; ratio of the p99 {:.1}; index {} MB",
            quantile(&alone, 50),
            quantile(&alone, 99),
            quantile(&whole, 50),
            quantile(&whole, 99),
            quantile(&whole, 99).as_secs_f64() / quantile(&alone, 99).as_secs_f64(),
            bytes / MEGABYTE,
        );
    }
    for (name, engine) in &engines {
        for budget in USUAL_BUDGETS {
            let times = continue_session(engine, &mut talk, budget);
            println!(
                "{name}: turn by turn at {budget} tokens, {} requests: assemble p50 {:?}, p99 {:?}, max {:?}",
                times.len(),
                quantile(&times, 50),
                quantile(&times, 99),
                times.iter().max().copied().unwrap_or_default(),
            );
        }
    }
    for (name, factory) in [
        ("recall", EngineFactory::linked::<RecallEngine>()),
        ("dag", EngineFactory::linked::<DagEngine>()),
    ] {
        let (mut short, _) = long_session(ENTRIES / 100);
        let small = ingest_messages(&open(factory, &short), &mut short, &prompts);
        let large = engines.iter().find(|(known, _)| *known == name).map(|(_, engine)| engine);
        let large = ingest_messages(large.unwrap(), &mut talk, &prompts);
        println!(
            "{name}: ingest of one message, median after 1,000 entries {small:?}, after 100,000 {large:?}, ratio {:.2}",
            large.as_secs_f64() / small.as_secs_f64()
        );
    }
}

fn open(factory: EngineFactory, talk: &TranscriptBuilder) -> EngineHandle {
    let engine = factory.create(std::sync::Arc::new(ScriptedHost::new()), &json!({})).unwrap();
    ingest(&engine, talk, 0);
    engine
}

fn ingest(engine: &EngineHandle, talk: &TranscriptBuilder, from: u64) {
    let request = IngestRequest { entries: from..talk.len(), ..IngestRequest::default() };
    block_on(engine.ingest(talk.transcript(), request)).unwrap();
}

fn assemble(engine: &EngineHandle, transcript: &Transcript, budget: u64, prompt: &str) {
    let prompt = prompt.to_owned();
    let request = AssembleRequest { budget, prompt, ..AssembleRequest::default() };
    drop(black_box(block_on(engine.assemble(transcript.clone(), request)).unwrap()));
}

/// The times of the requests for the next answers of the model, each before the answer and its results are added.
fn continue_session(
    engine: &EngineHandle,
    talk: &mut TranscriptBuilder,
    budget: u64,
) -> Vec<Duration> {
    let (messages, words) = (demo_messages(), varied_words());
    let mut times = Vec::new();
    while times.len() < USUAL_CALLS {
        // A spelling that no earlier copy has.
        let copy = talk.len();
        let mut prompt = String::new();
        for message in &messages {
            if message["role"] == "assistant" {
                let transcript = talk.transcript();
                times.push(timed(|| assemble(engine, &transcript, budget, &prompt)));
            }
            let from = talk.len();
            add_copy(talk, message, copy, &words);
            ingest(engine, talk, from);
            // A round of tools has no new prompt.
            let is_user = message["role"] == "user";
            prompt = if is_user { text_of(message) } else { String::new() };
        }
    }
    times
}

/// The median time to ingest one more message.
fn ingest_messages(
    engine: &EngineHandle,
    talk: &mut TranscriptBuilder,
    prompts: &[String],
) -> Duration {
    let times = (0..ROUNDS).map(|round| {
        let from = talk.len();
        talk.user(prompt_of(prompts, round));
        timed(|| ingest(engine, talk, from))
    });
    quantile(&times.collect::<Vec<_>>(), 50)
}

fn prompt_of(prompts: &[String], round: usize) -> &str {
    prompts.get(round % prompts.len()).map_or("", String::as_str)
}

/// Processor time of this thread; other load on the machine does not count.
fn timed(work: impl FnOnce()) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let began = now();
    work();
    now() - began
}

fn quantile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() * percent / 100).copied().unwrap_or_default()
}

/// A session of the demo sessions' messages, and their prompts.
fn long_session(entries: u64) -> (TranscriptBuilder, Vec<String>) {
    let messages = demo_messages();
    let is_user = |message: &&Value| message["role"] == "user";
    let prompts = messages.iter().filter(is_user).map(text_of).collect();
    let words = varied_words();
    let mut talk = TranscriptBuilder::new();
    let mut copy = 0;
    while talk.len() < entries {
        for message in &messages {
            add_copy(&mut talk, message, copy, &words);
        }
        copy += 1;
    }
    (talk, prompts)
}

fn varied_words() -> Regex {
    Regex::new("[A-Za-z_]{5,}").unwrap()
}

fn demo_messages() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/sessions");
    let mut messages = Vec::new();
    for name in ["coding.jsonl", "mixed.jsonl"] {
        let file = std::fs::read_to_string(folder.join(name)).unwrap();
        let records = file.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        messages.extend(records.filter_map(|record| record.get("message").cloned()));
    }
    messages
}

fn text_of(message: &Value) -> String {
    if let Some(text) = message["content"].as_str() {
        return text.to_owned();
    }
    let blocks = message["content"].as_array().cloned().unwrap_or_default();
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Adds a message with the spellings of a copy.
fn add_copy(talk: &mut TranscriptBuilder, message: &Value, copy: u64, words: &Regex) {
    let vary = |text: &str| {
        let other = |word: &Captures<'_>| match word.get(0).map_or("", |word| word.as_str()) {
            word if copy > 0 && word.len() % 6 == 0 => format!("{word}q{copy}"),
            word => word.to_owned(),
        };
        words.replace_all(text, other).into_owned()
    };
    let text = vary(&text_of(message));
    let id_of = |value: &Value| format!("{copy}-{}", value.as_str().unwrap_or_default());
    let blocks = message["content"].as_array().cloned().unwrap_or_default();
    let calls = blocks.iter().filter(|block| block["type"] == "toolCall").map(|block| {
        let name = block["name"].as_str().unwrap_or_default().to_owned();
        (id_of(&block["id"]), name, vary(&block["arguments"].to_string()))
    });
    let calls: Vec<(String, String, String)> = calls.collect();
    match message["role"].as_str() {
        Some("user") => _ = talk.user(&text),
        Some("toolResult") => {
            let tool = message["toolName"].as_str().unwrap_or_default();
            talk.result(&id_of(&message["toolCallId"]), tool, &text);
        }
        _ if calls.is_empty() => _ = talk.assistant(&text),
        _ => {
            let calls = calls.iter().map(|(id, name, arguments)| (&**id, &**name, &**arguments));
            talk.calls(&calls.collect::<Vec<_>>());
        }
    }
}

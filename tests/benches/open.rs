//! Bench: opening a session of 1,000,000 entries and 3,000 compactions, in full and by its checkpoint.
//!
//! Each figure is taken in a process of its own. `cargo bench -p ctxhost-tests --bench open -- 100000` sets the number
//! of entries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ctxhost_session::{RecordBody, Session};
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};
use ctxhost_tests::workplace::ConfigText;
use serde_json::{Value, json};

/// Entries of the session, unless the command says otherwise.
const ENTRIES: usize = 1_000_000;
/// Entries between two compactions.
const SPAN: usize = 333;
/// Entries that a compaction keeps of the newest ones.
const KEPT: usize = 20;
/// Characters of a message: with its record about half a kilobyte.
const TEXT_CHARS: usize = 300;
/// Runs of which the middle one counts.
const RUNS: usize = 3;
const WINDOW_TOKENS: u64 = 200_000;

/// The variable that says what a child is to measure.
const CHILD: &str = "CTXHOST_BENCH_OPEN";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Ok(what) = std::env::var(CHILD) {
        let path = arguments.first().map(PathBuf::from).unwrap();
        return measure(&what, &path);
    }
    let entries = arguments.iter().find_map(|it| it.parse().ok()).unwrap_or(ENTRIES);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    write_session(&path, entries);
    let bytes = fs::metadata(&path).unwrap().len();
    println!("{entries} entries, {} compactions, {} MB", entries / SPAN, bytes / 1_000_000);

    let whole = run("open", &path, || forget(&path));
    let whole_turn = run("turn", &path, || forget(&path));
    forget(&path);
    child("append", &path);
    for suffix in ["live", "ids"] {
        let bytes = fs::metadata(beside(&path, suffix)).unwrap().len();
        println!("session.jsonl.{suffix}: {} kB", bytes / 1_000);
    }
    let fast = run("open", &path, || ());
    let fast_turn = run("turn", &path, || ());
    for (what, whole, fast) in [("open", whole, fast), ("open and one turn", whole_turn, fast_turn)]
    {
        println!(
            "{what}: whole {:.1} ms, {} MB; by checkpoint {:.2} ms, {} MB; ratio {:.0}",
            whole.ms,
            whole.kilobytes / 1_000,
            fast.ms,
            fast.kilobytes / 1_000,
            whole.ms / fast.ms,
        );
    }
}

/// Time and peak of memory of one run.
#[derive(Clone, Copy, Debug)]
struct Cost {
    ms: f64,
    kilobytes: u64,
}

/// The middle one of some runs in children, each after `before`.
fn run(what: &str, path: &Path, before: impl Fn()) -> Cost {
    let mut costs: Vec<Cost> = (0..RUNS)
        .map(|_| {
            before();
            child(what, path)
        })
        .collect();
    costs.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    *costs.get(RUNS / 2).unwrap()
}

fn child(what: &str, path: &Path) -> Cost {
    let output = Command::new(std::env::current_exe().unwrap()).arg(path).env(CHILD, what).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    Cost { ms: said["ms"].as_f64().unwrap(), kilobytes: said["kilobytes"].as_u64().unwrap() }
}

/// What a child does: says how long it took and what it held at most.
fn measure(what: &str, path: &Path) {
    let took = match what {
        "open" => timed(|| {
            let session = Session::open(path).unwrap();
            assert!(session.live(0).snapshot().len() > KEPT && session.model().is_some());
        }),
        "append" => timed(|| {
            let mut session = Session::open(path).unwrap();
            session.append(RecordBody::session_info("long")).unwrap();
        }),
        _ => turn(path),
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").trim().parse().unwrap();
    println!("{}", json!({ "ms": took.as_secs_f64() * 1_000.0, "kilobytes": kilobytes }));
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// A runtime opens the session and answers once.
fn turn(path: &Path) -> Duration {
    let wire = Wire::OpenAiChat;
    let server = ScriptedServer::start(wire, Model::new(WINDOW_TOKENS))
        .script(Steps::new([vec![Step::say("It is 4711.")]]));
    let place = ConfigText::new().provider("fake", wire, &server.url(), WINDOW_TOKENS).workplace();
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    threads.block_on(async {
        let runtime = place.runtime().build().await.unwrap();
        let began = Instant::now();
        let session = runtime.open_session(path).unwrap();
        let reply = runtime.send(&session, "Which number is it?").await.unwrap();
        let took = began.elapsed();
        assert!(format!("{reply:?}").contains("4711"));
        runtime.shutdown().await;
        took
    })
}

fn forget(path: &Path) {
    for suffix in ["live", "ids"] {
        let _ = fs::remove_file(beside(path, suffix));
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    path.with_file_name(format!("session.jsonl.{suffix}"))
}

/// A conversation of an agent: asks, calls, results, answers, and a compaction after each span.
fn write_session(path: &Path, entries: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let text = "lorem ipsum dolor ".repeat(TEXT_CHARS / 18);
    let header = json!({ "type": "session", "version": 3, "id": "long",
        "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/home/dev" });
    writeln!(file, "{header}").unwrap();
    let mut parent = Value::Null;
    for number in 0..entries {
        let id = id_of(number);
        let record = json!({ "type": "message", "id": id, "parentId": parent,
            "timestamp": "2026-01-01T00:00:01.000Z", "message": message(number, &text) });
        writeln!(file, "{record}").unwrap();
        parent = json!(id);
        // The newest entries follow the newest compaction.
        if number % SPAN == SPAN - 1 && number + SPAN <= entries {
            let compaction = compaction(number, &parent, &text);
            writeln!(file, "{compaction}").unwrap();
            parent = compaction["id"].clone();
        }
    }
    file.flush().unwrap();
}

fn message(number: usize, text: &str) -> Value {
    let call = json!(format!("call{}", number / 4));
    match number % 4 {
        0 => json!({ "role": "user", "content": format!("{number}: {text}") }),
        1 => {
            json!({ "role": "assistant", "provider": "fake", "model": "gpt-4.1", "stopReason": "toolUse",
            "content": [{ "type": "text", "text": text },
                { "type": "toolCall", "id": call, "name": "read_file", "arguments": { "path": "a.rs" } }] })
        }
        2 => {
            json!({ "role": "toolResult", "toolCallId": call, "toolName": "read_file", "isError": false,
            "content": [{ "type": "text", "text": text }] })
        }
        _ => {
            json!({ "role": "assistant", "provider": "fake", "model": "gpt-4.1", "stopReason": "stop",
            "content": [{ "type": "text", "text": text }] })
        }
    }
}

/// A compaction that keeps the first task and the newest entries, from an ask on.
fn compaction(last: usize, parent: &Value, text: &str) -> Value {
    let first_kept = id_of((last - KEPT) / 4 * 4);
    json!({ "type": "compaction", "id": format!("c{last:07x}"), "parentId": parent,
        "timestamp": "2026-01-01T00:00:02.000Z", "summary": text, "firstKeptEntryId": first_kept,
        "tokensBefore": 40_000, "details": { "ctxhost": { "version": 1, "engine": "legacy",
            "engineVersion": "1.0.0", "trigger": "threshold", "tokensAfter": 4_000, "items": [
                { "keep": id_of(0) }, { "insert": "user", "text": text },
                { "keepRange": [first_kept, parent] }] } } })
}

fn id_of(number: usize) -> String {
    format!("{number:08x}")
}

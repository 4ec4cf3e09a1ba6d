//! Long random conversations of an agent: nothing breaks and nothing is lost.
//!
//! `CTXHOST_SOAK_TURNS=500 cargo test -p ctxhost-tests --test agent soak -- --nocapture` is the long run;
//! the name of a dialect behind it runs that one alone.

use std::collections::HashSet;
use std::time::Instant;

use ctxhost_agent::event::EventKind;
use ctxhost_context::{CompactionOutcome, CompactionVerdict};
use ctxhost_dialects::ChatMessage;
use ctxhost_engine::HostClock;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Wanderer};
use ctxhost_tests::stage::{Stage, compactions};
use ctxhost_tests::workplace::{ConfigText, Workplace, answers, messages, model_of, words};

const WINDOW_TOKENS: u64 = 32_000;

/// Turns where nobody says how many: enough for a compaction or two.
const FEW_TURNS: usize = 24;

/// Time between two turns, in milliseconds: a compaction every quarter of an hour is within the law.
const PAUSE_MS: i64 = 180_000;

#[tokio::test]
async fn openai_chat() {
    soak(Wire::OpenAiChat, true).await;
}

#[tokio::test]
async fn responses() {
    soak(Wire::Responses, false).await;
}

#[tokio::test]
async fn anthropic() {
    soak(Wire::Anthropic, true).await;
}

#[tokio::test]
async fn gemini() {
    soak(Wire::Gemini, false).await;
}

#[tokio::test]
async fn ollama() {
    soak(Wire::Ollama, false).await;
}

/// One conversation; the summaries are written by the model or offline.
async fn soak(wire: Wire, model_writes_summaries: bool) {
    let turns = std::env::var("CTXHOST_SOAK_TURNS").ok().and_then(|turns| turns.parse().ok());
    let turns: usize = turns.unwrap_or(FEW_TURNS);
    let server = ScriptedServer::start(wire, Model::new(WINDOW_TOKENS))
        .seed(11)
        .keep_bodies(2)
        .script(wanderer());
    let place = workplace(wire, &server, model_writes_summaries);
    let clock = HostClock::recorded();
    let mut now_ms = 1_790_000_000_000;
    clock.set(now_ms);
    let begun = Instant::now();
    let mut stage = Stage::open_with(&place, place.runtime().clock(clock.clone())).await;
    let mut said = Vec::new();
    for n in 0..turns {
        let text = format!(
            "Request {n}: look after file_{n}.rs and ticket OPS-{n} of /srv/app. {}",
            "The log says that nothing was written to the ledger. ".repeat(n % 5 * 30)
        );
        let outcome = stage.say(&text).await;
        outcome.unwrap_or_else(|error| panic!("{wire:?}, turn {n}: {error}"));
        said.push(text);
        now_ms += PAUSE_MS;
        clock.set(now_ms);
    }
    let log = stage.close().await;
    let compactions = compactions(&log);
    report(wire, &server, &compactions, turns, begun);

    assert_eq!(server.broken(), [], "{wire:?}");
    let applied =
        compactions.iter().filter(|outcome| outcome.verdict == CompactionVerdict::Applied).count();
    assert!(applied > 0, "{wire:?}: no compaction in {turns} turns");
    let session = place.session();
    assert!(words(&session) == said, "{wire:?}: words were lost or told twice");
    assert!(answers(&session) == received(&log), "{wire:?}: answers were lost or told twice");
    assert_every_call_has_its_result(&messages(&session));
    let recorded =
        session.branch().into_iter().filter(|record| record.kind().name() == "compaction");
    assert_eq!(recorded.count(), applied, "{wire:?}: a compaction is not on record");

    let mut stage = Stage::open_with(&place, place.runtime().clock(clock)).await;
    stage.say("Where were we?").await.unwrap();
    stage.close().await;
    assert_eq!(server.broken(), [], "{wire:?}: after it was opened again");
    assert_eq!(words(&place.session()).len(), turns + 1, "{wire:?}");
}

fn wanderer() -> Wanderer {
    let paths = ["notes.txt", "long.txt", "absent.rs"].map(str::to_owned);
    let commands = ["seq 1 400", "echo done", "false", "cat long.txt"].map(str::to_owned);
    Wanderer::new(5).paths(paths).commands(commands)
}

fn workplace(wire: Wire, server: &ScriptedServer, model_writes_summaries: bool) -> Workplace {
    let config = ConfigText::new().provider("fake", wire, &server.url(), WINDOW_TOKENS);
    let config = config.agent("max_output_tokens = 2000");
    let summariser = format!("[summariser]\nprovider = \"fake\"\nmodel = \"{}\"", model_of(wire));
    let config = if model_writes_summaries { config.tables(&summariser) } else { config };
    config.workplace()
}

/// The answers as they were heard while they came.
fn received(log: &[EventKind]) -> Vec<String> {
    let (mut answers, mut text) = (Vec::new(), String::new());
    for what in log {
        match what {
            EventKind::Text(more) => text.push_str(more),
            EventKind::Answered { .. } => answers.push(std::mem::take(&mut text)),
            // What was heard before is said again.
            EventKind::Recovering { .. } => text.clear(),
            _ => {}
        }
    }
    answers
}

fn assert_every_call_has_its_result(messages: &[ChatMessage]) {
    let mut open = HashSet::new();
    for message in messages {
        match message {
            ChatMessage::Assistant(answer) => {
                open.extend(answer.tool_calls().map(|call| call.id.clone()));
            }
            ChatMessage::ToolResult(result) => {
                assert!(open.remove(&result.tool_call_id), "{} comes twice", result.tool_call_id);
            }
            ChatMessage::User(_) => {}
        }
    }
    assert!(open.is_empty(), "calls without a result: {open:?}");
}

/// The record of the run.
fn report(
    wire: Wire,
    server: &ScriptedServer,
    compactions: &[CompactionOutcome],
    turns: usize,
    begun: Instant,
) {
    let requests = server.requests();
    let count =
        |is: fn(&Answered) -> bool| requests.iter().filter(|seen| is(&seen.answered)).count();
    eprintln!(
        "{wire:?}: {turns} turns, {} requests ({} summaries, {} too large, {} broken rules), largest {} of {WINDOW_TOKENS} tokens, {:.1} s",
        requests.len(),
        count(|answered| *answered == Answered::Summary),
        count(|answered| matches!(answered, Answered::Overflow(_))),
        server.broken().len(),
        requests.iter().map(|seen| seen.prompt_tokens).max().unwrap_or_default(),
        begun.elapsed().as_secs_f64(),
    );
    for outcome in compactions {
        let CompactionOutcome { engine, trigger, before_tokens, after_tokens, verdict, .. } =
            outcome;
        let folded = outcome.folded.len();
        match verdict {
            CompactionVerdict::Applied => eprintln!(
                "  {engine} ({}) {before_tokens} -> {after_tokens} tokens, {folded} entries folded",
                trigger.name()
            ),
            other => eprintln!("  {engine} ({}) {other:?}", trigger.name()),
        }
    }
}

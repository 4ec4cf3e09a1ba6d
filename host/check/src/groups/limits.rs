//! `limits`: sizes and budgets at both ends. An engine may refuse a budget; it may not break on one.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{Compaction, Transcript, Trigger};

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats};
use crate::harness::CaseHarness;
use crate::plan_check::check_plan;
use crate::provider::ProviderFamily;
use crate::settings::{GIANT_BYTES, LONG_ENTRIES};
use crate::workload;

pub(super) const CASES: [NamedCase; 8] = [
    ("no message", |bench| every_budget(bench, &TranscriptBuilder::new())),
    ("one message", |bench| every_budget(bench, TranscriptBuilder::new().user("hello"))),
    ("50k messages", long),
    ("an 8 MiB message", giant_message),
    ("an 8 MiB result", giant_result),
    ("CJK", |bench| {
        every_budget(bench, &foreign("変更点を説明してください。请检查文件。한국어 문장."))
    }),
    ("emoji", |bench| {
        every_budget(
            bench,
            &foreign("\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}\u{1F600}\u{1F1E9}\u{1F1EA}"),
        )
    }),
    ("images", images),
];

pub(super) const COVERED: &str = "empty, 1 message, 50k messages, 8 MiB message, CJK, emoji, images, \
                                  budgets 0, 1, tiny, huge";

/// None, one, too little for anything, a share, everything, without end.
fn budgets(view: &Transcript) -> [u64; 6] {
    let total = view.total_tokens();
    [0, 1, 40, total / 3, total, u64::MAX]
}

fn every_budget(bench: &CaseHarness<'_>, talk: &TranscriptBuilder) -> CaseOutcome {
    let view = talk.transcript();
    let stage = bench.open(bench.host_with_model())?;
    stage.bootstrap_and_ingest(&view)?;
    let mut checks = 0;
    for budget in budgets(&view) {
        if let Some(plan) = stage.assemble(&view, budget)? {
            check_plan("assemble", &view, &plan, budget, ProviderFamily::Anthropic)?;
        }
        checks += 1;
    }
    for (budget, trigger) in [(0, Trigger::Overflow), (view.total_tokens() / 3, Trigger::Threshold)]
    {
        if let Ok(Compaction::Plan(plan)) = stage.compact(&view, budget, trigger)? {
            check_plan("compact", &view, &plan, budget, ProviderFamily::Anthropic)?;
        }
        checks += 1;
    }
    stage.dispose()?;
    Ok(CaseStats::with_checks(checks + 1))
}

fn long(bench: &CaseHarness<'_>) -> CaseOutcome {
    every_budget(bench, &workload::session(LONG_ENTRIES / 6))
}

fn giant_message(bench: &CaseHarness<'_>) -> CaseOutcome {
    let mut talk = workload::session(4);
    talk.user(&line().repeat(GIANT_BYTES / line().len())).assistant("That is long.").user("Go on.");
    every_budget(bench, &talk)
}

fn giant_result(bench: &CaseHarness<'_>) -> CaseOutcome {
    let mut talk = workload::session(4);
    talk.user("Show me the log.").calls(&[("giant", "bash", r#"{"command":"cat log"}"#)]);
    talk.result("giant", "bash", &line().repeat(GIANT_BYTES / line().len()));
    talk.assistant("It is long.").user("Look again.");
    every_budget(bench, &talk)
}

fn line() -> &'static str {
    "2026-01-01T00:00:00Z info worker 7: 処理が完了しました src/part7/lib.rs:41\n"
}

/// A session of work in which every text is of one script, cut where only whole characters are safe.
fn foreign(words: &str) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for number in 0..30 {
        let (call, text) = (format!("c{number}"), words.repeat(1 + number % 7 * 20));
        talk.user(&text).calls(&[(&call, "read", "{}")]).result(&call, "read", &text.repeat(3));
        talk.thinking(&text, &text);
    }
    talk
}

fn images(bench: &CaseHarness<'_>) -> CaseOutcome {
    let mut talk = workload::session(6);
    for number in 0..40 {
        talk.image(&format!("screenshot {number}")).assistant("I see it.");
    }
    every_budget(bench, &talk)
}

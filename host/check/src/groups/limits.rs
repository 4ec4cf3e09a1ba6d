//! The group `limits`: extreme sizes and budgets. An engine may reject a budget but must not fail on one.

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
    ("no message", |harness| every_budget(harness, &TranscriptBuilder::new())),
    ("one message", |harness| every_budget(harness, TranscriptBuilder::new().user("hello"))),
    ("50k messages", long),
    ("an 8 MiB message", giant_message),
    ("an 8 MiB result", giant_result),
    ("CJK", |harness| {
        every_budget(harness, &foreign("変更点を説明してください。请检查文件。한국어 문장."))
    }),
    ("emoji", |harness| {
        every_budget(
            harness,
            &foreign("\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}\u{1F600}\u{1F1E9}\u{1F1EA}"),
        )
    }),
    ("images", images),
];

pub(super) const COVERED: &str = "empty, 1 message, 50k messages, 8 MiB message, CJK, emoji, images, \
                                  budgets 0, 1, tiny, huge";

/// 0, 1, too small for any entry, a third, all, unlimited.
fn budgets(view: &Transcript) -> [u64; 6] {
    let total = view.total_tokens();
    [0, 1, 40, total / 3, total, u64::MAX]
}

fn every_budget(harness: &CaseHarness<'_>, builder: &TranscriptBuilder) -> CaseOutcome {
    let view = builder.transcript();
    let target = harness.open(harness.host_with_model())?;
    target.bootstrap_and_ingest(&view)?;
    let mut checks = 0;
    for budget in budgets(&view) {
        if let Some(plan) = target.assemble(&view, budget)? {
            check_plan("assemble", &view, &plan, budget, ProviderFamily::Anthropic)?;
        }
        checks += 1;
    }
    for (budget, trigger) in [(0, Trigger::Overflow), (view.total_tokens() / 3, Trigger::Threshold)]
    {
        if let Ok(Compaction::Plan(plan)) = target.compact(&view, budget, trigger)? {
            check_plan("compact", &view, &plan, budget, ProviderFamily::Anthropic)?;
        }
        checks += 1;
    }
    target.dispose()?;
    Ok(CaseStats::with_checks(checks + 1))
}

fn long(harness: &CaseHarness<'_>) -> CaseOutcome {
    // Six entries for each round of the workload.
    every_budget(harness, &workload::session(LONG_ENTRIES / 6))
}

fn giant_message(harness: &CaseHarness<'_>) -> CaseOutcome {
    let mut builder = workload::session(4);
    builder
        .user(&line().repeat(GIANT_BYTES / line().len()))
        .assistant("That is long.")
        .user("Go on.");
    every_budget(harness, &builder)
}

fn giant_result(harness: &CaseHarness<'_>) -> CaseOutcome {
    let mut builder = workload::session(4);
    builder.user("Show me the log.").calls(&[("giant", "bash", r#"{"command":"cat log"}"#)]);
    builder.result("giant", "bash", &line().repeat(GIANT_BYTES / line().len()));
    builder.assistant("It is long.").user("Look again.");
    every_budget(harness, &builder)
}

fn line() -> &'static str {
    "2026-01-01T00:00:00Z info worker 7: 処理が完了しました src/part7/lib.rs:41\n"
}

/// A session with texts of one script, in which a cut inside a character would show.
fn foreign(words: &str) -> TranscriptBuilder {
    let mut builder = TranscriptBuilder::new();
    for number in 0..30 {
        let (call, text) = (format!("c{number}"), words.repeat(1 + number % 7 * 20));
        builder.user(&text).calls(&[(&call, "read", "{}")]).result(&call, "read", &text.repeat(3));
        builder.thinking(&text, &text);
    }
    builder
}

fn images(harness: &CaseHarness<'_>) -> CaseOutcome {
    let mut builder = workload::session(6);
    for number in 0..40 {
        builder.image(&format!("screenshot {number}")).assistant("I see it.");
    }
    every_budget(harness, &builder)
}

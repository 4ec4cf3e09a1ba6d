//! `limits`: sizes and budgets at both ends. An engine may refuse a budget; it may not break on one.

use ctxhost_engine_api::testing::Conversation;
use ctxhost_engine_api::{Compaction, Transcript, Trigger};

use super::Named;
use crate::bench::Bench;
use crate::fault::{Outcome, Passed};
use crate::judge::judge;
use crate::provider::Family;
use crate::settings::{GIANT_BYTES, LONG_ENTRIES};
use crate::working;

pub(super) const CASES: [Named; 8] = [
    ("no message", |bench| every_budget(bench, &Conversation::new())),
    ("one message", |bench| every_budget(bench, Conversation::new().user("hello"))),
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

fn every_budget(bench: &Bench<'_>, talk: &Conversation) -> Outcome {
    let view = talk.transcript();
    let stage = bench.open(bench.host_with_model())?;
    stage.take_in(&view)?;
    let mut checks = 0;
    for budget in budgets(&view) {
        if let Some(plan) = stage.assemble(&view, budget)? {
            judge("assemble", &view, &plan, budget, Family::Anthropic)?;
        }
        checks += 1;
    }
    for (budget, trigger) in [(0, Trigger::Overflow), (view.total_tokens() / 3, Trigger::Threshold)]
    {
        if let Ok(Compaction::Plan(plan)) = stage.compact(&view, budget, trigger)? {
            judge("compact", &view, &plan, budget, Family::Anthropic)?;
        }
        checks += 1;
    }
    stage.dispose()?;
    Ok(Passed::checks(checks + 1))
}

fn long(bench: &Bench<'_>) -> Outcome {
    every_budget(bench, &working::session(LONG_ENTRIES / 6))
}

fn giant_message(bench: &Bench<'_>) -> Outcome {
    let mut talk = working::session(4);
    talk.user(&line().repeat(GIANT_BYTES / line().len())).assistant("That is long.").user("Go on.");
    every_budget(bench, &talk)
}

fn giant_result(bench: &Bench<'_>) -> Outcome {
    let mut talk = working::session(4);
    talk.user("Show me the log.").calls(&[("giant", "bash", r#"{"command":"cat log"}"#)]);
    talk.result("giant", "bash", &line().repeat(GIANT_BYTES / line().len()));
    talk.assistant("It is long.").user("Look again.");
    every_budget(bench, &talk)
}

fn line() -> &'static str {
    "2026-01-01T00:00:00Z info worker 7: 処理が完了しました src/part7/lib.rs:41\n"
}

/// A session of work in which every text is of one script, cut where only whole characters are safe.
fn foreign(words: &str) -> Conversation {
    let mut talk = Conversation::new();
    for number in 0..30 {
        let (call, text) = (format!("c{number}"), words.repeat(1 + number % 7 * 20));
        talk.user(&text).calls(&[(&call, "read", "{}")]).result(&call, "read", &text.repeat(3));
        talk.thinking(&text, &text);
    }
    talk
}

fn images(bench: &Bench<'_>) -> Outcome {
    let mut talk = working::session(6);
    for number in 0..40 {
        talk.image(&format!("screenshot {number}")).assistant("I see it.");
    }
    every_budget(bench, &talk)
}

//! Compaction hooks of an embedding program: observe, cancel, write the summary.

use std::sync::{Arc, Mutex};

use ctxhost_agent::OfflineOptions;
use ctxhost_agent::replay::replay;
use ctxhost_agent::replay::report::EngineRun;
use ctxhost_config::Config;
use ctxhost_context::hook::{CompactionHook, HookDecision, PendingCompaction};
use ctxhost_context::{Budget, CompactionOutcome, CompactionVerdict, Target};
use ctxhost_engine::{EngineSpec, OnEngineError};
use ctxhost_session::Session;
use ctxhost_tests::recorded_session;
use serde_json::json;

/// Writes down what it sees and decides what it was told to.
#[derive(Debug)]
struct Witness {
    decision: HookDecision,
    seen: Mutex<Vec<String>>,
}

impl CompactionHook for Witness {
    fn before_compaction(&self, coming: &PendingCompaction<'_>) -> HookDecision {
        assert!(coming.before_tokens > 0 && !coming.view.is_empty());
        self.seen.lock().unwrap().push("before".into());
        self.decision.clone()
    }

    fn after_compaction(&self, outcome: &CompactionOutcome) {
        let word = match &outcome.verdict {
            CompactionVerdict::Applied => "applied".into(),
            CompactionVerdict::Rejected { reason } | CompactionVerdict::NotTried { reason } => {
                reason.clone()
            }
        };
        self.seen.lock().unwrap().push(word);
    }
}

fn run(decision: HookDecision) -> (EngineRun, Vec<String>) {
    let witness = Arc::new(Witness { decision, seen: Mutex::default() });
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let target = Target {
        window_tokens: 32_000,
        budget: Some(Budget { tokens: 20_000, reserve_tokens: 8_000, spare_tokens: 0 }),
        ..Target::default()
    };
    let mut options = OfflineOptions::new(&Config::default(), legacy.clone(), target);
    options.engines.on_error = OnEngineError::Fail;
    options.context.hooks = vec![witness.clone()];
    let session = Session::parse("recorded", &recorded_session()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = runtime.block_on(replay(&session, &legacy, &options, |_| {})).unwrap();
    let seen = witness.seen.lock().unwrap().clone();
    (run, seen)
}

#[test]
fn a_hook_sees_every_compaction_before_and_after() {
    let (run, seen) = run(HookDecision::Proceed);
    let applied = seen.iter().filter(|word| *word == "applied").count() as u64;
    assert!(applied >= 1);
    assert_eq!(applied, run.totals.compactions);
    assert_eq!(seen.iter().filter(|word| *word == "before").count() * 2, seen.len());
}

#[test]
fn a_hook_may_call_a_compaction_off() {
    let (run, seen) = run(HookDecision::Cancel { reason: "the user is typing".into() });
    assert_eq!(run.totals.compactions, 0);
    assert!(seen.contains(&"cancelled by a hook: the user is typing".to_owned()));
    assert_eq!(run.totals.violations, 0, "the emergency trim violates no invariant");
    assert!(run.totals.fallbacks > 0, "and said so");
}

#[test]
fn a_hook_may_write_the_summary() {
    let words = "What happened so far: the version matrix was built.";
    let (run, _) = run(HookDecision::Supply { summary: words.into() });
    let row = run.compactions.iter().find(|row| row.applied).expect("one was applied");
    assert_eq!((row.engine.as_str(), row.summary.as_str()), ("hook", words));
    assert_eq!(run.totals.violations, 0);
}

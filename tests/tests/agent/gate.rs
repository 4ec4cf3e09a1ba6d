//! The quality gate: a compaction that keeps too little is not applied, whichever engine made it.

use std::fs;
use std::path::Path;

use ctxhost_agent::replay::replay;
use ctxhost_agent::{OfflineOptions, compact_session};
use ctxhost_config::Config;
use ctxhost_context::{Budget, CompactionOutcome, CompactionVerdict, Target};
use ctxhost_engine::{EngineSpec, OnEngineError};
use ctxhost_engine_api::*;
use ctxhost_retention::{CategoryShare, QualityGate};
use ctxhost_session::{RecordBody, Session};
use ctxhost_tests::recorded_session;
use serde_json::{Value, json};

/// Folds all but the newest two entries, and names what it lost only when it is asked again.
struct Forgetful {
    tells_at: u64,
}

impl ContextEngine for Forgetful {
    const INFO: Info = Info::new("forgetful", "Forgetful", "1.0.0");

    fn create(_: Host, config: Value) -> Result<Self> {
        Ok(Forgetful { tells_at: config["tells_at"].as_u64().unwrap_or(u64::MAX) })
    }

    async fn assemble(&self, transcript: Transcript, _: AssembleRequest) -> Result<Plan> {
        Ok(Plan::keep_all(transcript.len()))
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        let len = transcript.len() as u64;
        let cut = transcript.cut_at_or_before(len.saturating_sub(2));
        let reported =
            if u64::from(request.attempt) < self.tells_at { "something" } else { "src/cart.rs" };
        let mut plan = Plan::default();
        plan.insert(Role::User, format!("earlier: {reported}"), 0..cut).keep(cut..len);
        Ok(Compaction::Plan(plan))
    }
}

fn options(rules: &[&str]) -> OfflineOptions {
    let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
    let target = Target {
        window_tokens: 32_000,
        budget: Some(Budget { tokens: 20_000, reserve_tokens: 8_000, spare_tokens: 0 }),
        ..Target::default()
    };
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let mut options = OfflineOptions::new(&Config::default(), legacy, target);
    options.engines.on_error = OnEngineError::Fail;
    options.context.quality_gate = QualityGate::try_from(rules).unwrap();
    options
}

/// A session whose history names a file that its newest entries do not.
fn session(path: &Path) -> Session {
    let mut session = Session::create(path, "/srv/app", Some("gated")).unwrap();
    let mut say = |role: &str, text: String| {
        let body = json!({ "role": role, "content": text });
        session.append_at(RecordBody::message(&body.to_string()).unwrap(), 1).unwrap();
    };
    say("user", "Look after the cart.".into());
    say("assistant", format!("It is in src/cart.rs. {}", "Well. ".repeat(9_000)));
    say("user", "Go on.".into());
    say("assistant", "Done.".into());
    session
}

fn compact(path: &Path, tells_at: u64, rules: &[&str]) -> Vec<CompactionOutcome> {
    let engine = EngineSpec::linked::<Forgetful>(json!({ "tells_at": tells_at }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (session, options) = (session(path), options(rules));
    runtime.block_on(compact_session(session, &engine, &options, None, 2)).unwrap()
}

const REASON: &str = "it keeps 0 of 1 paths (0.00) and the gate wants 0.95; lost: src/cart.rs";

#[test]
fn a_compaction_that_drops_a_path_is_rejected_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let outcomes = compact(&path, u64::MAX, &["asks >= 1.0", "paths >= 0.95"]);
    assert_eq!(outcomes.len(), 3, "it is asked again, as often as any other");
    for outcome in &outcomes {
        assert_eq!(outcome.verdict, CompactionVerdict::Rejected { reason: REASON.into() });
        assert_eq!(outcome.retention.unwrap().paths, CategoryShare { kept: 0, total: 1 });
        assert_eq!(outcome.before_tokens, outcome.after_tokens);
    }
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 5, "header and messages");
}

#[test]
fn the_next_attempt_may_pass_and_its_record_says_what_it_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let outcomes = compact(&path, 2, &["paths >= 0.95"]);
    let verdicts: Vec<_> = outcomes.iter().map(|outcome| outcome.verdict.clone()).collect();
    assert_eq!(
        verdicts,
        [CompactionVerdict::Rejected { reason: REASON.into() }, CompactionVerdict::Applied]
    );
    let session = Session::read(&path).unwrap();
    let recorded = session.leaf().unwrap().compaction().unwrap();
    assert_eq!(recorded.engine, "forgetful");
    assert_eq!(recorded.host_details["survival"]["paths"], json!({ "kept": 1, "total": 1 }));
}

#[test]
fn where_nothing_passes_the_last_rung_shapes_lawful_requests() {
    let recorded = Session::parse("recorded", &recorded_session()).unwrap();
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let setup = options(&["numbers >= 1.0", "paths >= 1.0"]);
    let run = runtime.block_on(replay(&recorded, &legacy, &setup, |_| {})).unwrap();
    assert_eq!(run.totals.violations, 0);
    assert!(run.totals.rejected >= 3 && run.totals.fallbacks > 0, "{:?}", run.totals);
    assert!(run.compactions.iter().any(|row| row.reason.contains("the gate wants 1.00")));
    assert!(run.turns.iter().any(|turn| turn.shaped_by.contains(&"emergency trim".to_owned())));
}

//! Shadow engines: what they see, that they delay no request, and their log.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use ctxhost_engine_api::testing::generate::Script;
use ctxhost_engine_api::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::log::{ShadowLog, ShadowRecord, read};
use super::*;
use crate::testing::scripted_engine::scripted_engine;
use crate::testing::{Answer, RecordingEngine, ScriptedProvider, builder, config, session};
use ctxhost_engine::{EngineTimeouts, HostClock};
use ctxhost_invariants as invariants;

/// Longer than any expected wait.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Fixture {
    folder: TempDir,
    shadows: ShadowEngines,
}

impl Fixture {
    fn new(chains: &[Vec<EngineSpec>]) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let serving = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
        let services = ShadowServices { active: serving, may_complete: false };
        let legacy = EngineSpec::bundled("legacy", json!({}));
        let log = ShadowLog::new(folder.path().join("shadow.jsonl"), 1 << 20);
        let invariants = InvariantSettings::default();
        let shadows = ShadowEngines::open(chains, &legacy, &services, &invariants, log).unwrap();
        Fixture { folder, shadows }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shadow.jsonl")
    }

    /// Submits a request of a session with this many turns.
    fn submit(&self, turns: usize, budget: u64) {
        let mut script = Script::new();
        for turn in 0..turns {
            script = script.user(&format!("question {turn}")).assistant("an answer to it");
        }
        let view = script.user("and now?").finish().transcript();
        let plan = Plan::keep_all(view.len());
        let checked =
            invariants::enforce(&view, plan, budget, &InvariantSettings::default()).unwrap();
        let prompt = Prompt {
            budget_tokens: budget,
            view,
            checked,
            engine: "serving".into(),
            fallback: None,
            compactions: Vec::new(),
            notes: Vec::new(),
            rejected_plans: 0,
            took: Duration::from_micros(70),
        };
        let session = SessionRef { id: "s".into(), key: String::new() };
        let request = AssembleRequest { session, budget, now_ms: 5, ..AssembleRequest::default() };
        self.shadows.submit(request, &prompt);
    }

    async fn lines(&self) -> Vec<ShadowRecord> {
        tokio::time::timeout(TIMEOUT, self.shadows.flush()).await.expect("they end");
        read(&self.path(), 0).unwrap().0
    }
}

#[tokio::test]
async fn each_shadow_logs_its_outcome() {
    let chains = [
        vec![scripted_engine::<0>("shadow", "drops the second")],
        vec![
            scripted_engine::<0>("shadow", ""),
            scripted_engine::<1>("shadow", "drops the second"),
        ],
    ];
    let fixture = Fixture::new(&chains);
    fixture.submit(2, 10_000);
    let lines = fixture.lines().await;
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((line.session.as_str(), line.at_ms, line.skipped), ("s", 5, 0));
    assert_eq!((line.active.engine.as_str(), line.active.took_us), ("serving", 70));
    let names: Vec<&str> = line.shadows.iter().map(|seen| seen.engine.as_str()).collect();
    assert_eq!(names, ["first", "first+second"]);
    for seen in &line.shadows {
        assert_eq!((seen.error.as_deref(), seen.violations, seen.compacts), (None, 0, false));
        assert!(seen.tokens > 0 && seen.tokens < line.active.tokens, "{seen:?}");
        assert_eq!(seen.budget_tokens, 10_000);
    }
}

#[tokio::test]
async fn engine_files_are_named_by_path_and_have_separate_stores() {
    let file = |path: &str| EngineSpec::file("", path.as_ref(), json!({}));
    let chains =
        [vec![file("old/libmask.so")], vec![file("../libmask.so"), scripted_engine::<0>("", "")]];
    let fixture = Fixture::new(&chains);
    fixture.submit(1, 10_000);
    let lines = fixture.lines().await;
    let names: Vec<&str> = lines[0].shadows.iter().map(|seen| seen.engine.as_str()).collect();
    assert_eq!(names, ["old/libmask.so", "../libmask.so+first"]);
    let mut serving = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    serving.store_folder = Some("store".into());
    let services = ShadowServices { active: serving, may_complete: false };
    let notes = |stages, name: &str| services.for_shadow(stages, name).store_folder.unwrap();
    assert_eq!(notes(1, "first"), PathBuf::from("store/shadow"));
    assert_eq!(notes(1, names[0]), PathBuf::from("store/shadow/old-libmask-so"));
    assert_eq!(notes(2, names[1]), PathBuf::from("store/shadow/---libmask-so+first"));
}

#[tokio::test]
async fn a_failed_shadow_is_logged_and_quarantined() {
    let chains = [
        vec![scripted_engine::<0>("broken shadow", "fails in assemble")],
        vec![scripted_engine::<1>("broken shadow", "fails in create")],
        vec![scripted_engine::<2>("broken shadow", "")],
    ];
    let fixture = Fixture::new(&chains);
    for _ in 0..2 {
        fixture.submit(1, 10_000);
        fixture.lines().await;
    }
    let lines = fixture.lines().await;
    assert_eq!(lines.len(), 2);
    let errors = |line: &ShadowRecord| -> Vec<String> {
        line.shadows.iter().map(|seen| seen.error.clone().unwrap_or_default()).collect()
    };
    assert!(errors(&lines[0])[0].contains("failed in assemble"), "{:?}", errors(&lines[0]));
    assert!(errors(&lines[1])[0].contains("in quarantine"), "{:?}", errors(&lines[1]));
    assert!(errors(&lines[1])[1].contains("could not be created"), "{:?}", errors(&lines[1]));
    assert_eq!(errors(&lines[1])[2], "", "the others keep running");
}

#[tokio::test]
async fn a_rejected_plan_is_counted_each_time() {
    let (invalid, valid) = ("invalid plan", "");
    let chain = |first, second| {
        vec![
            scripted_engine::<0>("illegal shadow", first),
            scripted_engine::<1>("illegal shadow", second),
        ]
    };
    let alone = vec![scripted_engine::<0>("illegal shadow", invalid)];
    let fixture = Fixture::new(&[alone, chain(invalid, valid), chain(valid, invalid)]);
    for _ in 0..2 {
        fixture.submit(1, 10_000);
        fixture.lines().await;
    }
    for line in fixture.lines().await {
        for seen in &line.shadows {
            assert_eq!(seen.violations, 1, "{seen:?}");
            let error = seen.error.as_deref().unwrap_or_default();
            assert!(error.contains("operation 0"), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn consecutive_compactions_count_once() {
    let fixture = Fixture::new(&[vec![scripted_engine::<0>("full shadow", "")]]);
    for (turns, budget) in [(1, 10_000), (9, 20), (9, 20), (1, 10_000), (9, 20)] {
        fixture.submit(turns, budget);
        fixture.lines().await;
    }
    let compacts: Vec<bool> =
        fixture.lines().await.iter().map(|line| line.shadows[0].compacts).collect();
    assert_eq!(compacts, [false, true, false, false, true]);
}

/// Calls of the slow engine, and permits to finish them.
static BEGAN: Semaphore = Semaphore::const_new(0);
static PERMITS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(0));

/// An engine that waits for a permit.
struct Slow;

impl ContextEngine for Slow {
    const INFO: Info = Info::new("slow", "Slow", "1.0.0");

    fn create(_: Host, _: Value) -> Result<Self> {
        Ok(Slow)
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        BEGAN.add_permits(1);
        PERMITS.acquire().await.unwrap().forget();
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

#[tokio::test]
async fn a_slow_shadow_skips_requests() {
    let fixture = Fixture::new(&[vec![EngineSpec::linked::<Slow>(json!({}))]]);
    fixture.submit(1, 10_000);
    let began = tokio::time::timeout(TIMEOUT, BEGAN.acquire()).await;
    began.expect("it begins").unwrap().forget();
    // One waits, two find the place taken.
    (0..3).for_each(|turn| fixture.submit(turn, 10_000));
    PERMITS.add_permits(2);
    let skipped: Vec<u64> = fixture.lines().await.iter().map(|line| line.skipped).collect();
    assert_eq!(skipped, [0, 2]);
}

#[tokio::test]
async fn turns_are_submitted_and_served_by_the_active_engine() {
    let folder = tempfile::tempdir().unwrap();
    let client = ScriptedProvider::new(|_| Answer::Text("yes".into()));
    let config = config("[plugins.slots]\nshadow = [\"mask\", \"window\"]\n");
    let engine = RecordingEngine::spec("active", json!({}));
    let path = folder.path().join("state/shadow.jsonl");
    let builder = builder(&config, &client, engine).shadow_log(&path);
    let runtime = builder.build().await.unwrap();
    let session = session(&runtime, &folder);
    let reply = runtime.send(&session, "go").await.unwrap();
    assert_eq!(reply.engine, "recording");
    runtime.send(&session, "next").await.unwrap();
    tokio::time::timeout(TIMEOUT, runtime.flush_shadows()).await.expect("they end");
    let (lines, unreadable) = read(&path, 0).unwrap();
    assert_eq!(unreadable, 0);
    let shown: u64 = lines.iter().map(|line| 1 + line.skipped).sum();
    assert_eq!(shown, 2, "{lines:?}");
    for line in &lines {
        assert_eq!(line.config, super::log::config_name(&config));
        assert!(line.config.starts_with('/'), "{}", line.config);
        assert_eq!(line.active.engine, "recording");
        let names: Vec<&str> = line.shadows.iter().map(|seen| seen.engine.as_str()).collect();
        assert_eq!(names, ["mask", "window"]);
        assert!(line.shadows.iter().all(|seen| seen.error.is_none()), "{line:?}");
    }
    runtime.shutdown().await;
}

#[test]
fn shadow_stores_are_separate_and_completion_is_disabled() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    serving.store_folder = Some(folder.path().into());
    let completes = |environment: &EngineEnvironment| {
        environment.capabilities().contains(&capability::COMPLETE.to_owned())
    };
    let services = ShadowServices { active: serving, may_complete: false };
    let environment = services.for_shadow(1, "mask");
    assert_eq!(environment.store_folder, Some(folder.path().join("shadow")));
    assert!(!completes(&environment));
    assert!(
        environment.call_failure_log().is_none(),
        "a failed call of a shadow quarantines no engine"
    );
    let chain = services.for_shadow(2, "mask+legacy");
    assert_eq!(chain.store_folder, Some(folder.path().join("shadow/mask+legacy")));
}

mod log_file {
    use super::super::log::EngineOutcome;
    use super::super::report::ShadowReport;
    use super::*;
    use ctxhost_retention::{CategoryShare, Shares};

    fn line(at_ms: i64) -> ShadowRecord {
        ShadowRecord { at_ms, session: "s".into(), ..ShadowRecord::default() }
    }

    #[test]
    fn a_full_file_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/shadow.jsonl");
        let line_bytes = serde_json::to_vec(&line(1_000)).unwrap().len() as u64 + 1;
        let log = ShadowLog::new(path.clone(), 3 * line_bytes);
        for at_ms in 1_000..1_010 {
            log.append(&line(at_ms)).unwrap();
        }
        let (lines, unreadable) = read(&path, 0).unwrap();
        let times: Vec<i64> = lines.iter().map(|line| line.at_ms).collect();
        assert_eq!((times, unreadable), (vec![1_006, 1_007, 1_008, 1_009], 0));
        assert_eq!(read(&path, 1_008).unwrap().0.len(), 2);
        assert_eq!(read(&folder.path().join("nowhere.jsonl"), 0).unwrap(), (vec![], 0));
    }

    #[test]
    fn concurrent_appends_lose_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shadow.jsonl");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let log = ShadowLog::new(path.clone(), u64::MAX);
                scope.spawn(move || {
                    (0..50).for_each(|n| log.append(&line(writer * 50 + n)).unwrap())
                });
            }
        });
        let (lines, unreadable) = read(&path, 0).unwrap();
        let mut times: Vec<i64> = lines.iter().map(|line| line.at_ms).collect();
        times.sort_unstable();
        assert_eq!((times, unreadable), ((0..200).collect(), 0));
    }

    #[test]
    fn concurrent_writers_rotate_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shadow.jsonl");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let log = ShadowLog::new(path.clone(), 4_000);
                scope.spawn(move || {
                    (0..50).for_each(|n| log.append(&line(writer * 50 + n)).unwrap())
                });
            }
        });
        let (lines, unreadable) = read(&path, 0).unwrap();
        assert_eq!(unreadable, 0);
        // A rotated file is full.
        let kept: usize =
            lines.iter().map(|line| serde_json::to_vec(line).unwrap().len() + 1).sum();
        assert!(kept >= 4_000, "{kept}");
    }

    #[test]
    fn torn_lines_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shadow.jsonl");
        let whole = serde_json::to_string(&line(7)).unwrap();
        std::fs::write(&path, format!("{{\"at_ms\":3,\"ses\n{whole}\n\n")).unwrap();
        let (lines, unreadable) = read(&path, 0).unwrap();
        assert_eq!((lines, unreadable), (vec![line(7)], 1));
    }

    #[test]
    fn the_report_compares_engines_over_the_same_requests() {
        let paths = |kept| Shares { paths: CategoryShare { kept, total: 4 }, ..Shares::default() };
        let seen = |engine: &str, tokens, took_us| EngineOutcome {
            engine: engine.into(),
            tokens,
            took_us,
            retention: paths(if engine == "mask" { 2 } else { 4 }),
            ..EngineOutcome::default()
        };
        let broken = EngineOutcome { error: Some("no".into()), ..seen("mask", 0, 0) };
        let lines = [
            ShadowRecord {
                active: seen("legacy", 100, 5),
                shadows: vec![seen("mask", 50, 9)],
                ..line(1)
            },
            ShadowRecord {
                active: seen("legacy", 300, 7),
                shadows: vec![broken],
                skipped: 2,
                ..line(2)
            },
        ];
        let report = ShadowReport::from_records(&lines);
        assert_eq!((report.requests, report.skipped), (2, 2));
        let [legacy, mask] = report.engines.as_slice() else { panic!("{report:?}") };
        assert!(legacy.active && !mask.active);
        assert_eq!((legacy.tokens, legacy.requests, legacy.p99_us), (400, 2, 7));
        assert_eq!((mask.tokens, mask.requests, mask.failed), (50, 1, 1));
        assert_eq!((mask.tokens_ratio, mask.retention_mean), (0.5, 0.5));
        assert_eq!(mask.failure.as_deref(), Some("no"));
    }
}

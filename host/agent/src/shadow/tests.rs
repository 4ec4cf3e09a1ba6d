//! Engines in the shadow: what they see, what they cost nobody, and what is written down of them.

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
use crate::testing::puppet::puppet;
use crate::testing::{Answer, Scripted, Witness, builder, config, session};
use ctxhost_engine::{EngineTimeouts, HostClock};
use ctxhost_invariants as invariants;

/// Longer than any honest wait.
const PATIENCE: Duration = Duration::from_secs(60);

struct Stage {
    folder: TempDir,
    shadows: ShadowEngines,
}

impl Stage {
    fn of(rows: &[Vec<EngineSpec>]) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let serving = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
        let surroundings = ShadowServices { active: serving, may_complete: false };
        let legacy = EngineSpec::bundled("legacy", json!({}));
        let ledger = ShadowLog::new(folder.path().join("shadow.jsonl"), 1 << 20);
        let law = InvariantSettings::default();
        let shadows = ShadowEngines::open(rows, &legacy, &surroundings, &law, ledger).unwrap();
        Stage { folder, shadows }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shadow.jsonl")
    }

    /// Shows a request of a session with so many turns.
    fn show(&self, turns: usize, budget: u64) {
        let mut script = Script::new();
        for turn in 0..turns {
            script = script.user(&format!("question {turn}")).assistant("an answer to it");
        }
        let view = script.user("and now?").finish().transcript();
        let plan = Plan::keep_all(view.len());
        let lawful =
            invariants::enforce(&view, plan, budget, &InvariantSettings::default()).unwrap();
        let shaped = Prompt {
            budget_tokens: budget,
            view,
            checked: lawful,
            engine: "serving".into(),
            fallback: None,
            compactions: Vec::new(),
            notes: Vec::new(),
            rejected_plans: 0,
            took: Duration::from_micros(70),
        };
        let session = SessionRef { id: "s".into(), key: String::new() };
        let request = AssembleRequest { session, budget, now_ms: 5, ..AssembleRequest::default() };
        self.shadows.submit(request, &shaped);
    }

    async fn lines(&self) -> Vec<ShadowRecord> {
        tokio::time::timeout(PATIENCE, self.shadows.flush()).await.expect("they end");
        read(&self.path(), 0).unwrap().0
    }
}

#[tokio::test]
async fn each_tells_what_it_would_have_made_of_a_request() {
    let rows = [
        vec![puppet::<0>("shadow", "drops the second")],
        vec![puppet::<0>("shadow", ""), puppet::<1>("shadow", "drops the second")],
    ];
    let stage = Stage::of(&rows);
    stage.show(2, 10_000);
    let lines = stage.lines().await;
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((line.session.as_str(), line.at_ms, line.skipped), ("s", 5, 0));
    assert_eq!((line.active.engine.as_str(), line.active.took_us), ("serving", 70));
    let names: Vec<&str> = line.shadows.iter().map(|seen| seen.engine.as_str()).collect();
    assert_eq!(names, ["first", "first+second"]);
    for seen in &line.shadows {
        assert_eq!((seen.error.as_deref(), seen.illegal, seen.compacts), (None, 0, false));
        assert!(seen.tokens > 0 && seen.tokens < line.active.tokens, "{seen:?}");
        assert_eq!(seen.budget_tokens, 10_000);
    }
}

#[tokio::test]
async fn files_are_known_by_their_paths_and_keep_their_notes_apart() {
    let file = |path: &str| EngineSpec::file("", path.as_ref(), json!({}));
    let rows = [vec![file("old/libmask.so")], vec![file("../libmask.so"), puppet::<0>("", "")]];
    let stage = Stage::of(&rows);
    stage.show(1, 10_000);
    let lines = stage.lines().await;
    let names: Vec<&str> = lines[0].shadows.iter().map(|seen| seen.engine.as_str()).collect();
    assert_eq!(names, ["old/libmask.so", "../libmask.so+first"]);
    let mut serving = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    serving.store_folder = Some("store".into());
    let surroundings = ShadowServices { active: serving, may_complete: false };
    let notes = |stages, name: &str| surroundings.for_shadow(stages, name).store_folder.unwrap();
    assert_eq!(notes(1, "first"), PathBuf::from("store/shadow"));
    assert_eq!(notes(1, names[0]), PathBuf::from("store/shadow/old-libmask-so"));
    assert_eq!(notes(2, names[1]), PathBuf::from("store/shadow/---libmask-so+first"));
}

#[tokio::test]
async fn one_that_fails_is_told_of_and_not_asked_again() {
    let rows = [
        vec![puppet::<0>("broken shadow", "fails in assemble")],
        vec![puppet::<1>("broken shadow", "fails in create")],
        vec![puppet::<2>("broken shadow", "")],
    ];
    let stage = Stage::of(&rows);
    for _ in 0..2 {
        stage.show(1, 10_000);
        stage.lines().await;
    }
    let lines = stage.lines().await;
    assert_eq!(lines.len(), 2);
    let errors = |line: &ShadowRecord| -> Vec<String> {
        line.shadows.iter().map(|seen| seen.error.clone().unwrap_or_default()).collect()
    };
    assert!(errors(&lines[0])[0].contains("failed in assemble"), "{:?}", errors(&lines[0]));
    assert!(errors(&lines[1])[0].contains("in quarantine"), "{:?}", errors(&lines[1]));
    assert!(errors(&lines[1])[1].contains("could not be created"), "{:?}", errors(&lines[1]));
    assert_eq!(errors(&lines[1])[2], "", "the others go on");
}

#[tokio::test]
async fn an_illegal_plan_is_counted_each_time() {
    let (liar, honest) = ("lies", "");
    let row = |first, second| {
        vec![puppet::<0>("illegal shadow", first), puppet::<1>("illegal shadow", second)]
    };
    let alone = vec![puppet::<0>("illegal shadow", liar)];
    let stage = Stage::of(&[alone, row(liar, honest), row(honest, liar)]);
    for _ in 0..2 {
        stage.show(1, 10_000);
        stage.lines().await;
    }
    for line in stage.lines().await {
        for seen in &line.shadows {
            assert_eq!(seen.illegal, 1, "{seen:?}");
            let error = seen.error.as_deref().unwrap_or_default();
            assert!(error.contains("operation 0"), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn what_would_compact_is_counted_once_in_a_row() {
    let stage = Stage::of(&[vec![puppet::<0>("full shadow", "")]]);
    for (turns, budget) in [(1, 10_000), (9, 20), (9, 20), (1, 10_000), (9, 20)] {
        stage.show(turns, budget);
        stage.lines().await;
    }
    let compacts: Vec<bool> =
        stage.lines().await.iter().map(|line| line.shadows[0].compacts).collect();
    assert_eq!(compacts, [false, true, false, false, true]);
}

/// How often the slow engine began, and how often it may go on.
static BEGAN: Semaphore = Semaphore::const_new(0);
static MAY_GO: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(0));

/// An engine that waits until it may go on.
struct Slow;

impl ContextEngine for Slow {
    const INFO: Info = Info::new("slow", "Slow", "1.0.0");

    fn create(_: Host, _: Value) -> Result<Self> {
        Ok(Slow)
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        BEGAN.add_permits(1);
        MAY_GO.acquire().await.unwrap().forget();
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

#[tokio::test]
async fn one_that_lags_misses_requests_and_delays_none() {
    let stage = Stage::of(&[vec![EngineSpec::linked::<Slow>(json!({}))]]);
    stage.show(1, 10_000);
    let began = tokio::time::timeout(PATIENCE, BEGAN.acquire()).await;
    began.expect("it begins").unwrap().forget();
    // One waits, two find the place taken.
    (0..3).for_each(|turn| stage.show(turn, 10_000));
    MAY_GO.add_permits(2);
    let skipped: Vec<u64> = stage.lines().await.iter().map(|line| line.skipped).collect();
    assert_eq!(skipped, [0, 2]);
}

#[tokio::test]
async fn a_turn_is_shown_once_it_is_shaped_and_its_answer_is_that_of_the_slot() {
    let folder = tempfile::tempdir().unwrap();
    let client = Scripted::new(|_| Answer::Says("yes".into()));
    let config = config("[plugins.slots]\nshadow = [\"mask\", \"window\"]\n");
    let engine = Witness::spec("in the light", json!({}));
    let path = folder.path().join("state/shadow.jsonl");
    let builder = builder(&config, &client, engine).shadow_log(&path);
    let runtime = builder.build().await.unwrap();
    let session = session(&runtime, &folder);
    let reply = runtime.send(&session, "go").await.unwrap();
    assert_eq!(reply.engine, "witness");
    runtime.send(&session, "again").await.unwrap();
    tokio::time::timeout(PATIENCE, runtime.flush_shadows()).await.expect("they end");
    let (lines, unreadable) = read(&path, 0).unwrap();
    assert_eq!(unreadable, 0);
    let shown: u64 = lines.iter().map(|line| 1 + line.skipped).sum();
    assert_eq!(shown, 2, "{lines:?}");
    for line in &lines {
        assert_eq!(line.config, super::log::config_name(&config));
        assert!(line.config.starts_with('/'), "{}", line.config);
        assert_eq!(line.active.engine, "witness");
        let names: Vec<&str> = line.shadows.iter().map(|seen| seen.engine.as_str()).collect();
        assert_eq!(names, ["mask", "window"]);
        assert!(line.shadows.iter().all(|seen| seen.error.is_none()), "{line:?}");
    }
    runtime.shutdown().await;
}

#[test]
fn their_notes_stand_apart_and_no_model_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    serving.store_folder = Some(folder.path().into());
    let completes = |environment: &EngineEnvironment| {
        environment.capabilities().contains(&capability::COMPLETE.to_owned())
    };
    let surroundings = ShadowServices { active: serving, may_complete: false };
    let environment = surroundings.for_shadow(1, "mask");
    assert_eq!(environment.store_folder, Some(folder.path().join("shadow")));
    assert!(!completes(&environment));
    assert!(environment.call_failure_log().is_none(), "what fails there holds nobody");
    let row = surroundings.for_shadow(2, "mask+legacy");
    assert_eq!(row.store_folder, Some(folder.path().join("shadow/mask+legacy")));
}

mod ledger_file {
    use super::super::log::EngineOutcome;
    use super::super::report::ShadowReport;
    use super::*;
    use ctxhost_retention::{CategoryShare, Shares};

    fn line(at_ms: i64) -> ShadowRecord {
        ShadowRecord { at_ms, session: "s".into(), ..ShadowRecord::default() }
    }

    #[test]
    fn it_begins_anew_at_its_limit_and_keeps_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/shadow.jsonl");
        let line_bytes = serde_json::to_vec(&line(1_000)).unwrap().len() as u64 + 1;
        let ledger = ShadowLog::new(path.clone(), 3 * line_bytes);
        for at_ms in 1_000..1_010 {
            ledger.append(&line(at_ms)).unwrap();
        }
        let (lines, unreadable) = read(&path, 0).unwrap();
        let times: Vec<i64> = lines.iter().map(|line| line.at_ms).collect();
        assert_eq!((times, unreadable), (vec![1_006, 1_007, 1_008, 1_009], 0));
        assert_eq!(read(&path, 1_008).unwrap().0.len(), 2);
        assert_eq!(read(&folder.path().join("nowhere.jsonl"), 0).unwrap(), (vec![], 0));
    }

    #[test]
    fn several_writers_lose_no_line_of_the_newest_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shadow.jsonl");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let ledger = ShadowLog::new(path.clone(), u64::MAX);
                scope.spawn(move || {
                    (0..50).for_each(|n| ledger.append(&line(writer * 50 + n)).unwrap())
                });
            }
        });
        let (lines, unreadable) = read(&path, 0).unwrap();
        let mut times: Vec<i64> = lines.iter().map(|line| line.at_ms).collect();
        times.sort_unstable();
        assert_eq!((times, unreadable), ((0..200).collect(), 0));
    }

    #[test]
    fn several_writers_put_a_full_file_aside_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shadow.jsonl");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let ledger = ShadowLog::new(path.clone(), 4_000);
                scope.spawn(move || {
                    (0..50).for_each(|n| ledger.append(&line(writer * 50 + n)).unwrap())
                });
            }
        });
        let (lines, unreadable) = read(&path, 0).unwrap();
        assert_eq!(unreadable, 0);
        // A file that was put aside is a full one.
        let kept: usize =
            lines.iter().map(|line| serde_json::to_vec(line).unwrap().len() + 1).sum();
        assert!(kept >= 4_000, "{kept}");
    }

    #[test]
    fn a_torn_line_is_counted_and_the_rest_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shadow.jsonl");
        let whole = serde_json::to_string(&line(7)).unwrap();
        std::fs::write(&path, format!("{{\"at_ms\":3,\"ses\n{whole}\n\n")).unwrap();
        let (lines, unreadable) = read(&path, 0).unwrap();
        assert_eq!((lines, unreadable), (vec![line(7)], 1));
    }

    #[test]
    fn engines_are_compared_over_the_same_requests() {
        let paths = |kept| Shares { paths: CategoryShare { kept, total: 4 }, ..Shares::default() };
        let seen = |engine: &str, tokens, took_us| EngineOutcome {
            engine: engine.into(),
            tokens,
            took_us,
            survival: paths(if engine == "mask" { 2 } else { 4 }),
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
        assert!(legacy.serves && !mask.serves);
        assert_eq!((legacy.tokens, legacy.requests, legacy.p99_us), (400, 2, 7));
        assert_eq!((mask.tokens, mask.requests, mask.failed), (50, 1, 1));
        assert_eq!((mask.tokens_ratio, mask.survival_mean), (0.5, 0.5));
        assert_eq!(mask.failure.as_deref(), Some("no"));
    }
}

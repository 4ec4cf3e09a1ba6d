//! Two gateway processes in one session, one killed now and then: every message is stored once.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ctxhost_dialects::ChatMessage;
use ctxhost_session::Session;
use ctxhost_store::{PostgresStore, SessionStore, StoreSettings};
use ctxhost_tests::postgres::PostgresServer;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Wanderer};
use ctxhost_tests::workplace::{ConfigText, Workplace, assert_lawful, messages, words};

use super::contract::header;

/// As small as the sample engines can work in: so there are compactions from both sides.
const WINDOW_TOKENS: u64 = 32_000;

/// How long both sides talk where nobody says otherwise.
const SECONDS: u64 = 20;

/// How long the side that is killed lives each time.
const LIFE: Duration = Duration::from_secs(4);

fn seconds() -> u64 {
    let given = std::env::var("CTXHOST_TWO_SIDES_SECS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(SECONDS)
}

/// One process and what it has said so far.
struct Side {
    child: Child,
    reported: JoinHandle<Vec<(String, String)>>,
}

impl Side {
    fn start(place: &Workplace, settings: &StoreSettings, name: &str, seconds: u64) -> Side {
        let mut child = Command::new(env!("CARGO_BIN_EXE_host-fixture"))
            .args(["--config", &place.path().join("ctxhost.toml").display().to_string()])
            .args(["--url", settings.url.as_deref().unwrap_or_default()])
            .args(["--schema", &settings.schema, "--session", "shared", "--name", name])
            .args(["--seconds", &seconds.to_string()])
            .env("CTXHOST_STATE_DIR", place.path().join("state"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reported = std::thread::spawn(move || {
            let parts = |line: String| {
                let (what, words) = line.split_once('\t')?;
                Some((what.to_owned(), words.to_owned()))
            };
            lines.map_while(Result::ok).filter_map(parts).collect()
        });
        Side { child, reported }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    fn end(mut self) -> ReportedAnswer {
        self.child.wait().unwrap();
        let mut reported = ReportedAnswer::default();
        for (what, words) in self.reported.join().unwrap() {
            match what.as_str() {
                "said" => reported.said.push(words),
                "answered" => reported.answered.push(words),
                "failed" => reported.failed.push(words),
                _ => {}
            }
        }
        reported
    }
}

/// What the sides say of themselves.
#[derive(Debug, Default)]
struct ReportedAnswer {
    said: Vec<String>,
    answered: Vec<String>,
    failed: Vec<String>,
}

impl ReportedAnswer {
    fn add(&mut self, other: ReportedAnswer) {
        self.said.extend(other.said);
        self.answered.extend(other.answered);
        self.failed.extend(other.failed);
    }
}

fn place(server: &ScriptedServer) -> Workplace {
    ConfigText::new()
        .provider("fake", Wire::OpenAiChat, &server.url(), WINDOW_TOKENS)
        .tables("[compaction]\ntiming = \"between-turns\"")
        .workplace()
}

#[test]
fn two_gateways_serve_one_session_from_both_sides() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = server.schema();
    let model = ScriptedServer::start(Wire::OpenAiChat, Model::new(WINDOW_TOKENS))
        .keep_bodies(10)
        .script(Wanderer::new(7).paths(["notes.txt", "long.txt"].map(str::to_owned)));
    let place = place(&model);
    let cwd = place.path().display().to_string();
    let store = PostgresStore::open(&settings).unwrap();
    drop(store.create(header("shared", &cwd)).unwrap());

    let seconds = seconds();
    let until = Instant::now() + Duration::from_secs(seconds);
    let steady = Side::start(&place, &settings, "steady", seconds);
    let (mut all, mut kills) = (ReportedAnswer::default(), 0);
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|it| *it > LIFE) {
        let name = format!("mortal-{kills}");
        let mut mortal = Side::start(&place, &settings, &name, left.as_secs());
        let life = LIFE.mul_f64(0.5 + fastrand::f64() / 2.0);
        std::thread::sleep(life);
        mortal.kill();
        kills += 1;
        all.add(mortal.end());
    }
    all.add(steady.end());

    let whole = store.read("shared").unwrap();
    check(&whole, &all);
    assert_eq!(model.broken(), []);
    let (turns, compactions) = (words(&whole).len(), compactions(&whole));
    eprintln!(
        "{seconds} s, {kills} kills: {} words said, {} answered, {} failed, {turns} in the session, \
         {compactions} compactions, {} lines",
        all.said.len(),
        all.answered.len(),
        all.failed.len(),
        whole.records().len()
    );
    let both = ["steady", "mortal"].map(|name| all.answered.iter().any(|it| it.starts_with(name)));
    assert_eq!(both, [true, true], "both sides have spoken");
    assert_kept(&place.path().join("kept.jsonl"), whole);
}

/// What must hold of a session that two sides talked in.
fn check(session: &Session, reported: &ReportedAnswer) {
    assert_lawful(session);
    assert_eq!(session.leaves().len(), 1, "nobody wrote beside the other");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for words in words(session) {
        *counts.entry(beginning(&words)).or_default() += 1;
    }
    for (words, count) in &counts {
        assert_eq!(*count, 1, "{words:?} is there {count} times");
        assert!(reported.said.contains(words), "{words:?} was never said");
    }
    for words in &reported.answered {
        assert!(counts.contains_key(words), "{words:?} was answered and is lost");
    }
    assert!(reported.failed.is_empty(), "{:?}", reported.failed);
    // A life ends in the middle of one turn at most: only its last words may be without an answer.
    let open = reported.said.len() - reported.answered.len();
    let missing = reported.said.iter().filter(|words| !counts.contains_key(*words)).count();
    assert!(missing <= open, "{missing} of {open} words that were not answered are not there");
    turns_are_whole(session, &reported.answered);
}

/// After words that were answered comes their answer, before anybody says anything else.
fn turns_are_whole(session: &Session, answered: &[String]) {
    let messages = messages(session);
    for (at, message) in messages.iter().enumerate() {
        let ChatMessage::User(_) = message else { continue };
        let said = beginning(&text_of(message));
        if !answered.contains(&said) {
            continue;
        }
        let turn = messages[at + 1..].iter().take_while(|it| !matches!(it, ChatMessage::User(_)));
        let last = turn.last();
        let is_answer = matches!(last, Some(ChatMessage::Assistant(_)));
        assert!(is_answer, "{said:?} is followed by {last:?}");
    }
}

/// What the gateway calls its words: all before the first full stop.
fn beginning(words: &str) -> String {
    words.split('.').next().unwrap_or_default().to_owned()
}

fn text_of(message: &ChatMessage) -> String {
    let texts = message.content().iter().filter_map(|block| match block {
        ctxhost_dialects::ChatBlock::Text { text, .. } => Some(text.clone()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn compactions(session: &Session) -> usize {
    let kinds = session.records().iter().map(|record| record.kind());
    kinds.filter(|kind| **kind == ctxhost_session::RecordKind::Compaction).count()
}

/// What stands in the database is a session file like any other.
fn assert_kept(path: &Path, session: Session) {
    let bytes = session.to_bytes();
    std::fs::write(path, &bytes).unwrap();
    let file = Session::open(path).unwrap();
    assert_eq!(file.to_bytes(), bytes);
    assert_eq!(file.problems(), []);
}

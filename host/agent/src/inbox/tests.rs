//! The inbox on real files, with a kill between any two steps.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use ctxhost_session::Record;
use serde_json::Value;

/// A session in a temporary folder.
struct Fixture {
    folder: TempDir,
    session: Option<Session>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::create(&folder.path().join("s.jsonl"), "/", None).unwrap();
        Fixture { folder, session: Some(session) }
    }

    fn session_path(&self) -> PathBuf {
        self.folder.path().join("s.jsonl")
    }

    fn inbox_path(&self) -> PathBuf {
        self.folder.path().join("s.jsonl.inbox")
    }

    fn inbox(&self) -> Inbox {
        Inbox::open(self.session.as_ref().unwrap()).unwrap()
    }

    /// Drops all state in memory and reopens the session.
    fn kill(&mut self) -> Inbox {
        self.session = None;
        self.session = Some(Session::open(&self.session_path()).unwrap());
        self.inbox()
    }

    fn deliver(&mut self, inbox: &Inbox) -> Result<usize, SessionError> {
        let session = self.session.as_mut().unwrap();
        inbox.deliver(None, |record| session.append(record).map(|_| ()))
    }

    /// Delivers until `appended` records are in the session.
    fn deliver_until(&mut self, inbox: &Inbox, appended: usize) {
        let session = self.session.as_mut().unwrap();
        let mut done = 0;
        let _ = inbox.deliver(None, |record| {
            if done == appended {
                return Err(SessionError::ReadOnly { id: "killed".to_owned() });
            }
            done += 1;
            session.append(record).map(|_| ())
        });
    }

    /// The texts in the session, in order.
    fn texts(&self) -> Vec<String> {
        let raw = self.session.as_ref().unwrap().records().iter().filter_map(Record::message_raw);
        raw.map(|raw| serde_json::from_str::<Value>(raw).unwrap()["content"].to_string()).collect()
    }
}

fn message(number: usize) -> String {
    format!(r#"{{"role":"user","content":{number},"timestamp":0}}"#)
}

fn numbers(upto: usize) -> Vec<String> {
    (0..upto).map(|number| number.to_string()).collect()
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

fn waiting_count(inbox: &Inbox) -> usize {
    inbox.state.lock().waiting.len()
}

#[test]
fn messages_are_durable_and_delivered_in_order() {
    let mut fixture = Fixture::new();
    let inbox = fixture.inbox();
    for number in 0..3 {
        inbox.push(&message(number)).unwrap();
        assert_eq!(lines(&fixture.inbox_path()), number + 1);
    }
    assert_eq!(waiting_count(&inbox), 3);
    assert_eq!(fixture.deliver(&inbox).unwrap(), 3);
    assert_eq!(fixture.texts(), numbers(3));
    assert!(!fixture.inbox_path().exists());
    assert_eq!(fixture.deliver(&inbox).unwrap(), 0);
}

#[cfg(unix)]
#[test]
fn the_file_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    let inbox = fixture.inbox();
    inbox.push(&message(0)).unwrap();
    let mode = fs::metadata(fixture.inbox_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_kill_after_a_push_loses_nothing() {
    let mut fixture = Fixture::new();
    fixture.inbox().push(&message(0)).unwrap();
    let inbox = fixture.kill();
    assert_eq!(waiting_count(&inbox), 1);
    fixture.deliver(&inbox).unwrap();
    assert_eq!(fixture.texts(), numbers(1));
}

#[test]
fn a_kill_during_a_push_keeps_earlier_messages() {
    let mut fixture = Fixture::new();
    let inbox = fixture.inbox();
    inbox.push(&message(0)).unwrap();
    let before = fs::read(fixture.inbox_path()).unwrap();
    inbox.push(&message(1)).unwrap();
    let after = fs::read(fixture.inbox_path()).unwrap();
    for cut in (before.len()..after.len()).step_by(5) {
        fs::write(fixture.inbox_path(), &after[..cut]).unwrap();
        let inbox = fixture.kill();
        assert_eq!(waiting_count(&inbox), 1, "cut at {cut}");
        // The next message starts a new line.
        inbox.push(&message(2)).unwrap();
        assert_eq!(waiting_count(&fixture.kill()), 2, "cut at {cut}");
    }
}

#[test]
fn a_kill_between_delivery_and_removal_repeats_nothing() {
    for appended in 0..=3 {
        let mut fixture = Fixture::new();
        let inbox = fixture.inbox();
        (0..3).for_each(|number| drop(inbox.push(&message(number)).unwrap()));
        let on_disk = fs::read(fixture.inbox_path()).unwrap();
        fixture.deliver_until(&inbox, appended);
        // The kill comes before the file is removed.
        fs::write(fixture.inbox_path(), &on_disk).unwrap();
        let inbox = fixture.kill();
        assert_eq!(waiting_count(&inbox), 3 - appended);
        assert_eq!(fixture.inbox_path().exists(), appended < 3, "pruned when opened");
        fixture.deliver(&inbox).unwrap();
        assert_eq!(fixture.texts(), numbers(3), "killed after {appended}");
    }
}

#[test]
fn a_kill_during_delivery_delivers_once() {
    let mut fixture = Fixture::new();
    let empty_bytes = fs::metadata(fixture.session_path()).unwrap().len() as usize;
    let inbox = fixture.inbox();
    inbox.push(&message(0)).unwrap();
    let on_disk = fs::read(fixture.inbox_path()).unwrap();
    fixture.deliver(&inbox).unwrap();
    let delivered = fs::read(fixture.session_path()).unwrap();
    for cut in (empty_bytes..=delivered.len()).rev().step_by(9) {
        fs::write(fixture.session_path(), &delivered[..cut]).unwrap();
        fs::write(fixture.inbox_path(), &on_disk).unwrap();
        let inbox = fixture.kill();
        fixture.deliver(&inbox).unwrap();
        assert_eq!(fixture.texts(), numbers(1), "cut at {cut}");
    }
}

#[test]
fn a_repeated_push_is_ignored() {
    let mut fixture = Fixture::new();
    let inbox = fixture.inbox();
    assert!(inbox.push_with_id("a", &message(0)).unwrap());
    assert!(!inbox.push_with_id("a", &message(0)).unwrap());
    fixture.deliver(&inbox).unwrap();
    assert!(!inbox.push_with_id("a", &message(0)).unwrap());
    assert!(!fixture.kill().push_with_id("a", &message(0)).unwrap());
    assert_eq!(fixture.texts(), numbers(1));
}

#[test]
fn a_failed_delivery_keeps_the_message() {
    let mut fixture = Fixture::new();
    let inbox = fixture.inbox();
    inbox.push(&message(0)).unwrap();
    fixture.deliver_until(&inbox, 0);
    assert_eq!((waiting_count(&inbox), lines(&fixture.inbox_path())), (1, 1));
    fixture.deliver(&inbox).unwrap();
    assert_eq!(fixture.texts(), numbers(1));
}

#[test]
fn a_push_does_not_extend_a_torn_line() {
    let mut fixture = Fixture::new();
    let inbox = fixture.inbox();
    fs::write(fixture.inbox_path(), r#"{"id":"half"#).unwrap();
    inbox.push(&message(0)).unwrap();
    let inbox = fixture.kill();
    fixture.deliver(&inbox).unwrap();
    assert_eq!(fixture.texts(), numbers(1));
}

#[test]
fn a_file_with_unreadable_lines_is_renamed() {
    let mut fixture = Fixture::new();
    fs::write(fixture.inbox_path(), "what is this\n").unwrap();
    let inbox = fixture.kill();
    assert_eq!(waiting_count(&inbox), 0);
    assert!(!fixture.inbox_path().exists());
    let kept = fixture.folder.path().join("s.jsonl.inbox.unreadable.1");
    assert_eq!(fs::read_to_string(kept).unwrap(), "what is this\n");
}

#[test]
fn only_messages_are_accepted_also_in_memory() {
    let mut session = Session::in_memory(Fixture::new().session.unwrap().header().clone());
    let inbox = Inbox::open(&session).unwrap();
    for wrong in ["", "hello", "[]", r#"{"content":"x"}"#] {
        assert!(matches!(inbox.push(wrong), Err(InboxError::InvalidMessage(_))), "{wrong}");
    }
    let id = inbox.push(&message(0)).unwrap();
    inbox.deliver(None, |record| session.append(record).map(|_| ())).unwrap();
    assert!(session.records()[0].line().contains(&format!(r#""inboxId":"{id}""#)));
}

/// A step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Push,
    Deliver,
    /// Delivers this many, then a kill before the file is removed.
    KilledAfter(usize),
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Push),
        1 => Just(Step::Deliver),
        2 => (0_usize..4).prop_map(Step::KilledAfter),
        1 => Just(Step::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_message_arrives_once_and_in_order(steps in proptest::collection::vec(step(), 1..16)) {
        let mut fixture = Fixture::new();
        let mut inbox = fixture.inbox();
        let mut pushed = 0;
        for step in steps {
            match step {
                Step::Push => {
                    inbox.push(&message(pushed)).unwrap();
                    pushed += 1;
                }
                Step::Deliver => drop(fixture.deliver(&inbox).unwrap()),
                Step::KilledAfter(appended) => {
                    let on_disk = fs::read(fixture.inbox_path());
                    fixture.deliver_until(&inbox, appended);
                    if let Ok(bytes) = on_disk {
                        fs::write(fixture.inbox_path(), bytes).unwrap();
                    }
                    inbox = fixture.kill();
                }
                Step::Kill => inbox = fixture.kill(),
            }
            let arrived = fixture.texts();
            prop_assert_eq!(&arrived[..], &numbers(pushed)[..arrived.len()]);
            prop_assert_eq!(arrived.len() + waiting_count(&inbox), pushed);
        }
        fixture.deliver(&inbox).unwrap();
        prop_assert_eq!(fixture.texts(), numbers(pushed));
    }
}

//! Real files, and a kill between any two steps.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use ctxhost_session::Record;

/// A session in a folder of its own, and what is open of it.
struct Home {
    folder: TempDir,
    session: Option<Session>,
}

impl Home {
    fn new() -> Home {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::create(&folder.path().join("s.jsonl"), "/", None).unwrap();
        Home { folder, session: Some(session) }
    }

    fn session_path(&self) -> PathBuf {
        self.folder.path().join("s.jsonl")
    }

    fn inbox_path(&self) -> PathBuf {
        self.folder.path().join("s.jsonl.inbox")
    }

    /// Whatever was in memory is gone, and everything is opened again.
    fn kill(&mut self) -> Inbox {
        self.session = None;
        let session = Session::open(&self.session_path()).unwrap();
        let inbox = Inbox::open(&session).unwrap();
        self.session = Some(session);
        inbox
    }

    fn deliver(&mut self, inbox: &Inbox) -> Result<usize, SessionError> {
        let session = self.session.as_mut().unwrap();
        inbox.deliver(None, |record| session.append(record).map(|_| ()))
    }

    /// Delivers, and is killed when `appended` records are in the session.
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

#[test]
fn what_comes_in_waits_on_the_disk_and_is_delivered_in_order() {
    let mut home = Home::new();
    let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
    for number in 0..3 {
        inbox.push(&message(number)).unwrap();
        assert_eq!(lines(&home.inbox_path()), number + 1);
    }
    assert_eq!(inbox.waiting_count(), 3);
    assert_eq!(home.deliver(&inbox).unwrap(), 3);
    assert_eq!(home.texts(), numbers(3));
    assert!(!home.inbox_path().exists());
    assert_eq!(home.deliver(&inbox).unwrap(), 0);
}

#[cfg(unix)]
#[test]
fn only_its_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
    inbox.push(&message(0)).unwrap();
    let mode = fs::metadata(home.inbox_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_kill_after_a_push_loses_nothing() {
    let mut home = Home::new();
    Inbox::open(home.session.as_ref().unwrap()).unwrap().push(&message(0)).unwrap();
    let inbox = home.kill();
    assert_eq!(inbox.waiting_count(), 1);
    home.deliver(&inbox).unwrap();
    assert_eq!(home.texts(), numbers(1));
}

#[test]
fn a_kill_anywhere_in_a_push_leaves_the_letters_before_it() {
    let mut home = Home::new();
    let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
    inbox.push(&message(0)).unwrap();
    let before = fs::read(home.inbox_path()).unwrap();
    inbox.push(&message(1)).unwrap();
    let after = fs::read(home.inbox_path()).unwrap();
    for cut in (before.len()..after.len()).step_by(5) {
        fs::write(home.inbox_path(), &after[..cut]).unwrap();
        let inbox = home.kill();
        assert_eq!(inbox.waiting_count(), 1, "cut at {cut}");
        // The next one does not stick to the torn one.
        inbox.push(&message(2)).unwrap();
        assert_eq!(home.kill().waiting_count(), 2, "cut at {cut}");
    }
}

#[test]
fn a_kill_between_the_record_and_the_file_repeats_nothing() {
    for appended in 0..=3 {
        let mut home = Home::new();
        let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
        (0..3).for_each(|number| drop(inbox.push(&message(number)).unwrap()));
        let on_disk = fs::read(home.inbox_path()).unwrap();
        home.deliver_until(&inbox, appended);
        // Where all were appended, the kill came before the file was removed.
        fs::write(home.inbox_path(), &on_disk).unwrap();
        let inbox = home.kill();
        assert_eq!(inbox.waiting_count(), 3 - appended);
        assert_eq!(home.inbox_path().exists(), appended < 3, "tidied on opening");
        home.deliver(&inbox).unwrap();
        assert_eq!(home.texts(), numbers(3), "killed after {appended}");
    }
}

#[test]
fn a_kill_anywhere_in_the_record_delivers_it_again_once() {
    let mut home = Home::new();
    let empty_bytes = fs::metadata(home.session_path()).unwrap().len() as usize;
    let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
    inbox.push(&message(0)).unwrap();
    let on_disk = fs::read(home.inbox_path()).unwrap();
    home.deliver(&inbox).unwrap();
    let delivered = fs::read(home.session_path()).unwrap();
    for cut in (empty_bytes..=delivered.len()).rev().step_by(9) {
        fs::write(home.session_path(), &delivered[..cut]).unwrap();
        fs::write(home.inbox_path(), &on_disk).unwrap();
        let inbox = home.kill();
        home.deliver(&inbox).unwrap();
        assert_eq!(home.texts(), numbers(1), "cut at {cut}");
    }
}

#[test]
fn a_sender_may_repeat_a_letter() {
    let mut home = Home::new();
    let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
    assert!(inbox.push_with_id("a", &message(0)).unwrap());
    assert!(!inbox.push_with_id("a", &message(0)).unwrap());
    home.deliver(&inbox).unwrap();
    assert!(!inbox.push_with_id("a", &message(0)).unwrap());
    assert!(!home.kill().push_with_id("a", &message(0)).unwrap());
    assert_eq!(home.texts(), numbers(1));
}

#[test]
fn a_record_that_fails_stays_in_the_inbox() {
    let mut home = Home::new();
    let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
    inbox.push(&message(0)).unwrap();
    home.deliver_until(&inbox, 0);
    assert_eq!((inbox.waiting_count(), lines(&home.inbox_path())), (1, 1));
    home.deliver(&inbox).unwrap();
    assert_eq!(home.texts(), numbers(1));
}

#[test]
fn a_push_does_not_stick_to_what_a_failed_one_left() {
    let mut home = Home::new();
    let inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
    fs::write(home.inbox_path(), r#"{"id":"half"#).unwrap();
    inbox.push(&message(0)).unwrap();
    let inbox = home.kill();
    home.deliver(&inbox).unwrap();
    assert_eq!(home.texts(), numbers(1));
}

#[test]
fn unreadable_lines_are_set_aside_and_not_removed() {
    let mut home = Home::new();
    fs::write(home.inbox_path(), "what is this\n").unwrap();
    let inbox = home.kill();
    assert_eq!(inbox.waiting_count(), 0);
    assert!(!home.inbox_path().exists());
    let aside = home.folder.path().join("s.jsonl.inbox.unreadable.1");
    assert_eq!(fs::read_to_string(aside).unwrap(), "what is this\n");
}

#[test]
fn only_messages_are_taken_and_a_session_in_memory_has_an_inbox_too() {
    let mut session = Session::in_memory(Home::new().session.unwrap().header().clone());
    let inbox = Inbox::open(&session).unwrap();
    for wrong in ["", "hello", "[]", r#"{"content":"x"}"#] {
        assert!(matches!(inbox.push(wrong), Err(InboxError::InvalidMessage(_))), "{wrong}");
    }
    let id = inbox.push(&message(0)).unwrap();
    inbox.deliver(None, |record| session.append(record).map(|_| ())).unwrap();
    assert!(session.records()[0].line().contains(&format!(r#""inboxId":"{id}""#)));
}

/// What may happen next.
#[derive(Clone, Debug)]
enum Step {
    Push,
    Deliver,
    /// Delivers so many, and is killed before the file is removed.
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
        let mut home = Home::new();
        let mut inbox = Inbox::open(home.session.as_ref().unwrap()).unwrap();
        let mut pushed = 0;
        for step in steps {
            match step {
                Step::Push => {
                    inbox.push(&message(pushed)).unwrap();
                    pushed += 1;
                }
                Step::Deliver => drop(home.deliver(&inbox).unwrap()),
                Step::KilledAfter(appended) => {
                    let on_disk = fs::read(home.inbox_path());
                    home.deliver_until(&inbox, appended);
                    if let Ok(bytes) = on_disk {
                        fs::write(home.inbox_path(), bytes).unwrap();
                    }
                    inbox = home.kill();
                }
                Step::Kill => inbox = home.kill(),
            }
            let arrived = home.texts();
            prop_assert_eq!(&arrived[..], &numbers(pushed)[..arrived.len()]);
            prop_assert_eq!(arrived.len() + inbox.waiting_count(), pushed);
        }
        home.deliver(&inbox).unwrap();
        prop_assert_eq!(home.texts(), numbers(pushed));
    }
}

//! Long sessions opened by their checkpoint: the same session, with less read.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::compaction::{any_body, any_plan, by_pi, compact};
use super::*;
use crate::{NewCompaction, Record, RecordKind, checkpoint, live_transcript};

/// A session file in a folder of its own.
struct Place {
    _folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        Place { path: folder.path().join("s.jsonl"), _folder: folder }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.path.with_file_name(format!("s.jsonl.{suffix}"))
    }

    /// The session as it is now, with a checkpoint for the newest compaction of its branch.
    fn keep(&self, session: &mut Session) {
        fs::write(&self.path, session.to_bytes()).unwrap();
        let contents = session.contents.loaded_mut();
        let compaction = live_transcript::update_live_base(contents).unwrap();
        checkpoint::write_checkpoint(&self.path, contents, compaction, None).unwrap();
    }

    fn open(&self) -> Session {
        Session { checkpoint_from_bytes: 0, ..Session::open(&self.path).unwrap() }
    }

    /// The same session read from all of the file.
    fn whole(&self) -> Session {
        Session::parse("whole", &fs::read(&self.path).unwrap()).unwrap()
    }
}

/// All that is asked of a session on the way to its next turn.
fn asked(session: &Session) -> impl PartialEq + std::fmt::Debug + use<> {
    let own = session.host_records("ctxhost.test");
    let own: Vec<(String, Value)> = own.map(|(it, data)| (it.id().to_owned(), data)).collect();
    let contents = session.contents.loaded();
    let first_task = contents.first_task.and_then(|at| contents.record_at(at)).map(Record::id);
    (
        seen(&session.live(0)),
        session.leaf().map(|leaf| leaf.line().to_owned()),
        session.model(),
        session.header().line().to_owned(),
        (own, first_task.map(str::to_owned), contents.record_count(), contents.length_bytes()),
    )
}

/// All there is of it.
fn snapshot_of(session: &Session) -> impl PartialEq + std::fmt::Debug + use<> {
    let lines = |records: Vec<&Record>| -> Vec<String> {
        records.into_iter().map(|record| record.line().to_owned()).collect()
    };
    (
        lines(session.records().iter().collect()),
        lines(session.branch()),
        lines(session.leaves()),
        session.problems().to_vec(),
        session.to_bytes(),
    )
}

/// What opening finds is what reading all of the file finds, and both go on alike.
fn check_the_same(place: &Place, choices: &[u8]) {
    let (mut fast, mut whole) = (place.open(), place.whole());
    assert_eq!(asked(&fast), asked(&whole));
    let ids: Vec<String> = whole.records().iter().map(|record| record.id().to_owned()).collect();
    for record in whole.records() {
        let message_id = record.inbox_id();
        assert!(message_id.is_none_or(|id| fast.delivered_messages().contains(&id)
            && whole.delivered_messages().contains(&id)));
    }
    assert!(!fast.delivered_messages().contains("no such message"));
    for (number, sort) in choices.iter().enumerate() {
        let (body, time_ms) = (any_body(*sort, number), 9_000 + number as i64);
        let id = fast.append_at(body.clone(), time_ms).unwrap();
        assert_eq!(whole.append_at(body, time_ms).unwrap(), id);
        assert_eq!(fast.leaf().unwrap().line(), whole.leaf().unwrap().line());
        assert_eq!(entry(&fast, &id), entry(&whole, &id));
    }
    // Of every third, the newest compaction does not count.
    let newest = whole.newest_compaction().filter(|_| choices.len().is_multiple_of(3));
    let ignored: Vec<String> = newest.map(|newest| newest.id().to_owned()).into_iter().collect();
    let view = whole.live_without(&ignored, 0).snapshot();
    let plan = any_plan(&view, choices);
    let compaction = NewCompaction { ignored: &ignored, ..NewCompaction::of_tests(&plan, &view) };
    assert_eq!(fast.compact(compaction.clone()).unwrap(), whole.compact(compaction).unwrap());
    assert_eq!(fast.leaf().unwrap().line(), whole.leaf().unwrap().line());
    for session in [&mut fast, &mut whole] {
        session.append_at(user("after it"), 10_000).unwrap();
    }
    assert_eq!(asked(&fast), asked(&whole));
    for id in &ids {
        assert_eq!(entry(&fast, id), entry(&whole, id));
    }
    assert_eq!(snapshot_of(&fast), snapshot_of(&whole));
    drop(fast);
    let again = place.open();
    assert!(again.is_partially_loaded(), "its compaction left a checkpoint");
    assert_eq!(asked(&again), asked(&whole));
}

fn entry(session: &Session, id: &str) -> Option<String> {
    session.entry(id).map(|entry| format!("{entry:?}"))
}

/// One step of a session.
#[derive(Clone, Debug)]
enum Step {
    Append(u8),
    /// A message that waited in the inbox.
    Queued(u8),
    /// State of ctxhost's own.
    State(u8),
    /// A result without a call id.
    Nameless,
    /// A text of the user that is a tool result behind an answer with a call.
    Observation,
    Edit(Index, bool),
    Compact(Vec<u8>),
    CompactByPi(Index),
    Checkpoint,
    Branch(Index),
    Undo,
}

fn steps(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => any::<u8>().prop_map(Step::Append),
        2 => any::<u8>().prop_map(Step::Queued),
        1 => any::<u8>().prop_map(Step::State),
        2 => Just(Step::Nameless),
        2 => Just(Step::Observation),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(at, omit)| Step::Edit(at, omit)),
        3 => prop::collection::vec(any::<u8>(), 1..9).prop_map(Step::Compact),
        1 => any::<Index>().prop_map(Step::CompactByPi),
        1 => Just(Step::Checkpoint),
        1 => any::<Index>().prop_map(Step::Branch),
        1 => Just(Step::Undo),
    ];
    prop::collection::vec(step, count)
}

fn take(session: &mut Session, step: &Step) {
    let number = session.records().len();
    let time_ms = 1_000 + number as i64;
    let any_id = |at: &Index, session: &Session| {
        let at = if number == 0 { return None } else { at.index(number) };
        Some(session.records()[at].id().to_owned())
    };
    let append = |session: &mut Session, body| {
        session.append_at(body, time_ms).unwrap();
    };
    match step {
        Step::Append(sort) => append(session, any_body(*sort, number)),
        Step::Queued(id) => {
            let queued = json!({ "role": "user", "content": "a queued message", "inboxId": format!("queued{id}") });
            append(session, message(queued));
        }
        Step::State(n) => append(session, RecordBody::custom("ctxhost.test", &json!({ "n": n }))),
        Step::Nameless => {
            let result = json!({ "role": "toolResult", "toolName": "read", "content": [] });
            append(session, message(result));
        }
        Step::Observation => append(session, user("Observation:\n42")),
        Step::Edit(at, omit) => {
            let Some(target) = any_id(at, session) else { return };
            let replacement = if *omit { Value::Null } else { json!({ "content": "edited" }) };
            let edit =
                json!({ "type": "context_edit", "targetId": target, "replacement": replacement });
            append(session, RecordBody::from_value(&edit).unwrap());
        }
        Step::Compact(choices) => {
            let view = session.live(0).snapshot();
            session.compact(NewCompaction::of_tests(&any_plan(&view, choices), &view)).unwrap();
        }
        Step::CompactByPi(at) => {
            if let Some(kept) = any_id(at, session) {
                by_pi(session, &kept, json!({}));
            }
        }
        Step::Checkpoint => {
            let system = json!({ "systemMessage": { "role": "system", "content": "rules" } });
            by_pi(session, "nowhere", system);
        }
        Step::Branch(at) => {
            if let Some(id) = any_id(at, session) {
                session.set_leaf(&id).unwrap();
            }
        }
        Step::Undo => {
            session.undo_newest_compaction().unwrap();
        }
    }
}

/// A session of these steps, in memory.
fn session_of_steps(steps: &[Step]) -> Session {
    let mut session = memory();
    // Behind a branch that was left, and with lines that are no records.
    steps.iter().for_each(|step| take(&mut session, step));
    if !session.branch().iter().any(|record| *record.kind() == RecordKind::Compaction) {
        take(&mut session, &Step::Compact(vec![0, 5, 3]));
    }
    session
}

/// What may happen to a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Duplicate(Index, Index),
    Swap(Index, Index),
    Lose(Index),
    Insert(Index, &'static str),
}

fn damage() -> impl Strategy<Value = Damage> {
    let line = || any::<Index>();
    prop_oneof![
        (line(), 1..255_u8).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        line().prop_map(Damage::Cut),
        (line(), line()).prop_map(|(from, to)| Damage::Duplicate(from, to)),
        (line(), line()).prop_map(|(one, other)| Damage::Swap(one, other)),
        line().prop_map(Damage::Lose),
        (
            line(),
            prop_oneof![Just("\n"), Just("rubbish\n"), Just("{\"type\":\"label\",\"id\":\"x\"}\n")]
        )
            .prop_map(|(at, text)| Damage::Insert(at, text)),
    ]
}

/// The damaged file.
fn damaged(bytes: &[u8], damage: &Damage) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> =
        bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let count = lines.len();
    match damage {
        Damage::Flip(at, mask) => {
            let mut bytes = bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
            return bytes;
        }
        Damage::Cut(at) => return bytes[..at.index(bytes.len())].to_vec(),
        Damage::Duplicate(from, to) => {
            lines.insert(to.index(count), lines[from.index(count)].clone())
        }
        Damage::Swap(one, other) => lines.swap(one.index(count), other.index(count)),
        Damage::Lose(at) => drop(lines.remove(at.index(count))),
        Damage::Insert(at, text) => lines.insert(at.index(count), text.as_bytes().to_vec()),
    }
    lines.concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_checkpoint_changes_nothing_but_what_is_read(
        before in steps(1..25), tail in steps(0..8), choices in prop::collection::vec(any::<u8>(), 1..5),
    ) {
        let place = Place::new();
        let mut session = session_of_steps(&before);
        place.keep(&mut session);
        check_the_same_bytes(&place, &session);
        tail.iter().for_each(|step| take(&mut session, step));
        check_the_same_bytes(&place, &session);
        check_the_same(&place, &choices);
    }

    #[test]
    fn damage_is_found_or_was_not_read(
        before in steps(1..20), tail in steps(0..6), damage in damage(),
    ) {
        let place = Place::new();
        let mut session = session_of_steps(&before);
        place.keep(&mut session);
        let older_bytes = session.contents.length_bytes() as usize;
        tail.iter().for_each(|step| take(&mut session, step));
        let sound = session.to_bytes();
        let bytes = damaged(&sound, &damage);
        fs::write(&place.path, &bytes).unwrap();
        let whole = Session::parse("whole", &bytes).map(|session| asked(&session)).ok();
        let fast = Session::open(&place.path).map(|session| asked(&session)).ok();
        let is_in_tail = bytes.starts_with(&sound[..older_bytes]);
        if is_in_tail || fast != Some(asked(&Session::parse("sound", &sound).unwrap())) {
            prop_assert_eq!(fast, whole);
        }
    }
}

fn check_the_same_bytes(place: &Place, session: &Session) {
    fs::write(&place.path, session.to_bytes()).unwrap();
    let (fast, whole) = (place.open(), place.whole());
    assert_eq!(asked(&fast), asked(&whole));
    assert_eq!(snapshot_of(&fast), snapshot_of(&whole));
}

/// A session with some compactions, of which all but the newest part is left unread.
fn long() -> (Place, Session) {
    let place = Place::new();
    let mut session = memory();
    for _ in 0..5 {
        talk(&mut session, 6);
        compact(&mut session, |plan| {
            plan.keep(0..1)
                .insert(Role::User, "what happened", 1..4)
                .replace_text(4, "shortened")
                .keep(5..6);
        })
        .unwrap();
    }
    place.keep(&mut session);
    (place, session)
}

#[test]
fn the_next_turn_reads_the_newest_part_alone() {
    let (place, session) = long();
    let mut fast = place.open();
    assert!(fast.is_partially_loaded());
    let records = fast.contents.loaded().records.len();
    assert!(records < session.records().len() / 3, "{records} records");
    let id = fast.append(user("go on")).unwrap();
    assert!(fast.entry(&id).is_some() && fast.model().is_none() && fast.leaf().is_some());
    assert_eq!(fast.live(0).snapshot().len(), session.live(0).snapshot().len() + 1);
    compact(&mut fast, |plan| {
        plan.keep(0..1).keep(3..5);
    })
    .unwrap();
    assert!(fast.is_partially_loaded(), "nothing of a turn reads the rest");
    assert_eq!(fast.records().len(), session.records().len() + 2);
    drop(fast);
    assert!(place.open().is_partially_loaded());
}

#[test]
fn a_checkpoint_that_is_off_in_any_way_is_passed_over() {
    let (place, session) = long();
    let expected = asked(&session);
    for suffix in ["live", "ids"] {
        let path = place.beside(suffix);
        let sound = fs::read(&path).unwrap();
        let step = (sound.len() / 40).max(1);
        for at in (0..sound.len()).step_by(step) {
            let mut flipped = sound.clone();
            flipped[at] ^= 0x11;
            for off in [&sound[..at], &flipped[..]] {
                fs::write(&path, off).unwrap();
                let fast = place.open();
                assert!(!fast.is_partially_loaded(), "{suffix} at {at}");
                assert_eq!(asked(&fast), expected);
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(!place.open().is_partially_loaded());
        fs::write(&path, &sound).unwrap();
        assert!(place.open().is_partially_loaded());
    }
}

#[test]
fn the_checkpoint_of_another_session_or_of_another_time_is_passed_over() {
    let (place, mut session) = long();
    let (live, ids) =
        (fs::read(place.beside("live")).unwrap(), fs::read(place.beside("ids")).unwrap());
    let early = session.to_bytes();
    talk(&mut session, 3);
    compact(&mut session, |plan| {
        plan.keep(0..2);
    })
    .unwrap();
    fs::write(&place.path, session.to_bytes()).unwrap();
    let late = place.open();
    assert!(late.is_partially_loaded(), "an older checkpoint has a longer tail");
    assert_eq!(asked(&late), asked(&session));
    drop(late);

    place.keep(&mut session);
    fs::write(&place.path, &early).unwrap();
    assert_eq!(asked(&place.open()), asked(&Session::parse("early", &early).unwrap()));

    let (other, other_session) = long_of("another");
    fs::write(other.beside("live"), live).unwrap();
    fs::write(other.beside("ids"), ids).unwrap();
    assert_eq!(asked(&other.open()), asked(&other_session));
}

/// A session of one compaction whose messages contain `text`.
fn long_of(text: &str) -> (Place, Session) {
    let place = Place::new();
    let mut session = memory();
    for _ in 0..4 {
        session.append(user(text)).unwrap();
    }
    compact(&mut session, |plan| {
        plan.keep(0..1).keep(2..4);
    })
    .unwrap();
    place.keep(&mut session);
    (place, session)
}

#[test]
fn a_line_of_the_unread_part_that_comes_again_is_left_out() {
    let (place, session) = long();
    let second = session.records()[1].line().to_owned();
    let mut bytes = session.to_bytes();
    bytes.extend(format!("{second}\n").bytes());
    fs::write(&place.path, &bytes).unwrap();
    let fast = place.open();
    assert_eq!(asked(&fast), asked(&place.whole()));
    assert_eq!(fast.problems().len(), 1);
}

#[test]
fn what_is_read_late_holds_what_was_appended_since() {
    let (place, session) = long();
    let mut fast = place.open();
    let early = fast.append(user("early")).unwrap();
    assert_eq!(fast.records().len(), session.records().len() + 1);
    let late = fast.append(user("late")).unwrap();
    assert!(!fast.is_partially_loaded(), "reading once loads everything");
    assert_eq!(fast.record(&late).unwrap().parent_id(), Some(early.as_str()));
    assert_eq!(fast.to_bytes(), fs::read(&place.path).unwrap());
}

#[test]
fn what_cannot_be_read_is_not_taken_for_all() {
    let (place, _) = long();
    let mut fast = place.open();
    fs::remove_file(&place.path).unwrap();
    assert!(!fast.records().is_empty() && fast.is_partially_loaded());
    assert!(fast.set_leaf("00000000").is_err());
    assert!(fast.into_file(&place.beside("copy")).is_err());
    assert!(!place.beside("copy").exists());
}

#[test]
fn short_sessions_have_no_files_beside_them() {
    let place = Place::new();
    let mut session = Session::create(&place.path, "/", None).unwrap();
    talk(&mut session, 3);
    compact(&mut session, |plan| {
        plan.keep(0..2);
    })
    .unwrap();
    assert!(!place.beside("live").exists() && !place.beside("ids").exists());
    session.checkpoint_from_bytes = 0;
    compact(&mut session, |plan| {
        plan.keep(0..2);
    })
    .unwrap();
    assert_modes(&[place.beside("live"), place.beside("ids")]);
    assert!(!place.beside("live.new").exists());
}

fn assert_modes(paths: &[PathBuf]) {
    use std::os::unix::fs::PermissionsExt as _;
    for path in paths {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_long_session_without_a_checkpoint_gets_one_with_its_next_record() {
    let (place, _) = long();
    forget(&place.path);
    let mut session = place.open();
    assert!(!session.is_partially_loaded());
    session.append(user("next")).unwrap();
    drop(session);
    let fast = place.open();
    assert!(fast.is_partially_loaded());
    assert_eq!(asked(&fast), asked(&place.whole()));
}

fn forget(session: &Path) {
    for suffix in ["live", "ids"] {
        fs::remove_file(session.with_file_name(format!("s.jsonl.{suffix}"))).unwrap();
    }
}

//! Damaged headers and damaged bytes anywhere: a repair makes the messages readable and loses no byte.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;

use super::compaction::compact;
use super::*;
use crate::SessionError;
use crate::fsck::FsckReport;

const HEADER: &str = r#"{"type":"session","version":3,"id":"0199-mine","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/home/dev","parentSession":"/home/dev/p.jsonl"}"#;

/// A folder of its own with every file beside a session.
struct State {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl State {
    fn new() -> State {
        let folder = quick_folder();
        let path = folder.path().join("2026-11-21T01-41-21-054Z_0199-mine.jsonl");
        let header = SessionHeader::parse(HEADER).unwrap();
        let mut session = Session::in_memory(header).into_file(&path).unwrap();
        session.checkpoint_from_bytes = 0;
        talk(&mut session, 6);
        compact(&mut session, |plan| {
            plan.keep(0..1).insert(Role::User, "what happened", 1..4).keep(4..6);
        })
        .unwrap();
        talk(&mut session, 3);
        drop(session);
        fs::write(crate::pending_path(&path), r#"{"version":1,"session":"0199-mine"}"#).unwrap();
        fs::write(beside(&path, "lock"), r#"{"pid":1,"host":"h","program":"p","since":"s"}"#)
            .unwrap();
        State { folder, path }
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder.path()).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    fn repair(&self) -> FsckReport {
        FsckReport::check(&self.path).unwrap().repair().unwrap()
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap().to_owned();
    name.push(format!(".{suffix}"));
    path.with_file_name(name)
}

/// The lines of all records on the branch.
fn texts_of(session: &Session) -> Vec<String> {
    session.branch().iter().map(|record| record.line().to_owned()).collect()
}

/// A session file of these bytes and nothing beside it; what a repair makes of it.
fn repaired(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf, FsckReport) {
    let folder = quick_folder();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    let report = FsckReport::check(&path).unwrap().repair().unwrap();
    (folder, path, report)
}

/// The lines of a session without its header.
fn records() -> String {
    let state = State::new();
    let text = fs::read_to_string(&state.path).unwrap();
    text.split_once('\n').unwrap().1.to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn one_damaged_byte_in_any_file_hides_no_sound_record(
        file in any::<Index>(), at in any::<Index>(), byte in any::<u8>(), in_the_header in any::<bool>(),
    ) {
        let state = State::new();
        let whole = texts_of(&Session::read(&state.path).unwrap());
        let files = state.files();
        let file = if in_the_header { &state.path } else { file.get(&files) };
        let mut bytes = fs::read(file).unwrap();
        let at = at.index(if in_the_header { HEADER.len() + 1 } else { bytes.len() });
        bytes[at] = byte;
        fs::write(file, &bytes).unwrap();
        let _ = Session::open(&state.path).map(|mut session| session.recover_compaction());
        state.repair();
        let mut session = Session::open(&state.path).unwrap();
        prop_assert_eq!(session.header().line(), HEADER);
        session.recover_compaction();
        let found = texts_of(&session);
        let is_damaged = |line: &String| !String::from_utf8_lossy(&bytes).contains(line.as_str());
        let missing = whole.iter().filter(|line| !found.contains(line));
        for line in missing {
            prop_assert!(*file == state.path && is_damaged(line), "{line}");
        }
        session.append(user("on")).unwrap();
    }

    #[test]
    fn a_repair_of_a_header_loses_no_byte_and_guesses_well(at in any::<Index>(), byte in any::<u8>()) {
        let mut bytes = format!("{HEADER}\n{}", records()).into_bytes();
        let at = at.index(HEADER.len());
        bytes[at] = byte;
        // Without checksums, and under a name without id and time.
        let (_folder, path, _) = repaired("s.jsonl", &bytes);
        let session = Session::read(&path).unwrap();
        prop_assert!(session.records().len() >= 10, "{:?}", session.problems());
        let kept = [fs::read(&path).unwrap(), fs::read(beside(&path, "damaged")).unwrap_or_default()].concat();
        let kept = String::from_utf8_lossy(&kept).into_owned();
        for line in bytes.split(|byte| *byte == b'\n') {
            prop_assert!(kept.contains(&*String::from_utf8_lossy(line)));
        }
    }
}

#[test]
fn every_error_for_a_damaged_header_names_the_repair() {
    let state = State::new();
    let text = fs::read_to_string(&state.path).unwrap().replacen("\"version\"", "\"versi\u{7}n", 1);
    fs::write(&state.path, text).unwrap();
    let errors = [
        Session::open(&state.path).unwrap_err().to_string(),
        Session::read(&state.path).unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains("line 1: not JSON from column"), "{error}");
        assert!(error.contains("10 records below it"), "{error}");
        assert!(error.contains("`ctxhost fsck --repair"), "{error}");
    }
    let report = state.repair();
    assert!(report.is_intact(), "{report:?}");
}

#[test]
fn a_header_is_rebuilt_from_its_remains() {
    let records = records();
    let named = "2026-11-20T01-02-03-004Z_0199-named.jsonl";
    // The damaged header line, the file name; expected id, time, folder.
    let gone = ("", "");
    let cases = [
        ("", named, "0199-named", "2026-11-20T01:02:03.004Z", ""),
        (
            &HEADER.replace("{\"type", "\"type"),
            "s.jsonl",
            "0199-mine",
            "2026-11-21T01:41:21.054Z",
            "/home/dev",
        ),
        (
            &HEADER.replace("\"cwd\"", "\"c#d"),
            "s.jsonl",
            "0199-mine",
            "2026-11-21T01:41:21.054Z",
            "/home/dev",
        ),
        (
            &HEADER.replace("session\"", "sessiom\""),
            named,
            "0199-named",
            "2026-11-21T01:41:21.054Z",
            "/home/dev",
        ),
        (
            &HEADER.replace("0199-mine\"", "0199-mine#"),
            "s.jsonl",
            gone.0,
            "2026-11-21T01:41:21.054Z",
            "/home/dev",
        ),
        (
            &HEADER.replace(":3,", ":\"x\","),
            "s.jsonl",
            "0199-mine",
            "2026-11-21T01:41:21.054Z",
            "/home/dev",
        ),
        ("\0\0\0\0\0\0\0", "s.jsonl", gone.0, "1970-01-01T00:00:01.001Z", ""),
        ("[1,2]", "s.jsonl", gone.0, "1970-01-01T00:00:01.001Z", ""),
    ];
    for (damaged, name, id, time, cwd) in cases {
        let line = if damaged.is_empty() { String::new() } else { format!("{damaged}\n") };
        let (_folder, path, report) = repaired(name, format!("{line}{records}").as_bytes());
        assert!(report.is_intact(), "{damaged}: {report:?}");
        let session = Session::read(&path).unwrap();
        let header = session.header();
        assert!(
            if id.is_empty() { header.id().len() == 36 } else { header.id() == id },
            "{damaged}: {header:?}"
        );
        assert!(header.line().contains(time), "{damaged}: {header:?}");
        assert_eq!((header.cwd(), header.version()), (cwd, 3), "{damaged}");
        assert_eq!(session.records().len(), 10, "{damaged}");
        let copy = fs::read_to_string(beside(&path, "damaged")).unwrap_or_default();
        assert_eq!(copy, line, "{damaged}");
    }
}

#[test]
fn a_header_is_found_behind_marks_and_on_any_line() {
    let records = records();
    let files = [
        format!("\u{feff}{HEADER}\n{records}"),
        format!("\0\0\0{HEADER}\n{records}"),
        format!("{HEADER}#{records}"),
        format!("\n\r\n{HEADER}\r\n{}", records.replace('\n', "\r\n")),
        format!("{records}{HEADER}\n"),
        format!("# notes\n{records}{HEADER}\n"),
    ];
    for text in files {
        let (_folder, path, _) = repaired("s.jsonl", text.as_bytes());
        let session = Session::read(&path).unwrap();
        assert_eq!(session.header().line(), HEADER, "{text}");
        assert_eq!(session.records().len(), 10, "{text}");
    }
}

#[test]
fn a_second_header_hides_nothing() {
    let text = records().replacen('\n', &format!("\n{HEADER}\n"), 3);
    let (_folder, path, _) = repaired("s.jsonl", format!("{HEADER}\n{text}").as_bytes());
    assert_eq!(Session::read(&path).unwrap().records().len(), 10);
}

#[test]
fn older_versions_keep_theirs() {
    let first = r#"{"type":"message","timestamp":"2026-11-21T01:41:21.054Z","message":{"role":"user","content":"hi"}}"#;
    let second = r#"{"type":"message","id":"a","parentId":null,"message":{"role":"hookMessage","content":"hi"}}"#;
    for (record, version) in [(first, 1), (second, 2)] {
        let (_folder, path, report) =
            repaired("s.jsonl", format!("garbage\n{record}\n").as_bytes());
        assert!(report.is_intact(), "{report:?}");
        let session = Session::read(&path).unwrap();
        assert_eq!(session.migrated_from(), Some(version));
        assert_eq!(texts(&session), ["hi"]);
    }
}

#[test]
fn what_holds_no_record_stays_as_it_is() {
    let newer = format!("{}\n{}", HEADER.replace(":3,", ":9,"), records());
    let zero = format!("{}\n{}", HEADER.replace(":3,", ":0,"), records());
    let others: [&[u8]; 7] = [
        b"",
        b"\n\n",
        b"\x1F\x8B\x08\0\0\0\0\0\0\x03\xabV*\xc9,HU",
        b"hello\nworld\n",
        b"{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"hi\"},\"uuid\":\"u\"}\n",
        newer.as_bytes(),
        zero.as_bytes(),
    ];
    for bytes in others {
        let (folder, path, report) = repaired("s.jsonl", bytes);
        let is_newer = bytes == newer.as_bytes();
        assert_eq!(report.is_intact(), is_newer, "{report:?}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert!(!fs::exists(folder.path().join("s.jsonl.damaged")).unwrap());
    }
}

#[test]
fn an_open_session_is_not_repaired() {
    let state = State::new();
    let open = Session::open(&state.path).unwrap();
    let text = fs::read_to_string(&state.path).unwrap();
    fs::write(&state.path, text.replacen('{', "[", 1)).unwrap();
    let repaired = state.repair();
    assert!(repaired.repairs[0].contains("is open in another writer"), "{repaired:?}");
    drop(open);
    assert!(state.repair().is_intact());
    assert!(matches!(Session::open(&state.path), Ok(_) | Err(SessionError::Locked { .. })));
}

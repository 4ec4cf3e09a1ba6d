//! Damage of every kind at every place: it opens, keeps its bytes, and the check names the place.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::fsck::{FaultKind, FsckNoteKind, FsckReport, SessionChecker, SessionFault};

/// The lines of a session with every kind of content; the compaction is on line 6.
fn written(path: &Path) -> Vec<Vec<u8>> {
    let mut session = Session::create(path, "/home/dev", Some("mine")).unwrap();
    for number in 1..=4 {
        session.append(user(&format!("{number}: naïve 你好 🙂"))).unwrap();
    }
    let kept = session.leaf().unwrap().id().to_owned();
    let compaction = serde_json::json!({
        "type": "compaction", "id": "cccccccc", "parentId": kept, "timestamp": "2026-11-21T01:41:21.054Z",
        "summary": "so far", "firstKeptEntryId": kept, "tokensBefore": 9,
    });
    adopt(&mut session, &compaction);
    for number in 5..=8 {
        session.append(assistant(&format!("{number}: fin — ✓"))).unwrap();
    }
    session.to_bytes().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn adopt(session: &mut Session, record: &serde_json::Value) {
    let header = session.header().line().to_owned();
    let other = Session::parse("other", format!("{header}\n{record}\n").as_bytes()).unwrap();
    session.append_copy(&other.records()[0]).unwrap();
}

fn kinds(report: &FsckReport) -> Vec<(usize, FaultKind)> {
    report.faults.iter().map(|fault| (fault.line, fault.kind)).collect()
}

/// Writes the damaged bytes, and checks them: they open if they have a header, and keep their bytes.
fn damaged(path: &Path, bytes: &[u8]) -> FsckReport {
    fs::write(path, bytes).unwrap();
    let report = FsckReport::check(path).unwrap();
    match Session::read(path) {
        // A header that lost its version is read as one of version 1, in memory.
        Ok(session) => assert!(session.migrated_from().is_some() || session.to_bytes() == bytes),
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.contains("not a Pi session") || message.contains("--repair"),
                "{message}"
            );
            assert!(kinds(&report).contains(&(1, FaultKind::Header)), "{report:?}");
        }
    }
    assert!(fs::read(path).unwrap() == bytes, "looking changes nothing");
    report
}

fn home() -> (tempfile::TempDir, PathBuf, Vec<Vec<u8>>) {
    let folder = quick_folder();
    let path = folder.path().join("s.jsonl");
    let lines = written(&path);
    (folder, path, lines)
}

#[test]
fn an_intact_session_has_no_findings() {
    let (_folder, path, lines) = home();
    let report = damaged(&path, &lines.concat());
    assert_eq!((report.faults, report.notes, report.messages), (vec![], vec![], 8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_flipped_bit_is_found_on_its_line(line in any::<Index>(), at in any::<Index>(), bit in 0..8_u8) {
        let (_folder, path, mut lines) = home();
        let line = line.index(lines.len());
        let at = at.index(lines[line].len());
        lines[line][at] ^= 1 << bit;
        let report = damaged(&path, &lines.concat());
        prop_assert!(kinds(&report).contains(&(line + 1, FaultKind::Changed)), "{:?}", report.faults);
        let changed = report.faults.iter().filter(|fault| fault.kind == FaultKind::Changed);
        prop_assert!(changed.count() <= 1, "{:?}", report.faults);
    }

    #[test]
    fn a_cut_is_found_where_it_was_made(keep in any::<Index>()) {
        let (_folder, path, lines) = home();
        let whole = lines.concat();
        let keep = keep.index(whole.len());
        let report = damaged(&path, &whole[..keep]);
        let line = whole[..keep].iter().filter(|byte| **byte == b'\n').count() + 1;
        // A cut that removes the last line break only removes no message.
        if keep + 1 == whole.len() {
            prop_assert!(report.is_intact(), "{:?}", report.faults);
        } else {
            prop_assert!(report.faults.iter().all(|fault| fault.line >= line || fault.kind == FaultKind::Header));
            let is_named = |fault: &SessionFault| fault.line == line || fault.line == line + 1;
            prop_assert!(report.faults.iter().any(is_named), "{line}: {:?}", report.faults);
        }
    }

    #[test]
    fn a_lost_line_is_found(line in any::<Index>()) {
        let (_folder, path, mut lines) = home();
        let line = line.index(lines.len());
        lines.remove(line);
        let report = damaged(&path, &lines.concat());
        prop_assert!(kinds(&report).contains(&(line + 1, FaultKind::MissingLine)), "{:?}", report.faults);
    }

    #[test]
    fn a_doubled_line_is_found(line in 1..10_usize, to in any::<Index>()) {
        let (_folder, path, mut lines) = home();
        let to = line + 1 + to.index(lines.len() - line);
        lines.insert(to, lines[line].clone());
        let report = damaged(&path, &lines.concat());
        prop_assert_eq!(kinds(&report), [(to + 1, FaultKind::DuplicateId)]);
    }

    #[test]
    fn moved_lines_are_found(from in 1..10_usize, to in 1..10_usize) {
        prop_assume!(from != to);
        let (_folder, path, mut lines) = home();
        let line = lines.remove(from);
        lines.insert(to, line);
        let report = damaged(&path, &lines.concat());
        let (first, last) = (from.min(to) + 1, from.max(to) + 1);
        let is_inside = |fault: &SessionFault| (first..=last + 1).contains(&fault.line);
        prop_assert!(report.faults.iter().all(is_inside), "{:?}", report.faults);
        prop_assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::Reordered));
    }

    #[test]
    fn a_repair_loses_no_byte(cut in any::<Index>(), flip in any::<Index>()) {
        let (folder, path, lines) = home();
        let mut bytes = lines.concat();
        bytes.truncate(1 + cut.index(bytes.len() - 1));
        let at = flip.index(bytes.len());
        bytes[at] ^= 4;
        damaged(&path, &bytes).repair().unwrap();
        let mut kept = fs::read(&path).unwrap();
        kept.extend(fs::read(folder.path().join("s.jsonl.torn")).unwrap_or_default());
        match fs::read(folder.path().join("s.jsonl.damaged")) {
            Err(_) => prop_assert!(kept == bytes),
            // Lines were rewritten: the original bytes are in one of the files.
            Ok(copy) => {
                kept.extend(copy);
                for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    prop_assert!(memchr::memmem::find(&kept, line).is_some());
                }
            }
        }
    }
}

#[test]
fn a_torn_tail_is_set_aside_by_a_repair() {
    let (folder, path, lines) = home();
    let torn = [lines.concat(), b"{\"type\":\"mess".to_vec()].concat();
    let report = damaged(&path, &torn);
    assert_eq!(kinds(&report), [(11, FaultKind::TornTail)]);
    let repaired = report.repair().unwrap();
    assert!(repaired.is_intact() && repaired.notes.is_empty(), "{repaired:?}");
    assert_eq!(repaired.repairs.len(), 1, "{repaired:?}");
    assert_eq!(fs::read(folder.path().join("s.jsonl.torn")).unwrap(), b"{\"type\":\"mess");
    assert_eq!(fs::read(&path).unwrap(), lines.concat());
}

#[test]
fn another_programs_lines_are_no_fault_and_a_repair_knows_them() {
    let (_folder, path, lines) = home();
    let foreign = r#"{"type":"message","id":"f","parentId":"PARENT","message":{"role":"user","content":"pi"}}"#;
    let last = Session::read(&path).unwrap().leaf().unwrap().id().to_owned();
    let bytes = [lines.concat(), format!("{}\n", foreign.replace("PARENT", &last)).into()].concat();
    let report = damaged(&path, &bytes);
    assert!(report.is_intact());
    assert_eq!(report.notes[0].message, "one line has no checksum");
    let repaired = report.repair().unwrap();
    assert_eq!((repaired.faults.len(), repaired.notes.len()), (0, 0), "{repaired:?}");
    let text = String::from_utf8(bytes).unwrap().replace("\"pi\"", "\"po\"");
    assert_eq!(kinds(&damaged(&path, text.as_bytes())), [(11, FaultKind::Changed)]);
}

#[test]
fn a_repair_keeps_the_proof_of_damage() {
    let (folder, path, mut lines) = home();
    let checksums = folder.path().join("s.jsonl.crc");
    let before = fs::read(&checksums).unwrap();
    let at = lines[2].len() / 2;
    lines[2][at] ^= 1;
    let repaired = damaged(&path, &lines.concat()).repair().unwrap();
    assert!(!repaired.is_intact());
    assert!(repaired.repairs[0].contains("if the edit was intended"), "{repaired:?}");
    assert_eq!(fs::read(&checksums).unwrap(), before);
}

#[test]
fn checksums_are_never_needed() {
    for checksums in [
        None,
        Some(&b""[..]),
        Some(b"ctx"),
        Some(b"ctxcrc\0\x02newer"),
        Some(b"ctxcrc\0\x01half a r"),
    ] {
        let (folder, path, lines) = home();
        let beside = folder.path().join("s.jsonl.crc");
        match checksums {
            None => fs::remove_file(&beside).unwrap(),
            Some(bytes) => fs::write(&beside, bytes).unwrap(),
        }
        let report = damaged(&path, &lines.concat());
        assert!(
            report.is_intact() && report.notes[0].kind == FsckNoteKind::Checksums,
            "{report:?}"
        );
        let mut session = Session::open(&path).unwrap();
        session.append(user("on")).unwrap();
        drop(session);
        let repaired = FsckReport::check(&path).unwrap().repair().unwrap();
        assert!(repaired.is_intact() && repaired.notes.is_empty(), "{checksums:?}: {repaired:?}");
    }
}

#[test]
fn modes_and_left_overs_are_noted_and_put_right() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, path, _) = home();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    for left in ["s.jsonl.migrating", "s.jsonl.lock"] {
        fs::write(folder.path().join(left), "{").unwrap();
    }
    let report = FsckReport::check(&path).unwrap();
    let kinds: Vec<FsckNoteKind> = report.notes.iter().map(|note| note.kind).collect();
    assert_eq!(kinds, [FsckNoteKind::Mode, FsckNoteKind::LeftOver, FsckNoteKind::LeftOver]);
    assert!(report.is_intact());
    let repaired = report.repair().unwrap();
    assert_eq!((repaired.notes.len(), repaired.repairs.len()), (0, 3), "{repaired:?}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_session_that_is_open_is_checked_without_being_touched() {
    let (_folder, path, _) = home();
    let session = Session::open(&path).unwrap();
    let report = FsckReport::check(&path).unwrap();
    assert!(report.is_intact() && report.notes.is_empty(), "{report:?}");
    assert_eq!(report.holder.unwrap().pid, std::process::id());
    drop(session);
    assert!(FsckReport::check(&path).unwrap().holder.is_none());
}

#[test]
fn a_file_whose_every_line_was_changed_is_compared_in_linear_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let bodies = (0..40_000).map(|number| user(&format!("{number} {}", "x".repeat(number % 97))));
    let mut session = Session::create(&path, "/", None).unwrap();
    session.append_all(bodies.collect::<Vec<_>>(), 1).unwrap();
    drop(session);
    // Another length for each line, so that no line can be the one of a row.
    let text = fs::read_to_string(&path).unwrap().replace('\n', &format!("{}\n", " ".repeat(200)));
    fs::write(&path, text).unwrap();
    let report = FsckReport::check(&path).unwrap();
    assert_eq!(report.faults.len(), 40_001);
    assert!(report.faults.iter().all(|fault| fault.kind == FaultKind::Changed));
}

#[test]
fn a_failed_repair_names_no_file_that_is_not_there() {
    let (folder, path, mut lines) = home();
    lines[0] = b"[\n".to_vec();
    lines[1] = b"[\n".to_vec();
    fs::remove_file(folder.path().join("s.jsonl.crc")).unwrap();
    fs::write(&path, lines.concat()).unwrap();
    // Another process has it open, so that the header is not rewritten.
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let repaired = FsckReport::check(&path).unwrap().repair().unwrap();
    assert!(repaired.has_failed_repair(), "{repaired:?}");
    let kept = repaired.repairs.iter().find(|repair| repair.contains("evidence"));
    assert_eq!(kept, None, "there are no checksums to keep");
}

#[test]
fn a_file_of_another_program_is_not_repaired() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, path, _) = home();
    let log = path.with_file_name("log.jsonl");
    fs::write(&log, "{\"level\":\"info\"}\n").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o644)).unwrap();
    let report = FsckReport::check(&log).unwrap();
    assert!(!report.is_session && !report.is_intact());
    assert!(report.repair().unwrap().has_failed_repair());
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o644);
    assert!(FsckReport::check(&path).unwrap().is_session);
}

#[test]
fn a_folder_is_listed_once_for_all_its_sessions() {
    let (folder, path, _) = home();
    let second = folder.path().join("t.jsonl");
    written(&second);
    let left = folder.path().join("t.jsonl.migrating");
    fs::write(&left, "{").unwrap();
    let mut checker = SessionChecker::default();
    assert!(checker.check(&path).unwrap().notes.is_empty());
    assert_eq!(checker.check(&second).unwrap().notes[0].kind, FsckNoteKind::LeftOver);
    // Only a new list would show this one.
    fs::write(folder.path().join("s.jsonl.migrating"), "{").unwrap();
    assert!(checker.check(&path).unwrap().notes.is_empty());
    assert_eq!(FsckReport::check(&path).unwrap().notes[0].kind, FsckNoteKind::LeftOver);
    // Its process has ended and removed it.
    fs::remove_file(&left).unwrap();
    assert!(checker.check(&second).unwrap().notes.is_empty());
}

#[test]
fn files_of_a_session_with_a_similar_name_are_not_of_this_one() {
    let (folder, path, _) = home();
    for other in ["s.jsonl-2.lock", "s.jsonl2.lock", "s.json.lock", "S.jsonl.lock"] {
        fs::write(folder.path().join(other), "{").unwrap();
    }
    assert!(FsckReport::check(&path).unwrap().notes.is_empty());
}

#[test]
fn a_message_that_is_left_out_is_noted() {
    let folder = quick_folder();
    let path = folder.path().join("s.jsonl");
    let header = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;
    let unknown =
        r#"{"type":"message","id":"a","parentId":null,"message":{"role":"oracle","content":"x"}}"#;
    fs::write(&path, format!("{header}\n{unknown}\n")).unwrap();
    let report = FsckReport::check(&path).unwrap();
    let note = report.notes.iter().find(|note| note.kind == FsckNoteKind::UnreadMessage).unwrap();
    assert!(report.is_intact() && note.message.starts_with("line 2: "), "{report:?}");
}

#[test]
fn a_record_without_a_message_is_none() {
    let folder = quick_folder();
    let path = folder.path().join("s.jsonl");
    let header = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;
    let null = r#"{"type":"message","id":"a","parentId":null,"message":null}"#;
    let missing = r#"{"type":"message","id":"b","parentId":"a"}"#;
    fs::write(&path, format!("{header}\n{null}\n{missing}\n")).unwrap();
    let report = FsckReport::check(&path).unwrap();
    let unread = report.notes.iter().filter(|note| note.kind == FsckNoteKind::UnreadMessage);
    assert_eq!((report.messages, unread.count()), (0, 2), "{report:?}");
}

#[test]
fn moved_lines_without_checksums_name_what_is_left_out_and_no_missing_file() {
    let folder = quick_folder();
    let path = folder.path().join("s.jsonl");
    let header = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;
    let record = |id: &str, parent: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"x"}}}}"#
        )
    };
    let lines =
        [record("a", "null"), record("c", "\"b\""), record("b", "\"a\""), record("d", "\"c\"")];
    fs::write(&path, format!("{header}\n{}\n", lines.join("\n"))).unwrap();
    let report = FsckReport::check(&path).unwrap();
    assert!(report.faults[0].message.ends_with("left out of the conversation"), "{report:?}");
    let repairs = report.repair().unwrap().repairs.join("\n");
    assert!(!repairs.contains("remove") && repairs.contains("`ctxhost export`"), "{repairs}");
}

//! Sessions that Pi wrote.

use std::fs;

use super::*;
use crate::RecordKind;

fn of_version_3() -> Vec<PathBuf> {
    let Some(folder) = fixtures() else { return Vec::new() };
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files: Vec<PathBuf> = files
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("2026"))
        .collect();
    assert_eq!(files.len(), 5);
    files
}

#[test]
fn version_3_comes_out_as_it_went_in() {
    for path in of_version_3() {
        let session = Session::read(&path).unwrap();
        assert_eq!(session.to_bytes(), fs::read(&path).unwrap(), "{}", path.display());
        assert_eq!(session.problems(), [], "{}", path.display());
        assert_eq!(session.migrated_from(), None);
        assert_eq!(session.model(), Some(("gw".to_owned(), "gw-model".to_owned())));
        assert_eq!(session.header().cwd(), "/home/dev/project");
    }
}

#[test]
fn version_3_becomes_a_paired_transcript() {
    for path in of_version_3() {
        let log = Session::read(&path).unwrap().live(0);
        let entries = seen(&log);
        assert_eq!(entries[0].role, Role::User);
        assert!(entries[0].flags.contains(Flags::PINNED));
        assert!(entries[1].flags.contains(Flags::TOOL_CALLS));
        if entries.len() == 2 {
            assert!(entries[1].flags.contains(Flags::ABORTED.with(Flags::UNANSWERED)));
        } else {
            assert_eq!((entries.len(), entries[2].role, entries[2].frame), (4, Role::Tool, 1));
        }
    }
}

#[test]
fn version_1_opens_with_all_it_holds() {
    let Some(folder) = fixtures() else { return };
    let session = Session::read(&folder.join("before-compaction.jsonl")).unwrap();
    assert_eq!(session.problems(), []);
    assert_eq!((session.migrated_from(), session.header().version()), (Some(1), 3));
    assert_eq!(session.records().len(), 1_002);

    let entries: Vec<_> = session.records().iter().filter_map(|record| record.to_entry()).collect();
    let count = |role, kind| entries.iter().filter(|e| e.role == role && e.kind == kind).count();
    assert_eq!(count(Role::Assistant, EntryKind::Message), 484);
    assert_eq!(count(Role::User, EntryKind::Message), 55);
    assert_eq!(count(Role::Tool, EntryKind::Message), 448);
    assert_eq!(count(Role::User, EntryKind::Bash), 3);
    assert_eq!(count(Role::User, EntryKind::CompactionSummary), 2);
    assert_eq!(entries.iter().map(|entry| entry.calls.len()).sum::<usize>(), 454);
    assert_eq!(entries.iter().filter(|entry| entry.flags.contains(Flags::ABORTED)).count(), 19);
}

#[test]
fn version_1_names_its_kept_entries_by_id() {
    let Some(folder) = fixtures() else { return };
    let session = Session::read(&folder.join("before-compaction.jsonl")).unwrap();
    let compactions =
        session.records().iter().filter(|record| *record.kind() == RecordKind::Compaction);
    let kept: Vec<String> = compactions
        .map(|record| {
            let value: serde_json::Value = serde_json::from_str(record.line()).unwrap();
            assert!(value.get("firstKeptEntryIndex").is_none());
            let id = value.get("firstKeptEntryId").unwrap().as_str().unwrap();
            session.record(id).unwrap().to_entry().unwrap().text
        })
        .collect();
    assert_eq!(kept, ["i reviwed what we have, it's good. continue", "can leave it"]);

    let live = seen(&session.live(2));
    assert_eq!((live[0].kind, live[0].role), (EntryKind::CompactionSummary, Role::User));
    assert_eq!(live[1].text, "can leave it");
    assert!(live.iter().skip(1).all(|entry| entry.kind != EntryKind::CompactionSummary));
}

#[test]
fn version_1_migrates_to_the_same_bytes_each_time() {
    let Some(folder) = fixtures() else { return };
    let path = folder.join("before-compaction.jsonl");
    let session = Session::read(&path).unwrap();
    let bytes = session.to_bytes();
    assert_eq!(bytes, Session::read(&path).unwrap().to_bytes());
    let again = Session::parse("migrated", &bytes).unwrap();
    assert_eq!((again.migrated_from(), again.problems()), (None, &[][..]));
    assert_eq!(again.to_bytes(), bytes);
    assert_eq!(seen(&again.live(0)), seen(&session.live(0)));
}

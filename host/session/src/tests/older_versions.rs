//! Files of versions 1 and 2.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::fsck::FsckReport;

const V1: &str = concat!(
    r#"{"type":"session","id":"old","timestamp":"2025-12-09T00:53:29.825Z","cwd":"/","provider":"p","modelId":"m","x":1.0}"#,
    "\n",
    r#"{"type":"message","timestamp":"2025-12-09T00:53:30.000Z","message":{"role":"user","content":"one","n":1.00}}"#,
    "\nnot json\n",
    r#"{"type":"message","message":{"role":"hookMessage","customType":"h","content":"two"}}"#,
    "\n",
    r#"{"type":"message","message":{"role":"user","content":"three"}}"#,
    "\n",
    r#"{"type":"compaction","summary":"so far","firstKeptEntryIndex":3,"tokensBefore":9,"y":2}"#,
    "\n",
    r#"{"type":"message","message":{"role":"user","content":"four"}}"#,
    "\n",
);

#[test]
fn version_1_becomes_version_3() {
    let session = Session::parse("old", V1.as_bytes()).unwrap();
    assert_eq!(session.header().line().find(r#""type":"session","version":3,"#), Some(1));
    assert!(session.header().line().ends_with(r#""x":1.0}"#));
    assert_eq!(session.header().model(), Some(("p", "m")));
    assert_eq!(session.problems().iter().map(|p| p.line).collect::<Vec<_>>(), [3]);
    assert!(session.records()[0].line().ends_with(r#""content":"one","n":1.00}}"#));
    assert!(session.records()[1].line().contains(r#""role":"custom""#));
    assert!(session.records()[3].line().contains(r#""y":2"#));
    for pair in session.records().windows(2) {
        assert_eq!(pair[1].parent_id(), Some(pair[0].id()));
    }
    let texts = texts(&session);
    assert!(texts[0].contains("so far"));
    assert_eq!(texts[1..], ["three", "four"]);
}

#[test]
fn version_2_changes_only_where_it_must() {
    let v2 = concat!(
        r#"{"type":"session", "version":2, "id":"old"}"#,
        "\n",
        r#"{"type":"message", "id":"a","parentId":null,"message":{"role":"user","content":"one"}}"#,
        "\n",
        r#"{"type":"message", "id":"b","parentId":"a","message":{"role":"hookMessage","content":"two"}}"#,
        "\n",
    );
    let session = Session::parse("old", v2.as_bytes()).unwrap();
    assert_eq!((session.migrated_from(), session.problems()), (Some(2), &[][..]));
    assert_eq!(session.records()[0].line(), v2.lines().nth(1).unwrap());
    assert_eq!(
        session.records()[1].line(),
        r#"{"type":"message","id":"b","parentId":"a","message":{"role":"custom","content":"two"}}"#
    );
    assert_eq!(texts(&session), ["one", "two"]);
}

#[test]
fn the_file_is_migrated_at_the_first_append_and_the_original_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.jsonl");
    fs::write(&path, V1).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();

    let mut session = Session::open(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), V1, "opening changes nothing");
    let migration = session.pending_migration().unwrap();
    assert_eq!((migration.from_version(), migration.copy()), (1, None));
    session.append(user("five")).unwrap();
    let copy = migration.copy().unwrap().canonicalize().unwrap();
    assert_eq!(copy, folder.path().join("old.jsonl.v1.bak").canonicalize().unwrap());
    assert!(session.pending_migration().is_none());
    session.append(user("six")).unwrap();
    assert_eq!(session.migrated_from(), None);
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    assert_eq!(fs::read_to_string(folder.path().join("old.jsonl.v1.bak")).unwrap(), V1);
    #[cfg(unix)]
    for file in fs::read_dir(folder.path()).unwrap() {
        use std::os::unix::fs::PermissionsExt;
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let names = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    let expected = ["old.jsonl", "old.jsonl.crc", "old.jsonl.lock", "old.jsonl.v1.bak"];
    assert_eq!(names, expected, "no staged file is left");
    let live = seen(&session.live(0));
    assert!(cfg!(not(unix)) || Session::open(&path).is_err(), "the new file is locked as well");
    drop(session);

    let again = Session::open(&path).unwrap();
    assert_eq!(again.migrated_from(), None);
    assert_eq!(seen(&again.live(0)), live);
}

/// A file of each version that was ever written, with one message.
const EVERY_VERSION: [(u32, &str); 3] = [
    (
        1,
        "{\"type\":\"session\",\"id\":\"s\"}\n{\"type\":\"message\",\"message\":{\"role\":\"user\",\"content\":\"one\"}}\n",
    ),
    (
        2,
        "{\"type\":\"session\",\"version\":2,\"id\":\"s\"}\n{\"type\":\"message\",\"id\":\"a\",\"parentId\":null,\"message\":{\"role\":\"hookMessage\",\"content\":\"one\"}}\n",
    ),
    (
        3,
        "{\"type\":\"session\",\"version\":3,\"id\":\"s\"}\n{\"type\":\"message\",\"id\":\"a\",\"parentId\":null,\"message\":{\"role\":\"user\",\"content\":\"one\"}}\n",
    ),
];

#[test]
fn every_version_opens_goes_on_and_is_sound() {
    for (version, bytes) in EVERY_VERSION {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        fs::write(&path, bytes).unwrap();
        // Its checksums are those of the older file.
        assert!(FsckReport::check(&path).unwrap().repair().unwrap().is_intact());
        let mut session = Session::open(&path).unwrap();
        assert_eq!(session.migrated_from(), (version < 3).then_some(version));
        session.append(user("two")).unwrap();
        drop(session);
        assert_eq!(texts(&Session::read(&path).unwrap()), ["one", "two"], "version {version}");
        let original = fs::read_to_string(folder.path().join(format!("s.jsonl.v{version}.bak")));
        assert_eq!(original.ok().as_deref(), (version < 3).then_some(bytes));
        let checkup = FsckReport::check(&path).unwrap();
        assert!(checkup.is_intact(), "version {version}: {checkup:?}");
    }
}

/// Made with another program: length, CRC-32 and the CRC-32 of both, for each line.
const CHECKSUMS: &str = "27000000538e94eb0e567786550000006232a0142944f97a";

/// The checksums of version 1 of their format, byte for byte: those of the file of version 3 above.
#[test]
fn checksums_have_their_format() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = (folder.path().join("s.jsonl"), EVERY_VERSION[2].1);
    let session = Session::parse("s", bytes.as_bytes()).unwrap();
    drop(session.into_file(&path).unwrap());
    let written = fs::read(folder.path().join("s.jsonl.crc")).unwrap();
    assert_eq!(&written[..8], b"ctxcrc\0\x01");
    let hex: String = written[8..].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, CHECKSUMS);
}

#[test]
fn a_torn_old_file_loses_nothing_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.jsonl");
    fs::write(&path, format!("{V1}{{\"type\":\"mess")).unwrap();
    let mut session = Session::open(&path).unwrap();
    session.append(user("five")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    assert_eq!(fs::read_to_string(folder.path().join("old.jsonl.v1.bak")).unwrap(), V1);
    let torn = fs::read_to_string(folder.path().join("old.jsonl.torn")).unwrap();
    assert_eq!(torn, "{\"type\":\"mess");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_migrated_file_reads_like_the_old_one(
        lines in prop::collection::vec((0..5_u8, "[a-z你]{0,6}", 0..20_usize), 0..20),
    ) {
        let mut file = "{\"type\":\"session\",\"id\":\"old\"}\n".to_owned();
        for (sort, text, index) in lines {
            file.push_str(&match sort {
                0 => "broken\n".to_owned(),
                1 => format!("{{\"type\":\"compaction\",\"summary\":\"{text}\",\"firstKeptEntryIndex\":{index}}}\n"),
                2 => format!("{{\"type\":\"novel\",\"x\":\"{text}\"}}\n"),
                _ => format!("{{\"type\":\"message\",\"message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"),
            });
        }
        let old = Session::parse("old", file.as_bytes()).unwrap();
        let new = Session::parse("new", &old.to_bytes()).unwrap();
        prop_assert_eq!(new.to_bytes(), old.to_bytes());
        prop_assert_eq!(seen(&new.live(0)), seen(&old.live(0)));
        prop_assert_eq!(new.problems(), old.problems());
    }
}

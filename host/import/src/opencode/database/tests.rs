//! Sessions of opencode's database: content, the log of an open database, what is no database.

use std::fs;

use super::*;
use crate::open_file;

/// The tables as opencode 1.18 creates them, without columns that are not read.
const SCHEMA: &str = "
    CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, directory text NOT NULL,
        title text NOT NULL, version text NOT NULL, revert text, time_created integer NOT NULL,
        time_updated integer NOT NULL);
    CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
        time_updated integer NOT NULL, data text NOT NULL);
    CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
        time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
    INSERT INTO session VALUES ('ses_old', 'p', NULL, '/srv/old', 'Old', '1.18.33', NULL, 1, 2);
    INSERT INTO session VALUES ('ses_new', 'p', NULL, '/srv/shop', 'New', '1.18.33', NULL, 3, 9);
    INSERT INTO message VALUES ('msg_1', 'ses_new', 1000, 1000, '{\"role\":\"user\",\"time\":{\"created\":1000}}');
    INSERT INTO message VALUES ('msg_2', 'ses_new', 2000, 2000,
        '{\"role\":\"assistant\",\"time\":{\"created\":2000},\"modelID\":\"m\",\"providerID\":\"p\"}');
    INSERT INTO message VALUES ('msg_3', 'ses_new', 3000, 3000, 'torn');
    INSERT INTO part VALUES ('prt_1', 'msg_1', 'ses_new', 1, 1, '{\"type\":\"text\",\"text\":\"the port is 5433\"}');
    INSERT INTO part VALUES ('prt_2', 'msg_2', 'ses_new', 1, 1, '{\"type\":\"text\",\"text\":\"understood\"}');
";

fn texts(path: &Path) -> Vec<String> {
    let opened = open_file(path).unwrap();
    let entries = opened.session.live(0).snapshot();
    entries.iter().map(|entry| entry.text().to_owned()).collect()
}

/// The names and bytes of a folder.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    found.sort();
    found
}

#[test]
fn a_session_is_read_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("50% of ä?#.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA).unwrap();
    let before = content(folder.path());
    let sessions = list_database(&path).unwrap();
    let found: Vec<_> =
        sessions.iter().map(|session| (session.path.clone(), session.changed_ms)).collect();
    assert_eq!(found, [(path.join("ses_new"), 9), (path.join("ses_old"), 2)]);
    assert!(sessions[0].bytes > 60 && sessions[1].bytes == 0, "{sessions:?}");
    let opened = open_file(&path.join("ses_new")).unwrap();
    assert_eq!((opened.format.as_str(), opened.session.header().cwd()), ("opencode", "/srv/shop"));
    assert_eq!(opened.problems.len(), 1, "the message that is no JSON");
    assert_eq!(texts(&path.join("ses_new")), ["the port is 5433", "understood"]);
    assert_eq!(content(folder.path()), before);
}

#[test]
fn sessions_of_sub_agents_are_not_listed_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    let database = Connection::open(&path).unwrap();
    database.execute_batch(SCHEMA).unwrap();
    database.execute("UPDATE session SET parent_id = 'ses_old' WHERE id = 'ses_new'", []).unwrap();
    database.execute("UPDATE session SET parent_id = '' WHERE id = 'ses_old'", []).unwrap();
    drop(database);
    let sessions = list_database(&path).unwrap();
    let found: Vec<_> = sessions.into_iter().map(|session| session.path).collect();
    assert_eq!(found, [path.join("ses_old")]);
    assert_eq!(texts(&path.join("ses_new")), ["the port is 5433", "understood"]);
}

/// opencode leaves its log behind, and has the database open while it runs.
#[test]
fn what_is_in_the_log_only_is_read_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    let writer = Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    writer.execute_batch(SCHEMA).unwrap();
    let before = content(folder.path());
    assert_eq!(before.len(), 3, "database, log, index");
    assert_eq!(texts(&path.join("ses_new")), ["the port is 5433", "understood"]);
    // In one process SQLite has one index for all connections, in which the reader notes its mark.
    let stored = |files: &[(PathBuf, Vec<u8>)]| -> Vec<_> {
        files
            .iter()
            .filter(|(path, _)| !path.to_string_lossy().ends_with("-shm"))
            .cloned()
            .collect()
    };
    assert!(stored(&content(folder.path())) == stored(&before), "the database or its log changed");
    // As after a crash: no process has the files open.
    let copy = tempfile::tempdir().unwrap();
    for (path, bytes) in &before {
        fs::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    let before = content(copy.path());
    let path = copy.path().join("opencode.db");
    assert_eq!(texts(&path.join("ses_new")), ["the port is 5433", "understood"]);
    assert!(content(copy.path()) == before, "a file changed");
}

#[test]
fn what_is_not_there_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA).unwrap();
    let error = |path: &Path| open_file(path).unwrap_err().to_string();
    assert!(error(&path.join("ses_none")).ends_with("the database has no session ses_none"));
    let whole = error(&path);
    let newest = path.join("ses_new").display().to_string();
    assert!(
        whole.ends_with(&format!("a database of 2 sessions; the newest is {newest}")),
        "{whole}"
    );
    fs::write(&path, "no database").unwrap();
    assert!(error(&path).ends_with("file is not a database"), "{}", error(&path));
    Connection::open(folder.path().join("other.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (a)")
        .unwrap();
    // As in the `sessions.db` of Goose.
    let other = error(&folder.path().join("other.db"));
    let reason = "it is not a database of opencode or OpenClaw: it has no table `session`";
    assert!(other.contains(reason), "{other}");
}

#[test]
fn a_log_without_its_index_is_named_with_a_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    let writer = Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    writer.execute_batch(SCHEMA).unwrap();
    let copy = tempfile::tempdir().unwrap();
    for name in ["opencode.db", "opencode.db-wal"] {
        fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    let before = content(copy.path());
    let path = copy.path().join("opencode.db");
    let error = open_file(&path.join("ses_new")).unwrap_err().to_string();
    for part in [
        "opencode.db-wal",
        "opencode.db-shm, and that is missing",
        "open the database with its agent",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(content(copy.path()) == before, "a file changed");
    // An empty log holds nothing.
    drop(writer);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA).unwrap();
    fs::write(folder.path().join("opencode.db-wal"), "").unwrap();
    assert_eq!(texts(&path.join("ses_new")), ["the port is 5433", "understood"]);
}

/// `doctor` reads only below the folder that was allowed.
#[test]
fn an_id_that_is_a_path_names_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    let database = Connection::open(&path).unwrap();
    database.execute_batch(SCHEMA).unwrap();
    for id in ["/abs/secret/private.jsonl", "../up", "..", "a/b", ""] {
        let values = "'p', NULL, '/', 'x', '1', NULL, 1, 99";
        database.execute(&format!("INSERT INTO session VALUES (?1, {values})"), [id]).unwrap();
    }
    drop(database);
    let sessions = list_database(&path).unwrap();
    let found: Vec<_> = sessions.into_iter().map(|session| session.path).collect();
    assert_eq!(found, [path.join("ses_new"), path.join("ses_old")]);
}

/// SQLite stores any kind of value in any column, whatever its type.
#[test]
fn rows_with_other_kinds_of_values_are_read_as_far_as_possible() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    let lax = SCHEMA.replace(" NOT NULL", "");
    let database = Connection::open(&path).unwrap();
    database.execute_batch(&lax).unwrap();
    database
        .execute_batch(
            "INSERT INTO session VALUES (NULL, 'p', NULL, '/srv', 'None', '1', NULL, 1, 2);
             UPDATE session SET time_updated = NULL, directory = CAST('/srv/old' AS BLOB) WHERE id = 'ses_old';
             INSERT INTO message VALUES ('msg_4', 'ses_new', 4000, 4000, NULL);
             INSERT INTO message VALUES ('msg_5', 'ses_new', 5000, 5000,
                 CAST('{\"role\":\"user\",\"time\":{\"created\":5000}}' AS BLOB));
             INSERT INTO part VALUES ('prt_5', 'msg_5', 'ses_new', 1, 1,
                 CAST('{\"type\":\"text\",\"text\":\"in bytes\"}' AS BLOB));
             INSERT INTO part VALUES ('prt_6', 'msg_5', 'ses_new', 1, 1, 7);",
        )
        .unwrap();
    drop(database);
    let sessions = list_database(&path).unwrap();
    let found: Vec<_> =
        sessions.iter().map(|session| (session.path.clone(), session.changed_ms)).collect();
    assert_eq!(found, [(path.join("ses_new"), 9), (path.join("ses_old"), 0)]);
    assert_eq!(texts(&path.join("ses_new")), ["the port is 5433", "understood", "in bytes"]);
}

//! Reads sessions from the database of an agent of OpenClaw, which holds the lines of the files of older versions.
//!
//! ```text
//!  agents/<agent>/agent/openclaw-agent.sqlite
//!  transcript_events (session_id, seq, event_json, created_at, …)
//!  since 2026.9.6 also (event_zstd, event_utf8_bytes): long lines are compressed, and event_json is null
//! ```

use std::io::{self, Read as _};
use std::path::Path;

use ctxhost_files::ZstdReader;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::super::database_path::DatabaseSession;
use super::super::storage::is_file_name;
use super::{number_at, text_at};

/// The name of the database, which older versions have without transcripts.
const FILE_NAME: &str = "openclaw-agent.sqlite";

/// The columns without which nothing can be read.
const COLUMNS: [&str; 3] = ["session_id", "seq", "event_json"];

/// Limit for a line of a session, as in files.
const LINE_BYTES: u64 = 256 << 20;

/// The transcripts of a database.
pub(super) struct Transcripts {
    columns: Vec<String>,
}

impl Transcripts {
    /// The transcripts of a database; `None` if it is one of another program.
    pub(super) fn find(
        database: &Connection,
        path: &Path,
    ) -> rusqlite::Result<Option<Transcripts>> {
        let mut columns =
            database.prepare("SELECT name FROM pragma_table_info('transcript_events')")?;
        let columns = columns.query_map([], |row| row.get::<_, String>(0))?;
        let transcripts = Transcripts { columns: columns.collect::<rusqlite::Result<_>>()? };
        let is_named = path.file_name().is_some_and(|name| name == FILE_NAME);
        let is_known = COLUMNS.iter().all(|column| transcripts.has(column));
        Ok((is_named || is_known).then_some(transcripts))
    }

    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|found| found == column)
    }

    /// An error if the table is one of a version with other columns.
    fn check(&self) -> io::Result<()> {
        match COLUMNS.iter().find(|column| !self.has(column)) {
            Some(column) => {
                let reason = format!(
                    "its table `transcript_events` has no column `{column}`, which OpenClaw 2026.9 writes; this ctxhost cannot read the sessions of this version of OpenClaw"
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
            None => Ok(()),
        }
    }

    /// The sessions, the newest first. A database without transcripts has none.
    pub(super) fn list(
        &self,
        database: &Connection,
        path: &Path,
    ) -> io::Result<Vec<DatabaseSession>> {
        if self.columns.is_empty() {
            return Ok(Vec::new());
        }
        self.check()?;
        let changed = if self.has("created_at") { "max(created_at)" } else { "0" };
        let bytes = if self.has("event_utf8_bytes") {
            "coalesce(event_utf8_bytes, octet_length(event_json), 0)"
        } else {
            "coalesce(octet_length(event_json), 0)"
        };
        let list = || {
            let mut sessions = database.prepare(&format!(
                "SELECT session_id, {changed}, sum({bytes}) FROM transcript_events \
                 GROUP BY session_id ORDER BY 2 DESC, 1"
            ))?;
            let rows = sessions.query_map([], |row| {
                let id = text_at(row, 0)?.filter(|id| is_file_name(id));
                Ok(id.map(|id| DatabaseSession {
                    path: path.join(id),
                    changed_ms: number_at(row, 1).unwrap_or_default(),
                    bytes: number_at(row, 2).and_then(|it| u64::try_from(it).ok()).unwrap_or(0),
                }))
            })?;
            rows.filter_map(Result::transpose).collect::<rusqlite::Result<Vec<_>>>()
        };
        list().map_err(io::Error::other)
    }

    /// The lines of a session; `None` without the session. A line that cannot be read becomes an empty object, which
    /// the import reports.
    pub(super) fn read_session(
        &self,
        database: &Connection,
        id: &str,
    ) -> io::Result<Option<Vec<u8>>> {
        if self.columns.is_empty() {
            return Ok(None);
        }
        self.check()?;
        let compressed = if self.has("event_zstd") { "event_zstd" } else { "NULL" };
        let read = || {
            let mut events = database.prepare(&format!(
                "SELECT event_json, {compressed} FROM transcript_events WHERE session_id = ?1 ORDER BY seq"
            ))?;
            let mut rows = events.query([id])?;
            let (mut lines, mut is_found) = (Vec::new(), false);
            while let Some(row) = rows.next()? {
                is_found = true;
                let line = match (text_at(row, 0)?, row.get_ref(1)?) {
                    (Some(text), _) => Some(text.into_bytes()),
                    (None, ValueRef::Blob(bytes)) => decompress(bytes),
                    _ => None,
                };
                // Outside of texts, JSON may have line breaks, and within them it has none.
                let line = line.unwrap_or_else(|| b"{}".to_vec()).into_iter();
                lines.extend(
                    line.map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }),
                );
                lines.push(b'\n');
                if lines.len() as u64 > ctxhost_files::SESSION_FILE_BYTES {
                    return Ok(Err(too_long()));
                }
            }
            Ok(Ok(is_found.then_some(lines)))
        };
        read().map_err(|error: rusqlite::Error| io::Error::other(error))?
    }
}

fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    ZstdReader::new(bytes).take(LINE_BYTES + 1).read_to_end(&mut line).ok()?;
    (line.len() as u64 <= LINE_BYTES).then_some(line)
}

fn too_long() -> io::Error {
    let limit = ctxhost_files::SESSION_FILE_BYTES >> 30;
    let reason = format!("the session has more than {limit} GiB");
    io::Error::new(io::ErrorKind::FileTooLarge, reason)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::json;

    use super::super::{list_database, read_session};
    use crate::open_file;

    use super::*;

    /// The table of 2026.9.6; `2026.9.2` has the first four columns.
    const SCHEMA: &str =
        "CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL,
        event_json TEXT, created_at INTEGER NOT NULL, event_zstd BLOB, event_utf8_bytes INTEGER,
        PRIMARY KEY (session_id, seq)) STRICT;";

    fn lines() -> Vec<String> {
        let message = |id: &str, parent: Option<&str>, text: &str| {
            json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "2026-11-20T10:00:01Z",
                    "message": { "role": "user", "content": [{ "type": "text", "text": text }],
                                 "timestamp": 1_795_000_000_000_i64 } })
            .to_string()
        };
        let header = json!({ "type": "session", "version": 3, "id": "s-1",
                             "timestamp": "2026-11-20T10:00:00Z", "cwd": "/srv/claw" });
        vec![
            header.to_string(),
            message("00000001", None, "the port is 5433"),
            message("00000002", Some("00000001"), "mend it"),
        ]
    }

    /// A frame whose content is in a block without compression.
    fn frame(content: &str) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap();
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58];
        frame.extend_from_slice(&(length << 3 | 1).to_le_bytes()[..3]);
        frame.extend_from_slice(content.as_bytes());
        frame
    }

    fn add(database: &Connection, id: &str, seq: usize, json: Option<&str>, zstd: Option<&[u8]>) {
        let sql = "INSERT INTO transcript_events VALUES (?1, ?2, ?3, ?4, ?5, NULL)";
        let created = 1_795_000_000_000_i64 + i64::try_from(seq).unwrap();
        let seq = i64::try_from(seq).unwrap();
        database.execute(sql, rusqlite::params![id, seq, json, created, zstd]).unwrap();
    }

    fn database(folder: &Path) -> (PathBuf, Connection) {
        let path = folder.join(FILE_NAME);
        let database = Connection::open(&path).unwrap();
        (path, database)
    }

    #[test]
    fn the_events_of_a_session_are_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let (path, database) = database(folder.path());
        database.execute_batch(SCHEMA).unwrap();
        let lines = lines();
        // Not in the order of their numbers, and the last one is compressed.
        add(&database, "s-1", 2, None, Some(&frame(&lines[2])));
        add(&database, "s-1", 1, Some(&lines[1]), None);
        add(&database, "s-1", 0, Some(&lines[0].replacen(',', ",\n", 1)), None);
        add(&database, "s-1", 3, None, Some(b"damaged"));
        add(&database, "older", 0, Some(&lines[0]), None);
        add(&database, "../up", 0, Some(&lines[0]), None);
        drop(database);
        let before = fs::read(&path).unwrap();
        let listed = list_database(&path).unwrap();
        let found: Vec<_> =
            listed.iter().map(|session| (session.path.clone(), session.changed_ms)).collect();
        let (newest, older) = (1_795_000_000_003, 1_795_000_000_000);
        assert_eq!(found, [(path.join("s-1"), newest), (path.join("older"), older)]);
        let opened = open_file(&path.join("s-1")).unwrap();
        assert_eq!((opened.format.as_str(), opened.session.header().cwd()), ("pi-v3", "/srv/claw"));
        let entries = opened.session.live(0).snapshot();
        let texts: Vec<_> = entries.iter().map(|entry| entry.text().to_owned()).collect();
        assert_eq!(texts, ["the port is 5433", "mend it"]);
        assert_eq!(opened.problems.len(), 1, "the damaged line: {:?}", opened.problems);
        let error = open_file(&path.join("gone")).unwrap_err().to_string();
        assert!(error.ends_with("the database has no session gone"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written beside it");
    }

    #[test]
    fn other_versions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (path, database) = database(folder.path());
        database.execute_batch("CREATE TABLE auth_profile_store (a)").unwrap();
        assert_eq!(list_database(&path).unwrap(), [], "an older version has no transcripts here");
        assert!(read_session(&path, "s-1").is_err());
        database.execute_batch("CREATE TABLE transcript_events (session_id, seq, body)").unwrap();
        let error = list_database(&path).unwrap_err().to_string();
        assert!(error.contains("has no column `event_json`"), "{error}");
        drop(database);
        let version = "CREATE TABLE transcript_events (session_id, seq, event_json, created_at);";
        fs::remove_file(&path).unwrap();
        let database = Connection::open(&path).unwrap();
        database.execute_batch(version).unwrap();
        for (seq, line) in (0_i64..).zip(lines()) {
            let sql = "INSERT INTO transcript_events VALUES ('s-1', ?1, ?2, 7)";
            database.execute(sql, rusqlite::params![seq, line]).unwrap();
        }
        drop(database);
        let listed = list_database(&path).unwrap();
        let bytes: usize = lines().iter().map(String::len).sum();
        assert_eq!((listed[0].changed_ms, listed[0].bytes), (7, bytes as u64));
        assert_eq!(open_file(&path.join("s-1")).unwrap().problems, []);
    }
}

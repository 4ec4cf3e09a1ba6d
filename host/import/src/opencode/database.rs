//! Reads sessions from a database of opencode or OpenClaw, without writing to it or beside it.
//!
//! ```text
//!  opencode:
//!  session (id, directory, version, revert, time_updated, …)
//!  message (id, session_id, data: JSON without the id)
//!  part    (id, message_id, session_id, data: JSON without the ids)
//! ```

mod openclaw;

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row};
use serde_json::{Value, json};

use self::openclaw::Transcripts;
use super::super::surrogates::replace_halves;
use super::database_path::DatabaseSession;
use super::storage::is_file_name;

/// The tables that are read.
const TABLES: [&str; 3] = ["session", "message", "part"];

/// The columns of a session whose JSON is a field of the same name.
const JSON_COLUMNS: [&str; 1] = ["revert"];

/// The columns of a session that are texts, with the fields of an export.
const TEXT_COLUMNS: [(&str, &str); 4] =
    [("id", "id"), ("directory", "directory"), ("version", "version"), ("parent_id", "parentID")];

/// The sessions of a database, the newest first, without those of opencode's sub-agents.
///
/// # Errors
///
/// If the file cannot be read or is not a database of opencode or OpenClaw.
pub fn list_database(path: &Path) -> io::Result<Vec<DatabaseSession>> {
    let database = open(path)?;
    let transcripts = Transcripts::find(&database, path).map_err(io::Error::other)?;
    if let Some(transcripts) = transcripts {
        return transcripts.list(&database, path);
    }
    let list = || {
        // A session with a parent is one that a task of the parent began.
        let has_parent = database.query_row(
            "SELECT count(*) FROM pragma_table_info('session') WHERE name = 'parent_id'",
            [],
            |row| row.get::<_, i64>(0),
        )?;
        let own = if has_parent > 0 { "WHERE coalesce(parent_id, '') = ''" } else { "" };
        let mut sessions = database.prepare(&format!(
            "SELECT id, time_updated, \
             (SELECT coalesce(sum(octet_length(data)), 0) FROM part WHERE part.session_id = session.id) \
             FROM session {own} ORDER BY time_updated DESC, id",
        ))?;
        let rows = sessions.query_map([], |row| {
            // Without an id nothing could name it, and an id that is a path would name another file.
            Ok(text_at(row, 0)?.filter(|id| is_file_name(id)).map(|id| DatabaseSession {
                path: path.join(id),
                changed_ms: number_at(row, 1).unwrap_or_default(),
                bytes: number_at(row, 2).and_then(|it| u64::try_from(it).ok()).unwrap_or_default(),
            }))
        })?;
        rows.filter_map(Result::transpose).collect::<rusqlite::Result<Vec<_>>>()
    };
    list().map_err(|error| explain(&database, error))
}

/// The document of a session, like that of an export, or its lines; an error without the session.
pub(crate) fn read_session(database: &Path, id: &str) -> io::Result<Vec<u8>> {
    let opened = open(database)?;
    let missing = || {
        let reason = format!("the database has no session {id}");
        io::Error::new(io::ErrorKind::NotFound, reason)
    };
    let transcripts = Transcripts::find(&opened, database).map_err(io::Error::other)?;
    if let Some(transcripts) = transcripts {
        return transcripts.read_session(&opened, id)?.ok_or_else(missing);
    }
    let found = find_session(&opened, id).map_err(|error| explain(&opened, error))?;
    let document = found.ok_or_else(missing)?;
    Ok(serde_json::to_vec(&document)?)
}

/// The error of a query; of a database without opencode's tables, that it is of another program.
fn explain(database: &Connection, error: rusqlite::Error) -> io::Error {
    let is_missing = |table: &str| {
        let found = database.query_row(
            "SELECT count(*) FROM sqlite_master WHERE name = ?1",
            [table],
            |row| row.get::<_, i64>(0),
        );
        found == Ok(0)
    };
    match TABLES.into_iter().find(|table| is_missing(table)) {
        Some(table) => {
            let reason = format!(
                "it is not a database of opencode or OpenClaw: it has no table `{table}`; name one of theirs, such as opencode.db or openclaw-agent.sqlite"
            );
            io::Error::new(io::ErrorKind::InvalidData, reason)
        }
        None => io::Error::other(error),
    }
}

fn find_session(database: &Connection, id: &str) -> rusqlite::Result<Option<Value>> {
    let mut session = database.prepare("SELECT * FROM session WHERE id = ?1")?;
    let Some(info) = session.query_row([id], |row| Ok(session_info(row))).optional()? else {
        return Ok(None);
    };
    let mut messages = database
        .prepare("SELECT id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id")?;
    let mut parts =
        database.prepare("SELECT id, data FROM part WHERE message_id = ?1 ORDER BY id")?;
    let mut read = Vec::new();
    for message in messages.query_map([id], stored_object)? {
        let (message_id, info) = message?;
        let parts = parts.query_map([&message_id], stored_object)?;
        let parts = parts.map(|part| Ok(part?.1)).collect::<rusqlite::Result<Vec<_>>>()?;
        read.push(json!({ "info": info, "parts": parts }));
    }
    Ok(Some(json!({ "info": info, "messages": read })))
}

/// What a session states about itself. Columns differ between versions, and one that is missing is left out.
fn session_info(row: &Row<'_>) -> Value {
    let mut info = serde_json::Map::new();
    for (column, field) in TEXT_COLUMNS {
        if let Some(text) = text_of(row, column) {
            info.insert(field.into(), text.into());
        }
    }
    for column in JSON_COLUMNS {
        let text = text_of(row, column);
        if let Some(value) = text.and_then(|text| parse(&text).ok()) {
            info.insert(column.into(), value);
        }
    }
    Value::Object(info)
}

/// A column as text; `None` if the row has no such column, or one without text.
fn text_of(row: &Row<'_>, column: &str) -> Option<String> {
    text_at(row, row.as_ref().column_index(column).ok()?).ok()?
}

/// The id of a row and its object with the id. What is not JSON becomes an object without more, which the import
/// reports.
fn stored_object(row: &Row<'_>) -> rusqlite::Result<(String, Value)> {
    let id = text_at(row, 0)?.unwrap_or_default();
    let data = text_at(row, 1)?.unwrap_or_default();
    let mut object = parse(&data).unwrap_or_else(|_| json!({}));
    if let Value::Object(fields) = &mut object {
        fields.insert("id".into(), id.clone().into());
    }
    Ok((id, object))
}

/// A column as text. SQLite stores any kind of value in any column: bytes are read as text, other kinds are none.
fn text_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    })
}

/// A column as a number; `None` for any other kind of value.
fn number_at(row: &Row<'_>, column: usize) -> Option<i64> {
    row.get_ref(column).ok()?.as_i64().ok()
}

fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_slice(&replace_halves(text.as_bytes()))
}

fn open(path: &Path) -> io::Result<Connection> {
    // A pipe would block.
    drop(ctxhost_files::open(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let (log, index) = (beside("-wal"), beside("-shm"));
    let has_index = index.exists();
    // An empty log without its index holds no change.
    let has_log = log.metadata().is_ok_and(|log| has_index || log.len() > 0);
    if has_log && !has_index {
        // SQLite would have to write the index.
        let reason = format!(
            "its newest changes are in {}, which can be read only with {}, and that is missing; copy all three files, or open the database with its agent once",
            log.display(),
            index.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, reason));
    }
    // The newest changes may be in the log only, which SQLite reads with its index, but does not write here. Without a
    // log SQLite would create one, unless nothing changes.
    let mode = if has_log { "mode=ro&readonly_shm=1" } else { "immutable=1" };
    Connection::open_with_flags(format!("{}?{mode}", file_uri(path)), flags)
        .map_err(io::Error::other)
}

/// The address of a file for SQLite.
fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    let text = path.display().to_string();
    // A drive of Windows.
    if text.as_bytes().get(1) == Some(&b':') {
        uri.push('/');
    }
    for byte in text.bytes() {
        match byte {
            b'\\' if cfg!(windows) => uri.push('/'),
            b'%' | b'?' | b'#' => uri.push_str(&format!("%{byte:02X}")),
            byte if byte.is_ascii() => uri.push(char::from(byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests;

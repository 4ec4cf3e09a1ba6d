//! Rebuilds a header from the damaged one, the file name and the records.

use std::path::Path;

use serde_json::Value;

use crate::header::{SESSION_VERSION, SessionHeader};
use crate::json_fields::{JsonFields, json_string};
use crate::{clock, identity};

/// String fields of a header other than id, time and folder.
const OTHER_TEXTS: [&str; 5] =
    ["parentSession", "branchedFrom", "provider", "modelId", "thinkingLevel"];

/// Builds the header of a session from its damaged header line, its file name and its records.
///
/// The id comes from a file name that ctxhost gave, else from the line, else it is new. All other fields come
/// from the line if they are intact there; the time otherwise from the name or the first record.
pub(super) fn salvage_header(
    damaged: &str,
    file: &Path,
    records: &[&str],
) -> Option<SessionHeader> {
    let named = name_parts(file);
    // The name first: a changed character of the id in the line may not show.
    let id = named.as_ref().map(|(_, id)| id.clone()).or_else(|| text_of(damaged, "id"));
    let time = text_of(damaged, "timestamp")
        .filter(|time| clock::parse_ms(&Value::from(time.as_str())).is_some())
        .or_else(|| Some(named?.0))
        .or_else(|| time_of_first(records))
        .unwrap_or_else(|| clock::format_iso(0));
    let id = id.unwrap_or_else(|| identity::session_id(clock::now_ms()));
    let mut fields = JsonFields::default();
    fields.set("type", json_string("session"));
    match version_of(records) {
        // Version 1 has no version field.
        1 => {}
        version => fields.set("version", version.to_string()),
    }
    fields.set("id", json_string(&id));
    fields.set("timestamp", json_string(&time));
    fields.set("cwd", json_string(&folder_of(damaged).unwrap_or_default()));
    for name in OTHER_TEXTS {
        if let Some(text) = text_of(damaged, name) {
            fields.set(name, json_string(&text));
        }
    }
    SessionHeader::parse(&fields.to_line()).ok()
}

/// The version of the records.
fn version_of(records: &[&str]) -> u32 {
    let has_ids = records.iter().any(|record| {
        JsonFields::parse(record).is_some_and(|fields| fields.get("parentId").is_some())
    });
    // Only version 2 uses this role for messages of extensions.
    let is_second =
        || records.iter().any(|record| role_of(record).as_deref() == Some("hookMessage"));
    if !has_ids {
        1
    } else if is_second() {
        2
    } else {
        SESSION_VERSION
    }
}

fn role_of(record: &str) -> Option<String> {
    // Most records lack the word, and parsing each would make repairing a long session slow.
    if !record.contains("hookMessage") {
        return None;
    }
    let message = JsonFields::parse(JsonFields::parse(record)?.get("message")?)?;
    serde_json::from_str(message.get("role")?).ok()
}

fn time_of_first(records: &[&str]) -> Option<String> {
    let time = |record: &&str| {
        let time: Value =
            serde_json::from_str(JsonFields::parse(record)?.get("timestamp")?).ok()?;
        clock::parse_ms(&time).map(clock::format_iso)
    };
    records.iter().find_map(time)
}

/// Time and id of a name from [`SessionHeader::file_name`]: `2026-11-21T01-41-21-054Z_<id>.jsonl`.
fn name_parts(file: &Path) -> Option<(String, String)> {
    const TIME: &str = "dddd-dd-ddTdd-dd-dd-dddZ";
    let name = file.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    let (time, id) = name.split_once('_')?;
    let fits = |(c, pattern): (char, char)| {
        if pattern == 'd' { c.is_ascii_digit() } else { c == pattern }
    };
    let is_time = time.len() == TIME.len() && time.chars().zip(TIME.chars()).all(fits);
    if !is_time || id.is_empty() {
        return None;
    }
    let (day, clock) = time.split_once('T')?;
    let mut parts = clock.splitn(4, '-');
    let mut part = || parts.next();
    let (hour, minute, second, rest) = (part()?, part()?, part()?, part()?);
    Some((format!("{day}T{hour}:{minute}:{second}.{rest}"), id.to_owned()))
}

/// The value of an intact string field anywhere in a line that may be invalid JSON.
fn text_of(line: &str, name: &str) -> Option<String> {
    let quoted = json_string(name);
    let (_, behind) = line.split_once(&quoted)?;
    let value = behind.trim_start().strip_prefix(':')?;
    first_text(value).filter(|text| !text.is_empty())
}

/// The working folder: the field `cwd`, or the first path on the line if the field name is damaged.
fn folder_of(line: &str) -> Option<String> {
    let is_path = |text: &String| text.starts_with('/') && !text.ends_with(".jsonl");
    let texts = line.match_indices('"').filter_map(|(at, _)| first_text(line.get(at..)?));
    text_of(line, "cwd").or_else(|| texts.into_iter().find(is_path))
}

/// The string at the start of `json`, if it shows no damage.
fn first_text(json: &str) -> Option<String> {
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let Value::String(text) = values.next()?.ok()? else { return None };
    // A string that lost its closing quote continues into the next field.
    let behind = json.get(values.byte_offset()..)?.trim_start();
    let is_whole = behind.is_empty() || behind.starts_with([',', '}']);
    (is_whole && !text.contains([char::REPLACEMENT_CHARACTER, '\0'])).then_some(text)
}

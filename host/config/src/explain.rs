//! Explains every setting: value, source and reason.

use serde::Serialize;
use serde_json::Value;

use ctxhost_engine::bundled_settings;
use ctxhost_engine_api::settings::{Setting, SettingKind};

use super::all_settings::{SettingRow, all_settings, matches_pattern};
use super::closest_name::closest_name;
use super::plugins::SlotChoice;
use super::spans::{self, TomlValueKind};
use super::{Config, RESERVE_FLOOR_TOKENS};

/// An explained setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainRow {
    /// Dotted path.
    pub key: String,
    /// Value as text.
    pub value: String,
    /// Unit of the value; empty without one.
    pub unit: String,
    /// `<file> line <n>`, or `default`.
    pub source: String,
    /// What it does and why; first, why the effective value differs from the written one.
    pub reason: String,
    /// The default as text; empty for a required setting.
    pub default: String,
    /// The allowed values, as a phrase after "must be".
    pub range: String,
}

/// A key that names no setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown setting `{key}`")]
pub struct UnknownSetting {
    key: String,
    /// The setting or table that was probably meant.
    pub suggestion: Option<String>,
}

/// Shown for a setting without a value.
const UNSET: &str = "not set";

/// Shown instead of a value that may contain a secret.
const REDACTED: &str = "(not shown)";

/// Explains every setting, in the order of the documentation.
pub fn explain(config: &Config) -> Vec<ExplainRow> {
    // Serialising the tables cannot fail; an empty value would show every setting as "not set".
    let values = serde_json::to_value(config).unwrap_or_default();
    all_settings().iter().flat_map(|row| rows(config, &values, row)).collect()
}

/// Explains one setting, or all settings of a table.
///
/// # Errors
///
/// [`UnknownSetting`] if no setting and no table has this dotted path.
pub fn explain_key(config: &Config, key: &str) -> Result<Vec<ExplainRow>, UnknownSetting> {
    let path = spans::split_path(key.trim().trim_matches(['[', ']']));
    let all = explain(config);
    let is_inside = |row: &&ExplainRow| spans::split_path(&row.key).starts_with(&path);
    let rows: Vec<ExplainRow> = all.iter().filter(is_inside).cloned().collect();
    if !rows.is_empty() {
        return Ok(rows);
    }
    if let Some(setting) = engine_setting(&path) {
        let value = default_text(setting);
        return Ok(vec![row_of(
            spans::join_path(&path),
            value,
            "default".into(),
            setting.reason(),
            setting,
        )]);
    }
    // Tables with names of the user, which the file does not contain: shown with their defaults.
    let unset: Vec<ExplainRow> = all_settings()
        .iter()
        .filter(|row| row.path.len() >= path.len() && matches_pattern(&row.path, &path))
        .map(|row| unset_row(row, &path))
        .collect();
    if !path.is_empty() && !unset.is_empty() {
        return Ok(unset);
    }
    Err(UnknownSetting { suggestion: similar_key(&all, key), key: key.to_owned() })
}

/// The setting or table with the most similar path or name.
fn similar_key(rows: &[ExplainRow], key: &str) -> Option<String> {
    let mut names: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    let tables: Vec<&str> = names.iter().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    names.extend(tables);
    // People know a key, and guess its table.
    let with_end = |end: &str| names.iter().copied().find(|name| last_part(name) == end);
    let ends: Vec<&str> = names.iter().copied().map(last_part).collect();
    let like_end = || with_end(closest_name(last_part(key), &ends)?);
    let like_key = || closest_name(key, &names);
    let found = with_end(last_part(key));
    let found = if key.contains('.') {
        found.or_else(like_key).or_else(like_end)
    } else {
        found.or_else(like_end).or_else(like_key)
    };
    found.map(str::to_owned)
}

/// The name of a key without its tables.
fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// A setting that the file does not contain, below names of the user.
fn unset_row(row: &SettingRow, path: &[String]) -> ExplainRow {
    let named = row.path.iter().enumerate().map(|(index, name)| match path.get(index) {
        Some(given) => given.clone(),
        None if *name == "*" => "<name>".to_owned(),
        None => (*name).to_owned(),
    });
    let key = named.collect::<Vec<_>>().join(".");
    let default = default_text(row.setting);
    let value = if default.is_empty() { UNSET.to_owned() } else { default };
    row_of(key, value, "default".into(), row.setting.reason(), row.setting)
}

fn row_of(
    key: String,
    value: String,
    source: String,
    reason: String,
    setting: &Setting,
) -> ExplainRow {
    let unit = if value == UNSET { "" } else { setting.unit };
    ExplainRow {
        key,
        value,
        unit: unit.to_owned(),
        source,
        reason,
        default: default_text(setting),
        range: setting.expectation(),
    }
}

fn default_text(setting: &Setting) -> String {
    setting.default.map(|default| format_value(&default())).unwrap_or_default()
}

/// The rows of a setting: one, or one for each engine or model, or one for each value in a user's
/// table.
fn rows(config: &Config, values: &Value, row: &SettingRow) -> Vec<ExplainRow> {
    let allowed = row.setting.kind;
    if matches!(allowed, SettingKind::Foreign | SettingKind::Texts | SettingKind::Upstreams) {
        return user_table_rows(config, row);
    }
    let mut path: Vec<&str> = row.path.clone();
    let Some(star) = path.iter().position(|name| *name == "*") else {
        return vec![explain_row(config, values, row, &path)];
    };
    let above = row.path.get(..star).unwrap_or_default();
    let named = value_at(values, above).as_object().into_iter().flat_map(|names| names.keys());
    let mut rows = Vec::new();
    for name in named {
        if let Some(slot) = path.get_mut(star) {
            *slot = name;
        }
        rows.push(explain_row(config, values, row, &path));
    }
    rows
}

fn explain_row(config: &Config, values: &Value, row: &SettingRow, path: &[&str]) -> ExplainRow {
    let key = spans::join_path(path);
    let (value, note) = value_and_note(config, &row.key, value_at(values, path));
    let reason = row.setting.reason();
    let reason = match note {
        Some(note) => format!("{note}. {reason}"),
        None => reason,
    };
    let source = source(config, &key);
    row_of(key, value, source, reason, row.setting)
}

fn value_and_note(config: &Config, key: &str, value: &Value) -> (String, Option<String>) {
    let reserve_tokens = config.budget.reserve_tokens;
    match key {
        "plugins.slots.context_engine" => slot_value(config.slot()),
        "plugins.slots.memory" => (config.memory().unwrap_or_else(|| "none".into()), None),
        // A lower value is accepted but has no effect, which the explanation must show.
        "budget.reserve_tokens" if reserve_tokens < RESERVE_FLOOR_TOKENS => (
            reserve_tokens.to_string(),
            Some(format!("raised to the minimum of {RESERVE_FLOOR_TOKENS}")),
        ),
        _ => (redact_credentials(format_value(value)), None),
    }
}

/// Hides an address that contains credentials, or a query, which may be one.
fn redact_credentials(value: String) -> String {
    // URLs with credentials and PostgreSQL strings; better to hide too much.
    let is_secret =
        value.contains("://") && value.contains(['@', '?']) || value.contains("password=");
    if is_secret { REDACTED.to_owned() } else { value }
}

fn slot_value(choice: SlotChoice) -> (String, Option<String>) {
    match choice.reason {
        None => (choice.configured, None),
        Some(reason) => (
            format!("{} (using {})", format_value(&Value::from(choice.configured)), choice.engine),
            Some(format!("{} is used because {reason}", choice.engine)),
        ),
    }
}

/// The values of a user's table. Headers, environment values and names that look like secrets are
/// hidden.
fn user_table_rows(config: &Config, row: &SettingRow) -> Vec<ExplainRow> {
    let is_inside =
        |path: &[String]| path.len() > row.path.len() && matches_pattern(&row.path, path);
    let mut rows = Vec::new();
    // A list is one row, with its items.
    let mut list: Option<Vec<String>> = None;
    for span in config.origin.spans.iter().filter(|span| is_inside(&span.path)) {
        if list.as_ref().is_some_and(|list| span.path.starts_with(list)) {
            continue;
        }
        match span.value {
            TomlValueKind::Table => continue,
            TomlValueKind::List { .. } => list = Some(span.path.clone()),
            _ => {}
        }
        let written = config.origin.text.get(span.value_span.clone()).unwrap_or_default();
        let is_secret = match row.setting.kind {
            // Header and environment values may be keys under any name.
            SettingKind::Texts => true,
            _ => span.path.last().is_some_and(|name| is_secret_name(name)),
        };
        let key = spans::join_path(&span.path);
        // Bundled engines document their settings; other engines' tables are opaque.
        let setting = engine_setting(&span.path).unwrap_or(row.setting);
        let value =
            if is_secret { REDACTED.into() } else { redact_credentials(written.to_owned()) };
        let source = source(config, &key);
        rows.push(row_of(key, value, source, setting.reason(), setting));
    }
    rows
}

/// The setting of a bundled engine at a path of the file.
fn engine_setting(path: &[String]) -> Option<&'static Setting> {
    let [plugins, entries, id, config, inner @ ..] = path else { return None };
    if (plugins.as_str(), entries.as_str(), config.as_str()) != ("plugins", "entries", "config") {
        return None;
    }
    let (name, tables) = inner.split_last()?;
    let table = tables.iter().try_fold(bundled_settings(id), |table, name| {
        match table.iter().find(|setting| setting.name == name)?.kind {
            SettingKind::Table(inner) => Some(inner),
            _ => None,
        }
    });
    table?.iter().find(|setting| setting.name == name)
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    ["secret", "password", "token", "api_key", "apikey", "api_key_command"]
        .iter()
        .any(|word| name.ends_with(word))
}

/// The value at a path; null without one.
fn value_at<'v>(values: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().fold(values, |value, name| value.get(name).unwrap_or(&Value::Null))
}

fn format_value(value: &Value) -> String {
    match value {
        Value::Null => UNSET.into(),
        Value::String(text) if text.trim().is_empty() => format!("{text:?}"),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(format_value).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn source(config: &Config, key: &str) -> String {
    match config.setting_line(key) {
        Some(line) => format!("{} line {line}", config.name()),
        None => "default".into(),
    }
}

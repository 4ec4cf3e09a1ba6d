//! Explains every setting: value, source and reason.

use serde::Serialize;
use serde_json::Value;

use ctxhost_engine::bundled_settings;
use ctxhost_engine_api::settings::{Setting, SettingKind};

use super::all_settings::{SettingRow, all_settings, matches_pattern};
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
    ExplainRow { key, value, unit: row.setting.unit.to_owned(), source, reason }
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

/// Hides an address that contains credentials.
fn redact_credentials(value: String) -> String {
    // URLs with credentials and PostgreSQL strings; better to hide too much.
    let is_secret = value.contains("://") && value.contains('@') || value.contains("password=");
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
        rows.push(ExplainRow {
            value: if is_secret { REDACTED.into() } else { redact_credentials(written.to_owned()) },
            unit: setting.unit.to_owned(),
            source: source(config, &key),
            reason: setting.reason(),
            key,
        });
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
    ["secret", "password", "token", "api_key", "apikey"].iter().any(|word| name.ends_with(word))
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

//! Every setting with its value, where the value comes from, and why it is there.

use serde::Serialize;
use serde_json::Value;

use super::catalogue::{Allowed, SETTINGS, Setting};
use super::places::{self, Written};
use super::plugins::SlotChoice;
use super::{Config, RESERVE_FLOOR_TOKENS};

/// One setting, explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainRow {
    /// Its dotted path.
    pub key: String,
    /// Its value, as people read it.
    pub value: String,
    /// The unit of its value; empty where there is none.
    pub unit: String,
    /// `<file> line <n>`, or `default`.
    pub source: String,
    /// What it does and why; where something else was made of it, what and why.
    pub reason: String,
}

/// What stands for a setting that nobody set and that has no default.
const UNSET: &str = "not set";

/// What stands for a value in which a key may stand.
const NOT_SHOWN: &str = "(not shown)";

/// Explains every setting, in the order of the catalogue.
pub fn explain(config: &Config) -> Vec<ExplainRow> {
    SETTINGS.iter().flat_map(|setting| rows(config, setting)).collect()
}

/// One row; for a setting of each engine or each model, one for each; for a table that is not
/// ours, one for each value in it.
fn rows(config: &Config, setting: &Setting) -> Vec<ExplainRow> {
    let path = setting.path();
    if matches!(setting.allowed, Allowed::Foreign | Allowed::Texts | Allowed::Upstreams) {
        return foreign_rows(config, setting);
    }
    let Some(star) = path.iter().position(|name| *name == "*") else {
        return vec![row(config, setting, owned(&path))];
    };
    let with_name = |name: &String| {
        let mut path = owned(&path);
        if let Some(slot) = path.get_mut(star) {
            name.clone_into(slot);
        }
        row(config, setting, path)
    };
    match path.first() {
        Some(&"models") => config.models.keys().map(with_name).collect(),
        Some(&"mcp") => config.mcp.keys().map(with_name).collect(),
        Some(&"providers") => config.providers.keys().map(with_name).collect(),
        _ => config.plugins.entries.keys().map(with_name).collect(),
    }
}

fn row(config: &Config, setting: &Setting, path: Vec<String>) -> ExplainRow {
    let key = places::dotted(&path);
    let (value, note) = value_and_note(config, setting, &path);
    let reason = match note {
        Some(note) => format!("{note}. {}", setting.reason),
        None => setting.reason.to_owned(),
    };
    let source = source(config, &key);
    ExplainRow { key, value, unit: setting.unit.to_owned(), source, reason }
}

fn value_and_note(config: &Config, setting: &Setting, path: &[String]) -> (String, Option<String>) {
    let budget = &config.budget;
    match setting.key {
        "plugins.slots.context_engine" => slot_value(config.slot()),
        "plugins.slots.memory" => (config.memory().unwrap_or_else(|| "none".into()), None),
        "budget.reserve_tokens" if budget.reserve_tokens < RESERVE_FLOOR_TOKENS => {
            let note = format!("counts as {RESERVE_FLOOR_TOKENS}");
            (budget.reserve_tokens.to_string(), Some(note))
        }
        _ => (without_password(readable(&resolved(config, path))), None),
    }
}

/// An address in which a name and a password stand is not shown.
fn without_password(value: String) -> String {
    let is_secret = value.contains("://") && value.contains('@') || value.contains("password=");
    if is_secret { NOT_SHOWN.to_owned() } else { value }
}

fn slot_value(choice: SlotChoice) -> (String, Option<String>) {
    match choice.reason {
        None => (choice.configured, None),
        Some(reason) => (
            format!("{} (in use: {})", readable(&Value::from(choice.configured)), choice.engine),
            Some(format!("{} is in use, because {reason}", choice.engine)),
        ),
    }
}

/// The values of a table of the user's own. What looks like a secret is not shown, and no header is.
fn foreign_rows(config: &Config, setting: &Setting) -> Vec<ExplainRow> {
    let is_inside = |path: &[String]| {
        let pattern = setting.path();
        path.len() > pattern.len()
            && pattern.iter().zip(path).all(|(pattern, name)| *pattern == "*" || pattern == name)
    };
    let mut rows = Vec::new();
    // Items of a list are shown with their list.
    let mut list: Option<Vec<String>> = None;
    for place in config.origin.places.iter().filter(|place| is_inside(&place.path)) {
        if list.as_ref().is_some_and(|list| place.path.starts_with(list)) {
            continue;
        }
        match place.value {
            Written::Table => continue,
            Written::List { .. } => list = Some(place.path.clone()),
            _ => {}
        }
        let written = config.origin.text.get(place.value_span.clone()).unwrap_or_default();
        let is_secret = match setting.allowed {
            // Keys stand there under any name.
            Allowed::Texts => true,
            _ => place.path.last().is_some_and(|name| names_a_secret(name)),
        };
        let key = places::dotted(&place.path);
        rows.push(ExplainRow {
            value: if is_secret { NOT_SHOWN.into() } else { without_password(written.to_owned()) },
            unit: String::new(),
            source: source(config, &key),
            reason: setting.reason.to_owned(),
            key,
        });
    }
    rows
}

fn names_a_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["secret", "password", "token", "api_key", "apikey"].iter().any(|word| name.ends_with(word))
}

/// The value of a setting in the resolved configuration; null where it has none.
fn resolved(config: &Config, path: &[String]) -> Value {
    let Some((table, inner)) = path.split_first() else { return Value::Null };
    let table = match table.as_str() {
        "plugins" => serde_json::to_value(&config.plugins),
        "budget" => serde_json::to_value(&config.budget),
        "law" => serde_json::to_value(&config.law),
        "timeouts" => serde_json::to_value(&config.timeouts),
        "providers" => serde_json::to_value(&config.providers),
        "models" => serde_json::to_value(&config.models),
        "swap" => serde_json::to_value(&config.swap),
        "agent" => serde_json::to_value(&config.agent),
        "session" => serde_json::to_value(&config.session),
        "retention" => serde_json::to_value(&config.retention),
        "compaction" => serde_json::to_value(&config.compaction),
        "shadow" => serde_json::to_value(&config.shadow),
        "failover" => serde_json::to_value(&config.failover),
        "accounting" => serde_json::to_value(&config.accounting),
        "model" => serde_json::to_value(&config.model),
        "summariser" => serde_json::to_value(&config.summariser),
        "store" => serde_json::to_value(&config.store),
        "tools" => serde_json::to_value(&config.tools),
        "mcp" => serde_json::to_value(&config.mcp),
        "gateway" => serde_json::to_value(&config.gateway),
        "telemetry" => serde_json::to_value(&config.telemetry),
        _ => return Value::Null,
    };
    let lookup = |value: Value, name: &String| value.get(name).cloned().unwrap_or(Value::Null);
    inner.iter().fold(table.unwrap_or(Value::Null), lookup)
}

fn readable(value: &Value) -> String {
    match value {
        Value::Null => UNSET.into(),
        Value::String(text) if text.trim().is_empty() => format!("{text:?}"),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(readable).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn source(config: &Config, key: &str) -> String {
    match config.line_of(key) {
        Some(line) => format!("{} line {line}", config.name()),
        None => "default".into(),
    }
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|&name| name.to_owned()).collect()
}

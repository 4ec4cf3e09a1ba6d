//! Validates a file: every key and value, then combinations of settings.

use super::all_settings::{self, PathKind, all_settings, is_allowed};
use super::error::{ConfigDiagnostic, ConfigError};
use super::spans::{self, KeySpan, TomlValueKind};
use super::{Config, ConfigSource, compaction, gateway, providers, renamed, slots};
use ctxhost_engine::{BUNDLED, Isolation};
use ctxhost_engine_api::settings::{Setting, SettingKind};
use ctxhost_trust::TrustedKeys;

/// Names with a higher similarity are suggested; lower ones gave misleading suggestions.
const MIN_SIMILARITY: f64 = 0.8;

/// Checks every key and value, in the order of the file.
pub(super) fn check_keys(origin: &ConfigSource) -> Result<(), ConfigError> {
    for span in origin.spans.iter() {
        match all_settings::classify_path(&span.path) {
            PathKind::Foreign => {}
            PathKind::Table if span.value == TomlValueKind::Table => {}
            PathKind::Setting(setting) if is_allowed(setting.kind, &span.value) => {}
            PathKind::Setting(setting) => return Err(bad_value(origin, span, setting)),
            PathKind::Table => return Err(not_a_table(origin, span)),
            PathKind::Unknown => return Err(unknown_key(origin, span)),
        }
    }
    compaction::check_gate_rules(origin)?;
    slots::check_slots(origin)
}

/// Checks rules that involve two settings.
pub(super) fn check_combinations(config: &Config) -> Result<(), ConfigError> {
    let timeouts = &config.timeouts;
    if timeouts.compact_cap_ms < timeouts.compact_ms {
        let message = format!(
            "timeouts.compact_cap_ms ({}) is below timeouts.compact_ms ({}), so no compaction can use its time limit",
            timeouts.compact_cap_ms, timeouts.compact_ms
        );
        let keys = ["timeouts.compact_cap_ms", "timeouts.compact_ms"];
        return Err(conflict_error(config, &keys, message, "raise the cap, or lower compact_ms"));
    }
    for (id, entry) in &config.plugins.entries {
        if entry.isolation == Some(Isolation::Inline) && entry.path.is_some() {
            let key = spans::join_path(&["plugins", "entries", id, "isolation"]);
            let message = format!("`{id}` is an engine file; only bundled engines run inline");
            return Err(conflict_error(
                config,
                &[&key],
                message,
                "write isolation = \"process\" or \"thread\"",
            ));
        }
        // A bundled id with a path is a replacement from a file, which may run in a process.
        let is_linked = entry.path.is_none() && BUNDLED.contains(&id.as_str());
        if entry.isolation == Some(Isolation::Process) && is_linked {
            let key = spans::join_path(&["plugins", "entries", id, "isolation"]);
            let message = format!("`{id}` is bundled; only engine files run in a process");
            return Err(conflict_error(
                config,
                &[&key],
                message,
                "write isolation = \"thread\", or set its path",
            ));
        }
    }
    // Checked here as well as on use, because a typo would otherwise appear at the first
    // installation only.
    if let Err(error) = TrustedKeys::parse(&config.plugins.trusted_keys) {
        let help = "`minisign -G` makes a key pair; the public one goes here";
        return Err(conflict_error(config, &["plugins.trusted_keys"], error.to_string(), help));
    }
    providers::check_providers(config)?;
    gateway::check_gateway(config)
}

/// An error at the first of `keys` that the file contains.
pub(super) fn conflict_error(
    config: &Config,
    keys: &[&str],
    message: String,
    help: &str,
) -> ConfigError {
    let error =
        ConfigDiagnostic::new(&config.origin.name, &config.origin.text, message).with_help(help);
    let span = keys.iter().find_map(|key| config.setting_span(key));
    Box::new(match span {
        Some(span) => error.with_label(span, "here"),
        None => error,
    })
    .into()
}

fn bad_value(origin: &ConfigSource, span: &KeySpan, setting: &Setting) -> ConfigError {
    let key = spans::join_path(&span.path);
    let expectation = setting.expectation();
    let found = describe_value(&span.value);
    if let TomlValueKind::Text(text) = &span.value
        && let Some(new) = renamed::new_value(&span.path, text)
    {
        let message = format!("{key} = {text:?} was renamed to {new:?}");
        let error = ConfigDiagnostic::new(&origin.name, &origin.text, message);
        let error = error.with_label(span.value_span.clone(), "old name");
        return Box::new(error.with_help(format!("write {new:?}"))).into();
    }
    let guess = match (setting.kind, &span.value) {
        (SettingKind::Word(words), TomlValueKind::Text(text)) => closest_name(text, words),
        _ => None,
    };
    let help = match guess {
        Some(word) => format!("did you mean `{word}`?"),
        None => setting.reason(),
    };
    let error =
        ConfigDiagnostic::new(&origin.name, &origin.text, format!("{key} must be {expectation}"));
    Box::new(error.with_label(span.value_span.clone(), found).with_help(help)).into()
}

fn not_a_table(origin: &ConfigSource, span: &KeySpan) -> ConfigError {
    let key = spans::join_path(&span.path);
    let error = ConfigDiagnostic::new(&origin.name, &origin.text, format!("{key} must be a table"));
    let help = format!("start it with a line [{key}]; {}", list_keys(&span.path));
    Box::new(error.with_label(span.value_span.clone(), describe_value(&span.value)).with_help(help))
        .into()
}

fn unknown_key(origin: &ConfigSource, span: &KeySpan) -> ConfigError {
    // Before any suggestion: `law` is similar to no current name, and others are similar to the
    // wrong one.
    if let Some(new) = renamed::new_key(&span.path) {
        return renamed_key(origin, span, new);
    }
    let (name, table) = match span.path.split_last() {
        Some((name, table)) => (name.as_str(), table),
        None => ("", span.path.as_slice()),
    };
    let message = match table {
        [] => format!("unknown key `{name}`"),
        table => format!("unknown key `{name}` in [{}]", spans::join_path(table)),
    };
    let error = ConfigDiagnostic::new(&origin.name, &origin.text, message);
    Box::new(error.with_key_label(span, "not a setting").with_help(key_help(name, table))).into()
}

fn renamed_key(origin: &ConfigSource, span: &KeySpan, new: &str) -> ConfigError {
    let old = spans::join_path(&span.path);
    let error =
        ConfigDiagnostic::new(&origin.name, &origin.text, format!("{old} was renamed to {new}"));
    let new_name = new.rsplit('.').next().unwrap_or(new);
    let help = match span.value {
        TomlValueKind::Table => format!("write [{new}]"),
        _ => format!("write `{new_name}`"),
    };
    Box::new(error.with_key_label(span, "old name").with_help(help)).into()
}

/// Suggests a similar name in the same table, else the table that has the name, else lists all
/// names.
fn key_help(name: &str, table: &[String]) -> String {
    if let Some(near) = closest_name(name, &all_settings::keys_in_table(table)) {
        return format!("did you mean `{near}`?");
    }
    // Users often know a key but put it into the wrong table.
    match all_settings().iter().find(|row| row.setting.name == name) {
        Some(row) => format!("did you mean {}?", row.key.replace('*', "<name>")),
        None => list_keys(table),
    }
}

fn list_keys(table: &[String]) -> String {
    let names = all_settings::keys_in_table(table);
    match table {
        _ if names.is_empty() => "each name in it is a table of its own".into(),
        [] => format!("tables: {}", all_settings::quote_list(&names)),
        _ => format!("keys: {}", all_settings::quote_list(&names)),
    }
}

/// The name that was probably meant.
pub fn closest_name<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    // Jaro-Winkler favours a common prefix, which suits keys that are misspelt at their end.
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), other);
    let best = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= MIN_SIMILARITY).then_some(*best)
}

fn describe_value(value: &TomlValueKind) -> String {
    match value {
        TomlValueKind::Text(text) if text.trim().is_empty() => "blank".into(),
        TomlValueKind::Text(_) => "this is text".into(),
        TomlValueKind::Whole(None) => "this number is too large".into(),
        TomlValueKind::Whole(Some(number)) if *number < 0 => "this is negative".into(),
        TomlValueKind::Whole(Some(number)) => format!("this is the number {number}"),
        TomlValueKind::Number(number) => format!("this is the number {number}"),
        TomlValueKind::Flag(_) => "this is true or false".into(),
        TomlValueKind::Date => "this is a date".into(),
        TomlValueKind::List { only_text: true } => "this is a list".into(),
        TomlValueKind::List { only_text: false } => "not everything in this list is text".into(),
        TomlValueKind::Table => "this is a table".into(),
    }
}

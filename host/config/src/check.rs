//! Validates a file: every key and value, then combinations of settings. All errors are collected.

use super::all_settings::{self, PathKind, all_settings, is_allowed};
use super::closest_name::closest_name;
use super::error::ConfigDiagnostic;
use super::gateway::UPSTREAM_HELP;
use super::spans::{self, KeySpan, TomlValueKind};
use super::{Config, ConfigSource, compaction, gateway, providers, renamed, slots};
use ctxhost_engine::{BUNDLED, Isolation, LEGACY};
use ctxhost_engine_api::settings::{Setting, SettingKind};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_store::StoreKind;
use ctxhost_trust::TrustedKeys;

/// The file for messages, which show its lines: without what stands where the name of a variable should be, as that
/// may be a key.
pub(super) fn hide_keys(origin: ConfigSource) -> ConfigSource {
    let is_wrong = |span: &&KeySpan| {
        matches!(all_settings::classify_path(&span.path), PathKind::Setting(setting)
            if matches!(setting.kind, SettingKind::Variable) && !is_allowed(setting.kind, &span.value))
    };
    let mut hidden: Option<String> = None;
    for span in origin.spans.iter().filter(is_wrong) {
        let text = hidden.get_or_insert_with(|| origin.text.to_string());
        let value = origin.text.get(span.value_span.clone()).unwrap_or_default();
        // As long as it was, and still TOML, so that all positions stay.
        let stars: String = value
            .chars()
            .map(|char| match char {
                '"' | '\'' | '\n' => char.to_string(),
                other => "*".repeat(other.len_utf8()),
            })
            .collect();
        text.replace_range(span.value_span.clone(), &stars);
    }
    match hidden {
        Some(text) => ConfigSource { text: text.into(), ..origin },
        None => origin,
    }
}

/// Checks every key and value, in the order of the file. Keys inside an unknown table are not
/// reported beside it.
pub(super) fn check_keys(origin: &ConfigSource) -> Vec<ConfigDiagnostic> {
    let mut found = Vec::new();
    let mut unknown_tables: Vec<&[String]> = Vec::new();
    // What is written in place of a table, such as `[[budget]]`, whose items begin before its name.
    let is_misplaced = |span: &&KeySpan| {
        span.value != TomlValueKind::Table
            && matches!(all_settings::classify_path(&span.path), PathKind::Table)
    };
    let misplaced: Vec<&[String]> =
        origin.spans.iter().filter(is_misplaced).map(|span| &*span.path).collect();
    for span in origin.spans.iter() {
        let is_below =
            |path: &[String]| span.path.starts_with(path) && span.path.len() > path.len();
        if unknown_tables.iter().any(|table| span.path.starts_with(table))
            || misplaced.iter().any(|path| is_below(path))
        {
            continue;
        }
        match all_settings::classify_path(&span.path) {
            PathKind::Foreign => {}
            PathKind::Item(_) if matches!(span.value, TomlValueKind::Text(_)) => {}
            PathKind::Item(setting) => {
                found.push(bad_item(origin, span, setting));
                unknown_tables.push(&span.path);
            }
            PathKind::Setting(_) if span.path == ["plugins", "entries", LEGACY, "path"] => {
                found.push(replaced_fallback(origin, span));
            }
            PathKind::Table if span.value == TomlValueKind::Table => {}
            PathKind::Setting(setting) if is_allowed(setting.kind, &span.value) => {}
            PathKind::Setting(setting) => {
                found.push(bad_value(origin, span, setting));
                unknown_tables.push(&span.path);
            }
            PathKind::Table => found.push(not_a_table(origin, span)),
            PathKind::Unknown => {
                found.push(unknown_key(origin, span));
                unknown_tables.push(&span.path);
            }
        }
    }
    compaction::check_gate_rules(origin, &mut found);
    slots::check_slots(origin, &mut found);
    found
}

/// Checks combinations in a file with errors in single keys, as if it lacked these keys. Errors of
/// tables that lack a key are left out: the lack may be their cause.
pub(super) fn check_combinations_without(
    origin: &ConfigSource,
    errors: &[ConfigDiagnostic],
) -> Vec<ConfigDiagnostic> {
    let path_of = |error: &ConfigDiagnostic| Some(origin.spans.at(error.offset()?)?.path.clone());
    let lacking: Vec<Vec<String>> = errors.iter().filter_map(path_of).collect();
    let Ok(mut table) = origin.text.parse::<toml::Table>() else { return Vec::new() };
    lacking.iter().for_each(|path| remove_key(&mut table, path));
    // As text: a second source of values would have the program carry all that reads a config twice, 0.3 MB.
    let read = |table: &toml::Table| toml::from_str::<Config>(&table.to_string()).ok();
    let mut lacks_provider = false;
    let config = read(&table).or_else(|| {
        // A table may need the key that it lacks, and is left out then.
        let tables = lacking.iter().filter_map(|path| Some(path.split_last()?.1));
        for path in tables.filter(|path| !path.is_empty()) {
            if only_at(&table, path).is_some_and(|alone| read(&alone).is_none()) {
                remove_key(&mut table, path);
                lacks_provider |= path.first().is_some_and(|name| name == "providers");
            }
        }
        read(&table)
    });
    let Some(config) = config else { return Vec::new() };
    let mut found = check_combinations(&config.resolved(origin.clone()));
    // Their providers may be what was left out.
    let is_upstream = |path: &[String]| match path {
        [gateway, table, ..] => gateway == "gateway" && ["upstreams", "models"].contains(&&**table),
        _ => false,
    };
    found.retain(|error| {
        path_of(error).is_some_and(|path| {
            let table = path.get(..path.len().saturating_sub(1)).unwrap_or_default();
            // The items of a table with names of the user do not depend on each other.
            let is_item = matches!(all_settings::classify_path(&path), PathKind::Item(_));
            let is_apart = |lack: &Vec<String>| {
                !lack.starts_with(&path) && (is_item || !lack.starts_with(table))
            };
            !table.is_empty()
                && lacking.iter().all(is_apart)
                && !(lacks_provider && is_upstream(&path))
        })
    });
    found
}

/// A copy of a table with nothing but what is at a path; `None` without a table there.
fn only_at(table: &toml::Table, path: &[String]) -> Option<toml::Table> {
    let (name, inner) = path.split_first()?;
    let below = table.get(name)?.as_table()?;
    let kept = if inner.is_empty() { below.clone() } else { only_at(below, inner)? };
    Some(toml::Table::from_iter([(name.clone(), toml::Value::Table(kept))]))
}

fn remove_key(table: &mut toml::Table, path: &[String]) {
    match path {
        [name] => {
            table.remove(name);
        }
        [name, inner @ ..] => match table.get_mut(name) {
            Some(toml::Value::Table(below)) => remove_key(below, inner),
            // The item of a list: the list without it could still be wrong.
            Some(toml::Value::Array(_)) => {
                table.remove(name);
            }
            _ => {}
        },
        [] => {}
    }
}

/// Checks rules that involve two settings.
pub(super) fn check_combinations(config: &Config) -> Vec<ConfigDiagnostic> {
    let mut found = Vec::new();
    let timeouts = &config.timeouts;
    if timeouts.compact_cap_ms < timeouts.compact_ms {
        let message = format!(
            "timeouts.compact_cap_ms ({}) is below timeouts.compact_ms ({}), so no compaction can use its time limit",
            group_thousands(timeouts.compact_cap_ms),
            group_thousands(timeouts.compact_ms)
        );
        let keys = ["timeouts.compact_cap_ms", "timeouts.compact_ms"];
        let help = "raise the cap, or lower compact_ms";
        found.push(ConfigDiagnostic::conflict(config, &keys, message, help));
    }
    check_isolation(config, &mut found);
    // Checked here as well as on use, because a typo would otherwise appear at the first
    // installation only.
    if let Err(error) = TrustedKeys::parse(&config.plugins.trusted_keys) {
        let help = "`minisign -G` makes a key pair; the public one goes here";
        found.push(ConfigDiagnostic::conflict(
            config,
            &["plugins.trusted_keys"],
            error.to_string(),
            help,
        ));
    }
    providers::check_providers(config, &mut found);
    gateway::check_gateway(config, &mut found);
    check_store(config, &mut found);
    found
}

fn check_store(config: &Config, found: &mut Vec<ConfigDiagnostic>) {
    let store = &config.store;
    let help =
        "write an address such as postgres://user@host/ctxhost, or name its variable in url_env";
    if store.kind == StoreKind::Postgres && store.url.is_none() && store.url_env.is_none() {
        let message = "store.kind = \"postgres\" needs the address of the database".to_owned();
        found.push(ConfigDiagnostic::conflict(config, &["store.kind"], message, help));
    }
    let scheme = store.url.as_deref().and_then(|url| Some(url.split_once("://")?.0));
    if scheme.is_some_and(|scheme| !["postgres", "postgresql"].contains(&scheme)) {
        let message = "store.url is not the address of a PostgreSQL database".to_owned();
        found.push(ConfigDiagnostic::conflict(config, &["store.url"], message, help));
    }
}

fn check_isolation(config: &Config, found: &mut Vec<ConfigDiagnostic>) {
    for (id, entry) in &config.plugins.entries {
        let key = spans::join_path(&["plugins", "entries", id, "isolation"]);
        if entry.isolation == Some(Isolation::Inline) && entry.path.is_some() {
            let message = format!("`{id}` is an engine file; only bundled engines run inline");
            let help = "write isolation = \"process\" or \"thread\"";
            found.push(ConfigDiagnostic::conflict(config, &[&key], message, help));
        }
        // A bundled id with a path is a replacement from a file, which may run in a process.
        let is_linked = entry.path.is_none() && BUNDLED.contains(&id.as_str());
        if entry.isolation == Some(Isolation::Process) && is_linked {
            let message = format!("`{id}` is bundled; only engine files run in a process");
            let help = "write isolation = \"thread\", or set its path";
            found.push(ConfigDiagnostic::conflict(config, &[&key], message, help));
        }
    }
}

fn bad_value(origin: &ConfigSource, span: &KeySpan, setting: &Setting) -> ConfigDiagnostic {
    let key = spans::join_path(&span.path);
    let expectation = setting.expectation();
    let found = describe_value(&span.value);
    if let TomlValueKind::Text(text) = &span.value
        && let Some(new) = renamed::new_value(&span.path, text)
    {
        let message = format!("{key} = {text:?} was renamed to {new:?}");
        let error = ConfigDiagnostic::new(&origin.name, &origin.text, message);
        let error = error.with_label(span.value_span.clone(), "old name");
        return error.with_help(format!("write {new:?}"));
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
    error.with_label(span.value_span.clone(), found).with_help(help)
}

/// An item that is not text, of a table of texts.
fn bad_item(origin: &ConfigSource, span: &KeySpan, setting: &Setting) -> ConfigDiagnostic {
    let key = spans::join_path(&span.path);
    let help = match setting.kind {
        SettingKind::Upstreams => UPSTREAM_HELP.to_owned(),
        _ => {
            let table = span.path.split_last().map(|(_, table)| table).unwrap_or_default();
            format!("[{}] is {}", spans::join_path(table), setting.expectation())
        }
    };
    ConfigDiagnostic::new(&origin.name, &origin.text, format!("{key} must be text"))
        .with_label(span.value_span.clone(), describe_value(&span.value))
        .with_help(help)
}

/// The fallback would then be what it replaces.
fn replaced_fallback(origin: &ConfigSource, span: &KeySpan) -> ConfigDiagnostic {
    let key = spans::join_path(&span.path);
    let message =
        format!("{key}: `{LEGACY}` is the bundled fallback engine and cannot be replaced");
    ConfigDiagnostic::new(&origin.name, &origin.text, message)
        .with_label(span.value_span.clone(), "here")
        .with_help("give the engine another id")
}

fn not_a_table(origin: &ConfigSource, span: &KeySpan) -> ConfigDiagnostic {
    let key = spans::join_path(&span.path);
    let error = ConfigDiagnostic::new(&origin.name, &origin.text, format!("{key} must be a table"));
    let help = format!("start it with a line [{key}]; {}", list_keys(&span.path));
    let label = match span.value {
        TomlValueKind::List { .. } => "this is a list".to_owned(),
        _ => describe_value(&span.value),
    };
    error.with_label(span.value_span.clone(), label).with_help(help)
}

fn unknown_key(origin: &ConfigSource, span: &KeySpan) -> ConfigDiagnostic {
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
    error.with_key_label(span, "not a setting").with_help(key_help(name, table, &span.value))
}

fn renamed_key(origin: &ConfigSource, span: &KeySpan, new: &str) -> ConfigDiagnostic {
    let old = spans::join_path(&span.path);
    let error =
        ConfigDiagnostic::new(&origin.name, &origin.text, format!("{old} was renamed to {new}"));
    let new_name = new.rsplit('.').next().unwrap_or(new);
    let help = match span.value {
        TomlValueKind::Table => format!("write [{new}]"),
        _ => format!("write `{new_name}`"),
    };
    error.with_key_label(span, "old name").with_help(help)
}

/// Suggests a similar name in the same table, else the table that has the name, else lists all
/// names.
fn key_help(name: &str, table: &[String], value: &TomlValueKind) -> String {
    let names = all_settings::keys_in_table(table);
    let word = || names.iter().copied().find(|key| key.split('_').any(|word| word == name));
    let near = foreign_name(name, table).or_else(|| closest_name(name, &names)).or_else(word);
    if let Some(near) = near {
        let mut path = table.to_vec();
        path.push(near.to_owned());
        // Otherwise the value would be refused under that name, too.
        return match all_settings::classify_path(&path) {
            PathKind::Table if *value != TomlValueKind::Table => {
                format!("did you mean the table [{}]?", spans::join_path(&path))
            }
            PathKind::Setting(setting) if !is_allowed(setting.kind, value) => {
                format!("did you mean `{near}`? It must be {}", setting.expectation())
            }
            _ => format!("did you mean `{near}`?"),
        };
    }
    // Users often know a key but put it into the wrong table.
    match all_settings().iter().find(|row| row.setting.name == name) {
        Some(row) => format!("did you mean {}?", row.key.replace('*', "<name>")),
        None => list_keys(table),
    }
}

/// The name of a setting that other programs call differently.
fn foreign_name(name: &str, table: &[String]) -> Option<&'static str> {
    let [providers, _] = table else { return None };
    // Pi and OpenClaw name the dialect of a provider `api`.
    (providers == "providers" && name == "api").then_some("dialect")
}

fn list_keys(table: &[String]) -> String {
    let names = all_settings::keys_in_table(table);
    match table {
        _ if names.is_empty() => "each name in it is a table of its own".into(),
        [] => format!("tables: {}", all_settings::quote_list(&names)),
        _ => format!("keys: {}", all_settings::quote_list(&names)),
    }
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

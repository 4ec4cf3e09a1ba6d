//! Checks the tables of bundled engines beside other errors of a file, with which no engine is opened.

use ctxhost_engine::bundled_settings;
use ctxhost_engine_api::settings::{Setting, SettingKind};

use super::ConfigSource;
use super::all_settings::{is_allowed, quote_list};
use super::closest_name::closest_name;
use super::error::ConfigDiagnostic;
use super::spans::{self, KeySpan};

/// The errors that bundled engines would find in their own tables, in the order of the file.
pub(super) fn check_engine_settings(origin: &ConfigSource) -> Vec<ConfigDiagnostic> {
    let mut found = Vec::new();
    let mut reported: Vec<&[String]> = Vec::new();
    for span in origin.spans.iter() {
        let [plugins, entries, id, config, inner @ ..] = span.path.as_slice() else { continue };
        if [plugins.as_str(), entries, config] != ["plugins", "entries", "config"]
            || reported.iter().any(|path| span.path.starts_with(path))
            // A file may replace a bundled engine and has settings of its own.
            || origin.spans.find(&[plugins, entries, id, "path"]).is_some()
        {
            continue;
        }
        if let Some(why) = problem(id, inner, span) {
            found.push(rejected(origin, span, (id, inner), &why));
            reported.push(&span.path);
        }
    }
    found
}

/// What is wrong with a setting; `None` if nothing is, or if its table is checked elsewhere.
fn problem(id: &str, path: &[String], span: &KeySpan) -> Option<String> {
    let (name, tables) = path.split_last()?;
    let mut table = bundled_settings(id);
    for name in tables {
        match table.iter().find(|setting| setting.name == name)?.kind {
            SettingKind::Table(inner) => table = inner,
            _ => return None,
        }
    }
    if table.is_empty() {
        return None;
    }
    match table.iter().find(|setting| setting.name == name) {
        None => Some(unknown(name, table)),
        Some(setting) => is_wrong(setting, span)
            .then(|| format!("{} must be {}", spans::join_path(path), setting.expectation())),
    }
}

fn is_wrong(setting: &Setting, span: &KeySpan) -> bool {
    match setting.kind {
        SettingKind::Table(_) | SettingKind::Tables(_) => false,
        kind => !is_allowed(kind, &span.value),
    }
}

fn unknown(name: &str, table: &[Setting]) -> String {
    let known: Vec<&str> = table.iter().map(|setting| setting.name).collect();
    match closest_name(name, &known) {
        Some(near) => format!("unknown setting {name:?}; did you mean {near:?}?"),
        None => format!("unknown setting {name:?}; known here: {}", quote_list(&known)),
    }
}

fn rejected(
    origin: &ConfigSource,
    span: &KeySpan,
    (id, path): (&str, &[String]),
    why: &str,
) -> ConfigDiagnostic {
    let key = spans::join_path(path);
    let table = spans::join_path(&["plugins", "entries", id, "config"]);
    let message = format!("engine `{id}` rejects its setting `{key}`: {why}");
    ConfigDiagnostic::new(&origin.name, &origin.text, message)
        .with_label(span.assignment(), why)
        .with_help(format!("the settings of `{id}` are in [{table}]"))
}

//! Tests that the documentation and the example match the settings.
//!
//! `CTXHOST_UPDATE_DOCUMENTS=1 cargo test -p ctxhost-config documents` regenerates them.

use std::collections::BTreeMap;
use std::fmt::Write;

use ctxhost_engine::bundled_settings;
use ctxhost_engine_api::settings::{Setting, SettingKind};
use serde_json::Value;

use super::*;

/// Regenerates the documents instead of comparing them.
const UPDATE: &str = "CTXHOST_UPDATE_DOCUMENTS";

/// Prefix and suffix of the table name of a bundled engine's settings.
const ENGINE_TABLE: (&str, &str) = ("plugins.entries.", ".config");

pub(super) fn text_of(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares a document with the expected text, or writes it.
pub(super) fn hold(path: &str, expected: &str) {
    let found = text_of(path);
    if found == expected {
        return;
    }
    if std::env::var_os(UPDATE).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        return std::fs::write(path, expected).unwrap();
    }
    let stale = found.lines().filter(|line| !expected.lines().any(|other| other == *line));
    let new = expected.lines().filter(|line| !found.lines().any(|other| other == *line));
    let difference: String = stale
        .map(|line| format!("- {line}\n"))
        .chain(new.map(|line| format!("+ {line}\n")))
        .collect();
    panic!("{path} is not what the settings say; {UPDATE}=1 writes it:\n{difference}");
}

/// The settings of a table with their keys; for an engine's own table, nested keys as well.
fn settings_of(table: &str) -> Vec<(String, &'static Setting)> {
    let id = table.strip_prefix(ENGINE_TABLE.0).and_then(|rest| rest.strip_suffix(ENGINE_TABLE.1));
    if let Some(id) = id {
        let mut found = Vec::new();
        collect("", bundled_settings(id), &mut found);
        return found;
    }
    let is_in =
        |row: &&SettingRow| row.key.rsplit_once('.').is_some_and(|(above, _)| above == table);
    all_settings().iter().filter(is_in).map(|row| (row.key.clone(), row.setting)).collect()
}

fn collect(above: &str, table: &'static [Setting], found: &mut Vec<(String, &'static Setting)>) {
    for setting in table {
        let key = format!("{above}{}", setting.name);
        match setting.kind {
            SettingKind::Table(inner) => collect(&format!("{key}."), inner, found),
            _ => found.push((key, setting)),
        }
    }
}

/// The default with its unit and the allowed values in a few words; docs/configuration.md explains the notation.
/// Errors have the whole sentence.
fn default_and_range(setting: &Setting) -> String {
    let unit = setting.unit;
    let default = match setting.default.map(|default| default()) {
        None => "required".to_owned(),
        Some(Value::Null) => "not set".to_owned(),
        Some(default) => format!("`{default}`"),
    };
    // A value shows its own kind.
    let kind = |name: &str| match default.as_str() {
        "required" | "not set" => format!("{default}, {name}"),
        _ => default.clone(),
    };
    match setting.kind {
        SettingKind::Flag => kind("boolean"),
        SettingKind::Word(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("{default}; {}", words.join(", "))
        }
        SettingKind::Text
        | SettingKind::AnyText
        | SettingKind::Variable
        | SettingKind::Duration => kind("text"),
        SettingKind::Url => kind("URL"),
        SettingKind::Digest => kind("SHA-256"),
        SettingKind::List | SettingKind::Keys | SettingKind::Rules | SettingKind::Slot => {
            kind("list")
        }
        SettingKind::Texts | SettingKind::Upstreams | SettingKind::Foreign => kind("table"),
        SettingKind::Whole(0) => format!("{default} {unit}"),
        SettingKind::Whole(least) => format!("{default} {unit}, ≥{least}"),
        SettingKind::Between(least, most) => format!("{default} {unit}, {least}–{most}"),
        SettingKind::Number(least, most) => format!("{default}, {least}–{most}"),
        SettingKind::AtLeast(least) => format!("{default}, ≥{least}"),
        SettingKind::Share => format!("{default}, >0–1"),
        other => panic!("{other:?} has no row"),
    }
}

/// A table of a document. A setting that an engine above it describes in the same words refers to that engine;
/// `described` holds what was written so far.
fn table_of_document(tables: &str, described: &mut BTreeMap<String, String>) -> String {
    let mut text = "| setting | default, range | what and why |\n|---|---|---|\n".to_owned();
    let engine = tables.strip_prefix(ENGINE_TABLE.0).and_then(|it| it.strip_suffix(ENGINE_TABLE.1));
    for (key, setting) in tables.split(' ').flat_map(settings_of) {
        let name = match key.split('.').next() {
            Some("models") => "\"provider/model\"",
            Some("providers") => "<name>",
            _ => "<id>",
        };
        let (key, values) = (key.replace('*', name), default_and_range(setting));
        let mut row = format!("| `{key}` | {values} | {} |\n", setting.reason());
        if let Some(engine) = engine {
            let first = described.entry(row.clone()).or_insert_with(|| engine.to_owned());
            if first != engine {
                row = format!("| `{key}` | {values} | as in [{first}](#{first}) |\n");
            }
        }
        text += &row;
    }
    text
}

/// The document with regenerated tables.
fn with_tables(document: &str) -> String {
    let (begin, end) = ("<!-- settings: ", "<!-- end of settings -->");
    let mut parts = document.split(begin);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut described = BTreeMap::new();
    for part in parts {
        let (tables, rest) = part.split_once(" -->\n").expect("the marker ends in its line");
        let (_, rest) = rest.split_once(end).expect(tables);
        write!(
            text,
            "{begin}{tables} -->\n{}{end}{rest}",
            table_of_document(tables, &mut described)
        )
        .unwrap();
    }
    text
}

#[test]
fn documents_show_every_setting() {
    let mut markers = String::new();
    for path in ["docs/configuration.md", "docs/legacy.md", "docs/engines.md"] {
        let document = text_of(path);
        for marker in document.lines().filter_map(|line| line.strip_prefix("<!-- settings: ")) {
            markers += &format!(" {marker}");
        }
        hold(path, &with_tables(&document));
    }
    let is_shown = |table: &str| markers.split_whitespace().any(|marker| marker == table);
    for row in all_settings() {
        let (table, _) = row.key.rsplit_once('.').unwrap();
        assert!(is_shown(table), "no document has a table of [{table}]");
    }
    for id in ctxhost_engine::BUNDLED {
        assert!(is_shown(&format!("plugins.entries.{id}.config")), "no document describes {id}");
    }
}

/// Longest comment line of the example, in characters.
const COMMENT_CHARS: usize = 108;

/// Settings of the example that differ from their default, each explained by its own comment.
const NOT_DEFAULT: [&str; 1] = ["plugins.entries.legacy.config.pruning.mode"];

/// A line of the example with a setting, active or commented out.
struct KeyLine<'e> {
    mark: &'static str,
    key: &'e str,
    value: &'e str,
}

impl<'e> KeyLine<'e> {
    fn read(line: &'e str) -> Option<KeyLine<'e>> {
        let (mark, line) = match line.strip_prefix("# ") {
            Some(rest) => ("# ", rest),
            None => ("", line),
        };
        let (key, value) = line.split_once(" = ")?;
        let is_key = key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        is_key.then_some(KeyLine { mark, key, value })
    }
}

/// The name of a table, active or commented out.
fn table_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("# ").unwrap_or(line);
    line.strip_prefix('[')?.trim_end().strip_suffix(']')
}

/// The setting at a path, also of a bundled engine's own table.
fn setting_at(path: &str) -> Option<&'static Setting> {
    let path = spans::split_path(path);
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    if let ["plugins", "entries", id, "config", inner @ ..] = names.as_slice() {
        let own = settings_of(&format!("plugins.entries.{id}.config"));
        return own.into_iter().find(|(key, _)| *key == inner.join(".")).map(|(_, it)| it);
    }
    let fits = |row: &&SettingRow| {
        row.path.len() == names.len() && all_settings::matches_pattern(&row.path, &names)
    };
    all_settings().iter().find(fits).map(|row| row.setting)
}

/// The comment above a setting in the example.
fn comment(setting: &Setting) -> String {
    let unit = match setting.unit {
        // The descriptions of shares name their unit.
        unit if unit.is_empty() || unit.starts_with("share") => String::new(),
        unit => format!(" Unit: {unit}."),
    };
    let mut text = String::from("#");
    let mut width = 1;
    for word in format!("{}{unit}", setting.text.trim()).split(' ') {
        let chars = word.chars().count();
        if width + 1 + chars > COMMENT_CHARS {
            text.push_str("\n#");
            width = 1;
        }
        write!(text, " {word}").unwrap();
        width += 1 + chars;
    }
    text + "\n"
}

/// A TOML value as JSON.
fn value_of(value: &str) -> Value {
    let table: toml::Table = toml::from_str(&format!("it = {value}")).unwrap();
    plugins::json(&table["it"])
}

/// The example with the reason above every setting, and with its defaults.
fn with_reasons(example: &str) -> String {
    let mut text = String::new();
    // Comment lines whose setting has not been reached yet.
    let mut pending = String::new();
    let mut table = String::new();
    for line in example.lines() {
        let key_line = KeyLine::read(line);
        let path = |it: &KeyLine<'_>| format!("{table}.{}", it.key);
        let setting = key_line.as_ref().and_then(|it| Some((it, setting_at(&path(it))?)));
        if let Some((it, setting)) = setting {
            let default = setting.default.map(|default| default()).unwrap_or_default();
            let is_other =
                it.mark.is_empty() && !default.is_null() && value_of(it.value) != default;
            if is_other && NOT_DEFAULT.contains(&path(it).as_str()) {
                writeln!(text, "{pending}{line}").unwrap();
            } else if is_other {
                writeln!(text, "{}{} = {default}", comment(setting), it.key).unwrap();
            } else {
                writeln!(text, "{}{line}", comment(setting)).unwrap();
            }
            pending.clear();
            continue;
        }
        pending += &format!("{line}\n");
        if let Some(name) = table_name(line) {
            name.clone_into(&mut table);
        }
        if !line.starts_with('#') || table_name(line).is_some() {
            text += &std::mem::take(&mut pending);
        }
    }
    text + &pending
}

#[test]
fn the_example_explains_every_setting() {
    hold("examples/ctxhost.toml", &with_reasons(&text_of("examples/ctxhost.toml")));
}

/// The example with every commented setting active, except for those that exclude another one.
pub(super) fn everything_on(text: &str) -> String {
    let on = |line: &str| match (KeyLine::read(line), table_name(line)) {
        (Some(KeyLine { key: "provider", .. }), _) | (None, None) => line.to_owned(),
        _ => line.strip_prefix("# ").unwrap_or(line).to_owned(),
    };
    text.lines().map(on).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_is_the_default_with_pruning_on() {
    let example = text_of("examples/ctxhost.toml");
    let config = parse(&example);
    assert_eq!(config.engine_config("legacy")["pruning"]["mode"], "cache-ttl");
    let rows = explain(&config);
    for row in all_settings().iter().filter(|row| !row.key.contains('*')) {
        let Some(default) = row.setting.default.map(|default| default()) else { continue };
        let is_known_otherwise = matches!(
            row.key.as_str(),
            // Set in the file, it would override the built-in table.
            "model.default_window_tokens"
        );
        let is_shown_only = default.is_null()
            || is_known_otherwise
            || row.key.starts_with("summariser")
            || matches!(row.setting.kind, SettingKind::Upstreams);
        let found = rows.iter().find(|found| found.key == row.key);
        let is_written = found.is_some_and(|found| found.source != "default");
        assert!(is_written || is_shown_only, "{} is not in the example", row.key);
    }
    for id in ctxhost_engine::BUNDLED {
        let own = config.engine_config(id);
        for (key, _) in settings_of(&format!("plugins.entries.{id}.config")) {
            let pointer = format!("/{}", key.replace('.', "/"));
            assert!(own.pointer(&pointer).is_some(), "{id}: {key} is not in the example");
        }
    }
}

#[test]
fn the_example_shows_every_setting() {
    let example = text_of("examples/ctxhost.toml");
    let mut table = String::new();
    let mut shown = Vec::new();
    for line in example.lines() {
        if let Some(name) = table_name(line) {
            name.clone_into(&mut table);
            shown.push(spans::split_path(name));
        } else if let Some(it) = KeyLine::read(line) {
            shown.push(spans::split_path(&format!("{table}.{}", it.key)));
        }
    }
    for row in all_settings() {
        let is_shown = |path: &Vec<String>| {
            path.len() >= row.path.len() && all_settings::matches_pattern(&row.path, path)
        };
        assert!(shown.iter().any(is_shown), "the example does not show {}", row.key);
    }
}

/// Settings that must be set as well.
fn required(key: &str) -> &'static [&'static str] {
    const PROVIDER: &str = "providers.x.dialect = \"openai-completions\"";
    const ANTHROPIC: &str = "providers.x.dialect = \"anthropic-messages\"";
    const MODEL: &str = "summariser.model = \"x\"";
    match key {
        key if key.ends_with("one_hour_cache") || key.ends_with("context_editing") => &[ANTHROPIC],
        "summariser.provider" => &[PROVIDER, MODEL],
        "gateway.tls_cert" | "gateway.tls_key" => {
            &["gateway.tls_cert = \"y\"", "gateway.tls_key = \"y\""]
        }
        "store.kind" => &["store.url = \"postgres://x\""],
        "mcp.*.command" | "mcp.*.url" => &[],
        "mcp.*.headers" => &["mcp.x.url = \"http://x\""],
        key if key.starts_with("mcp.") => &["mcp.x.command = \"x\""],
        key if key.starts_with("summariser") => &["summariser.base_url = \"http://x\"", MODEL],
        "embedder.url" | "embedder.model" | "embedder.api_key_env" => {
            &["embedder.url = \"http://x\"", "embedder.model = \"x\""]
        }
        key if key.starts_with("providers") => &[PROVIDER],
        _ => &[],
    }
}

/// Allowed values other than the default.
fn samples(setting: &Setting) -> Vec<String> {
    let default = setting.default.map(|default| default()).unwrap_or_default();
    let texts = match setting.kind {
        SettingKind::Flag => vec!["true".into(), "false".into()],
        SettingKind::Word(words) => words.iter().map(|word| format!("{word:?}")).collect(),
        SettingKind::Text | SettingKind::AnyText | SettingKind::Variable | SettingKind::Slot => {
            vec!["\"x\"".into()]
        }
        SettingKind::Url => vec!["\"https://x/v1\"".into()],
        SettingKind::Digest => vec![format!("{:?}", "ab".repeat(32))],
        SettingKind::List => vec!["[\"x\"]".into()],
        SettingKind::Keys => {
            vec!["[\"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"]".into()]
        }
        SettingKind::Rules => vec!["[\"paths >= 0.5\"]".into()],
        SettingKind::Between(least, most) => vec![least.to_string(), most.to_string()],
        SettingKind::Whole(least) => vec![(least + 500_000).to_string()],
        SettingKind::Number(least, most) => vec![format!("{least:?}"), format!("{most:?}")],
        SettingKind::Texts => vec!["{ a = \"x\" }".into()],
        SettingKind::Upstreams => vec!["{ openai = \"https://x\" }".into()],
        SettingKind::Foreign => vec!["{ a = 1 }".into()],
        other => panic!("{other:?} is not used by the host"),
    };
    texts.into_iter().filter(|text| value_of(text) != default).collect()
}

#[test]
fn every_setting_is_read() {
    for row in all_settings() {
        let key = row.key.replace('*', "x");
        let beside = required(&row.key).iter().filter(|line| !line.starts_with(&key));
        let beside: String = beside.map(|line| format!("{line}\n")).collect();
        let values = match row.key.as_str() {
            "gateway.listen" => vec!["\"x:1\"".into()],
            "gateway.origins" => vec!["[\"http://x\"]".into()],
            _ => samples(row.setting),
        };
        for value in values {
            let config = parse(&format!("{beside}{key} = {value}\n"));
            let is_read = |it: &ExplainRow| it.key.starts_with(&key) && it.source != "default";
            assert!(explain(&config).iter().any(is_read), "{key} = {value}");
            let path: Vec<&str> =
                row.path.iter().map(|&it| if it == "*" { "x" } else { it }).collect();
            let values = serde_json::to_value(&config).unwrap();
            let read = values.pointer(&format!("/{}", path.join("/"))).unwrap();
            let is_word = matches!(row.setting.kind, SettingKind::Word(_));
            // Dialects have a long and a short name.
            assert!(
                *read == value_of(&value) || is_word && read.is_string() || read.is_f64(),
                "{key} = {value} is read as {read}"
            );
        }
    }
}

//! The example config holds every setting of the bundled engines, each with its default.

use std::collections::BTreeMap;

use ctxhost_config::Config;
use ctxhost_engine_boundary::Settings as Boundary;
use ctxhost_engine_head_tail::settings::Settings as HeadTail;
use ctxhost_engine_legacy::settings::Settings as Legacy;
use ctxhost_engine_mask::Settings as Mask;
use ctxhost_engine_window::Settings as Window;
use serde_json::{Value, json};

/// The file, below the root of the workspace.
const EXAMPLE: &str = "examples/ctxhost.toml";

fn example() -> Config {
    let text = std::fs::read_to_string(ctxhost_tests::root().join(EXAMPLE)).unwrap();
    Config::parse(EXAMPLE, &text).unwrap()
}

/// The values of a table by dotted key; a table in it is no value of its own.
fn values(table: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (key, value) in table.as_object().unwrap() {
        if value.is_object() {
            found.extend(values(value).into_iter().map(|(k, v)| (format!("{key}.{k}"), v)));
        } else {
            found.insert(key.clone(), value.clone());
        }
    }
    found
}

/// `file:line` of an engine's setting; of the table it belongs into, where it is missing.
fn place(config: &Config, id: &str, key: &str) -> String {
    let mut path = format!("plugins.entries.{id}.config.{key}");
    loop {
        if let Some(line) = config.line_of(&path) {
            return format!("{}:{line}", config.name());
        }
        match path.rfind('.') {
            Some(end) => path.truncate(end),
            None => return config.name().to_owned(),
        }
    }
}

/// What the file lacks, has too much, or has with another value; each with its place.
fn differences(config: &Config, id: &str, defaults: impl serde::Serialize) -> Vec<String> {
    let written = values(&config.engine_config(id));
    let defaults = values(&serde_json::to_value(defaults).unwrap());
    let mut found = Vec::new();
    let mut tell = |key: &str, what: String| {
        found.push(format!("{}: {id}: {key} {what}", place(config, id, key)));
    };
    for (key, default) in &defaults {
        match written.get(key) {
            None => tell(key, format!("is missing; its default is {default}")),
            Some(value) if value != default => {
                tell(key, format!("is {value}; its default is {default}"));
            }
            Some(_) => {}
        }
    }
    for key in written.keys().filter(|key| !defaults.contains_key(*key)) {
        tell(key, "is no setting".into());
    }
    found
}

#[test]
fn every_setting_of_legacy_stands_there_with_its_default() {
    let config = example();
    let mode = place(&config, "legacy", "pruning.mode");
    let apart = format!(r#"{mode}: legacy: pruning.mode is "cache-ttl"; its default is "off""#);
    assert_eq!(differences(&config, "legacy", Legacy::default()), [apart]);
}

#[test]
fn every_setting_of_the_others_stands_there_with_its_default() {
    let config = example();
    let mut found = differences(&config, "window", Window::default());
    found.extend(differences(&config, "mask", Mask::default()));
    found.extend(differences(&config, "boundary", Boundary::default()));
    found.extend(differences(&config, "head-tail", HeadTail::default()));
    assert_eq!(found, [""; 0]);
}

#[test]
fn no_bundled_engine_is_forgotten() {
    for id in ctxhost_engine::BUNDLED {
        assert!(example().entry(id).is_some(), "{EXAMPLE} lacks [plugins.entries.{id}.config]");
    }
}

#[test]
fn a_missing_a_different_and_an_unknown_setting_are_named_with_their_line() {
    let text = "[plugins.entries.mine.config]\nextra = true\n\n\
                [plugins.entries.mine.config.a]\nsame = 1\nother = 2\n";
    let config = Config::parse("some.toml", text).unwrap();
    let defaults = json!({"a": {"same": 1, "other": 3, "gone": 0.5}});
    let expected = [
        "some.toml:4: mine: a.gone is missing; its default is 0.5",
        "some.toml:6: mine: a.other is 2; its default is 3",
        "some.toml:2: mine: extra is no setting",
    ];
    assert_eq!(differences(&config, "mine", defaults), expected);
}

#[test]
fn config_check_opens_every_engine_with_its_table() {
    let arguments = ["--config", EXAMPLE, "config", "check"];
    let output = ctxhost_tests::ctxhost().args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

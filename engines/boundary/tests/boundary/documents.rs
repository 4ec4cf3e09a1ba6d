//! The page of the engine names every setting with its default.

use std::path::Path;

use ctxhost_engine_api::serde_json::{self, Value};
use ctxhost_engine_boundary::Settings;

fn document(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// `(dotted key, default)` of every setting.
fn settings() -> Vec<(String, String)> {
    let written = serde_json::to_value(Settings::default()).unwrap();
    let mut rows = Vec::new();
    for (key, value) in written.as_object().unwrap() {
        match value {
            Value::Object(table) => {
                rows.extend(table.iter().map(|(k, v)| (format!("{key}.{k}"), v.to_string())));
            }
            value => rows.push((key.clone(), value.to_string())),
        }
    }
    rows
}

#[test]
fn the_page_shows_every_setting() {
    // That the example config does is watched in `tests/tests/command_line/example_config.rs`.
    let page = document("docs/engines.md");
    for (key, default) in settings() {
        assert!(page.contains(&format!("| `{key}` | `{default}` |")), "docs: {key} = {default}");
    }
}

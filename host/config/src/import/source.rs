//! Flattens a file of another agent into dotted keys with values.

use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Value};

use crate::error::{ConfigDiagnostic, ConfigError};

/// Limit of nesting: the parser is recursive, and deeply nested input would overflow its stack.
const MAX_DEPTH: usize = 200;

/// A value that is not a table, with its path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SettingLeaf {
    /// The path from the root. An item of a list of tables is named by its `id`.
    pub(super) path: Vec<String>,
    pub(super) value: Value,
}

impl SettingLeaf {
    /// The path with dots.
    pub(super) fn key(&self) -> String {
        self.path.join(".")
    }
}

/// Parses JSON, also with comments, trailing commas and bare keys.
pub(super) fn json(name: &str, text: &str) -> Result<Value, ConfigError> {
    // json5 parses recursively, without a limit of its own.
    if let Some(at) = too_deep(text) {
        let message = format!("{name} is nested deeper than {MAX_DEPTH} levels");
        return Err(Box::new(
            ConfigDiagnostic::new(name, text, message).with_label(at..at + 1, "here"),
        )
        .into());
    }
    let document: Value = json5::from_str(text).map_err(|error| {
        let reason = error.code().map_or_else(|| error.to_string(), |code| code.to_string());
        let diagnostic =
            ConfigDiagnostic::new(name, text, format!("{name} is not valid JSON: {reason}"));
        Box::new(match error.position() {
            Some(place) => with_position(diagnostic, text, place.line, place.column),
            // An unexpected end of file has no position; use the end.
            None => diagnostic.with_label(text.len()..text.len(), "here"),
        })
    })?;
    table(name, text, document)
}

/// The position at which brackets are nested too deeply. Counts brackets in strings as well; no
/// setting contains that many.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth: usize = 0;
    text.bytes().position(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_DEPTH
    })
}

/// Parses the first document of a YAML file.
pub(super) fn yaml(name: &str, text: &str) -> Result<Value, ConfigError> {
    let documents = Yaml::load_from_str(text).map_err(|error| {
        let message = format!("{name} is not valid YAML: {}", error.info());
        let diagnostic = ConfigDiagnostic::new(name, text, message);
        let place = error.marker();
        Box::new(with_position(diagnostic, text, place.line().saturating_sub(1), place.col()))
    })?;
    table(name, text, documents.first().map_or(Value::Null, yaml_to_json))
}

/// All leaves, in file order.
pub(super) fn leaves(document: &Value) -> Vec<SettingLeaf> {
    let mut leaves = Vec::new();
    collect_leaves(document, &mut Vec::new(), &mut leaves);
    leaves
}

/// Adds the position of a line and a column, both from 0 and in characters.
fn with_position(
    error: ConfigDiagnostic,
    text: &str,
    line: usize,
    column: usize,
) -> ConfigDiagnostic {
    let lines = text.split_inclusive('\n');
    let before: usize = lines.take(line).map(str::len).sum();
    let rest = text.get(before..).unwrap_or("");
    let inside = rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at);
    let start = (before + inside).min(text.len());
    let width = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    error
        .with_label(start..start + width, "here")
        .with_help("correct the file; nothing was imported")
}

fn table(name: &str, text: &str, document: Value) -> Result<Value, ConfigError> {
    match document {
        Value::Object(_) => Ok(document),
        Value::Null => Ok(Value::Object(Map::new())),
        _ => {
            let message = format!("{name} is not a table of settings");
            let help = "pass openclaw.json, or config.yaml of Hermes";
            Err(Box::new(ConfigDiagnostic::new(name, text, message).with_help(help)).into())
        }
    }
}

fn yaml_to_json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) | Yaml::BadValue | Yaml::Alias(_) => Value::Null,
        Yaml::Value(Scalar::Boolean(flag)) => Value::Bool(*flag),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::FloatingPoint(number)) => Value::from(number.into_inner()),
        Yaml::Value(Scalar::String(text)) => Value::from(text.as_ref()),
        Yaml::Representation(text, ..) => Value::from(text.as_ref()),
        Yaml::Sequence(items) => items.iter().map(yaml_to_json).collect(),
        Yaml::Mapping(map) => map
            .iter()
            .map(|(key, value)| (key_text(key), yaml_to_json(value)))
            .collect::<Map<_, _>>()
            .into(),
        Yaml::Tagged(_, inner) => yaml_to_json(inner),
    }
}

/// A key as text; YAML allows any value as a key.
fn key_text(key: &Yaml<'_>) -> String {
    match yaml_to_json(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn collect_leaves(value: &Value, path: &mut Vec<String>, leaves: &mut Vec<SettingLeaf>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        // Lists of models are keyed by id, so that the mapping tables can name them.
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().enumerate().map(|(at, item)| (item_name(at, item), item)).collect()
        }
        Value::Null => return,
        _ => {
            leaves.push(SettingLeaf { path: path.clone(), value: value.clone() });
            return;
        }
    };
    for (name, child) in children {
        path.push(name);
        collect_leaves(child, path, leaves);
        path.pop();
    }
}

fn item_name(at: usize, item: &Value) -> String {
    item.get("id").and_then(Value::as_str).map_or_else(|| at.to_string(), str::to_owned)
}

//! The JSON Schema of the config file, for editors.

use ctxhost_engine::{BUNDLED, bundled_settings};
use ctxhost_engine_api::settings::{Setting, SettingKind};
use serde_json::{Map, Value, json};

use super::{Config, FILE_NAME};

/// The version of JSON Schema.
/// The first line of new config files, for editors: where the published schema is.
pub const SCHEMA_LINE: &str =
    "#:schema https://raw.githubusercontent.com/ctxhost/ctxhost/main/docs/ctxhost.schema.json\n\n";

const SCHEMA_DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The JSON Schema of the config file, with the settings of the bundled engines.
pub fn json_schema() -> Value {
    let mut schema = json!({ "$schema": SCHEMA_DIALECT, "title": FILE_NAME });
    merge(&mut schema, table(Config::SETTINGS));
    if let Some(entries) = schema.pointer_mut("/properties/plugins/properties/entries") {
        let entry = entries.get("additionalProperties").cloned().unwrap_or_default();
        let named = BUNDLED.iter().map(|id| ((*id).to_owned(), bundled_entry(&entry, id)));
        merge(entries, json!({ "properties": named.collect::<Map<_, _>>() }));
    }
    schema
}

/// The schema of a bundled engine's entry.
fn bundled_entry(entry: &Value, id: &str) -> Value {
    let mut entry = entry.clone();
    if let Some(config) = entry.pointer_mut("/properties/config") {
        merge(config, table(bundled_settings(id)));
    }
    entry
}

fn table(settings: &[Setting]) -> Value {
    let properties = settings.iter().map(|setting| (setting.name.to_owned(), property(setting)));
    let mut table = json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
        // Like the parser: an unknown key is an error, not a warning.
        "additionalProperties": false,
    });
    let required = settings.iter().filter(|setting| setting.default.is_none());
    let required: Vec<&str> = required.map(|setting| setting.name).collect();
    if !required.is_empty() {
        merge(&mut table, json!({ "required": required }));
    }
    table
}

fn property(setting: &Setting) -> Value {
    let mut property = values(setting.kind);
    let unit = match setting.unit {
        // The descriptions of shares name their unit.
        unit if unit.is_empty() || unit.starts_with("share") => String::new(),
        unit => format!("\n\nUnit: {unit}."),
    };
    let text = setting.text.trim();
    merge(&mut property, json!({ "description": format!("{text}{unit}") }));
    let default = setting.default.map(|default| default()).unwrap_or_default();
    // The defaults of a table are those of its settings.
    if !default.is_null() && !matches!(setting.kind, SettingKind::Table(_) | SettingKind::Tables(_))
    {
        merge(&mut property, json!({ "default": default }));
    }
    property
}

/// The schema of allowed values.
fn values(allowed: SettingKind) -> Value {
    let texts = json!({ "type": "string" });
    match allowed {
        SettingKind::Flag => json!({ "type": "boolean" }),
        SettingKind::Word(words) => json!({ "enum": words }),
        SettingKind::Text => json!({ "type": "string", "pattern": "\\S" }),
        SettingKind::Url => json!({ "type": "string", "pattern": "^https?://" }),
        SettingKind::Digest => json!({ "type": "string", "pattern": "^[0-9A-Fa-f]{64}$" }),
        SettingKind::Variable => {
            json!({ "type": "string", "pattern": "^[A-Za-z_][0-9A-Za-z_]*$" })
        }
        SettingKind::Duration => json!({ "type": ["string", "number"] }),
        SettingKind::List | SettingKind::Keys | SettingKind::Rules => {
            json!({ "type": "array", "items": texts })
        }
        SettingKind::Whole(least) => json!({ "type": "integer", "minimum": least }),
        SettingKind::Between(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        SettingKind::Number(least, most) => {
            json!({ "type": "number", "minimum": least, "maximum": most })
        }
        SettingKind::AtLeast(least) => json!({ "type": "number", "minimum": least }),
        SettingKind::Share => json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
        SettingKind::Texts | SettingKind::Upstreams => {
            json!({ "type": "object", "additionalProperties": texts })
        }
        SettingKind::Slot => {
            // `examples` instead of `enum`: installed engines have names that the schema cannot
            // know.
            let engine = json!({ "type": "string", "examples": BUNDLED });
            json!({ "anyOf": [engine, { "type": "array", "items": engine }] })
        }
        SettingKind::Foreign => json!({ "type": "object" }),
        SettingKind::Table(inner) => table(inner),
        SettingKind::Tables(inner) => {
            json!({ "type": "object", "additionalProperties": table(inner) })
        }
        // Text, and kinds that a later version of the contract adds.
        _ => texts,
    }
}

/// Adds members to an object.
fn merge(object: &mut Value, members: Value) {
    if let (Value::Object(object), Value::Object(members)) = (object, members) {
        object.extend(members);
    }
}

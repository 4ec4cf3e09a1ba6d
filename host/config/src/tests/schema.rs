//! Tests that the schema accepts exactly what the config accepts.

use serde_json::{Map, Value};

use super::documents::{self, everything_on, text_of};
use super::*;

/// Why a value does not match a schema; `None` if it does. Supports the keywords of our schema and
/// panics at others.
fn fault(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let keywords = schema.as_object().expect("a schema is an object");
    let wrong = |what: &str| Some(format!("{at} {what}: {value}"));
    for (keyword, rule) in keywords {
        let number = |fits: fn(f64, f64) -> bool| {
            value.as_f64().is_none_or(|number| fits(number, rule.as_f64().unwrap()))
        };
        let fits = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "examples" => true,
            "type" => match rule {
                Value::Array(types) => types.iter().any(|it| is_of_type(value, it)),
                rule => is_of_type(value, rule),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => number(|number, least| number >= least),
            "maximum" => number(|number, most| number <= most),
            "exclusiveMinimum" => number(|number, least| number > least),
            "pattern" => value.as_str().is_none_or(|text| matches_pattern(text, rule)),
            "anyOf" => rule.as_array().unwrap().iter().any(|it| fault(it, value, at).is_none()),
            "required" => {
                rule.as_array().unwrap().iter().all(|it| value.get(it.as_str().unwrap()).is_some())
            }
            "items" => {
                let items = value.as_array().into_iter().flatten();
                match items.filter_map(|item| fault(rule, item, at)).next() {
                    Some(fault) => return Some(fault),
                    None => true,
                }
            }
            "properties" | "additionalProperties" => continue,
            other => panic!("the test does not know the keyword {other}"),
        };
        if !fits {
            return wrong(keyword);
        }
    }
    let none = Map::new();
    let properties = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
    value.as_object().into_iter().flatten().find_map(|(name, value)| {
        let at = format!("{at}.{name}");
        match (properties.get(name), keywords.get("additionalProperties")) {
            (Some(schema), _) => fault(schema, value, &at),
            (None, Some(Value::Bool(false))) => Some(format!("{at} is unknown")),
            (None, Some(schema)) => fault(schema, value, &at),
            (None, None) => None,
        }
    })
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("the test does not know the type {other}"),
    }
}

fn matches_pattern(text: &str, pattern: &Value) -> bool {
    match pattern.as_str().unwrap() {
        r"\S" => !text.trim().is_empty(),
        "^https?://" => text.starts_with("http://") || text.starts_with("https://"),
        "^[A-Za-z_][0-9A-Za-z_]*$" => {
            let is_word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
            text.bytes().all(is_word) && text.starts_with(|it: char| !it.is_ascii_digit())
        }
        "^[0-9A-Fa-f]{64}$" => text.len() == 64 && text.bytes().all(|it| it.is_ascii_hexdigit()),
        other => panic!("the test does not know the pattern {other}"),
    }
}

fn fault_of(text: &str) -> Option<String> {
    let table: toml::Table = toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    fault(&json_schema(), &plugins::json(&toml::Value::Table(table)), "")
}

#[test]
fn the_examples_fit_the_schema() {
    let example = text_of("examples/ctxhost.toml");
    assert_eq!(fault_of(&example), None);
    assert_eq!(fault_of(&everything_on(&example)), None);
    for name in
        ["config.in/good.toml", "stack.in/row.toml", "shadow.in/beside.toml", "use.in/ctxhost.toml"]
    {
        assert_eq!(fault_of(&text_of(&format!("tests/cli/{name}"))), None, "{name}");
    }
}

/// Editors read the published file, and new configs name it.
#[test]
fn the_published_schema_is_current() {
    documents::hold("docs/ctxhost.schema.json", &format!("{:#}\n", json_schema()));
    assert!(SCHEMA_LINE.trim_end().ends_with("/docs/ctxhost.schema.json"));
    assert!(text_of("examples/ctxhost.toml").starts_with(SCHEMA_LINE));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctxhost.toml");
    set_slot(&path, "mask").unwrap();
    set_slot(&path, "legacy").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("{SCHEMA_LINE}[plugins.slots]\ncontext_engine = \"legacy\"\n"));
    let path = folder.path().join("other.toml");
    set_entry_path(&path, "x", "x.so", "").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("{SCHEMA_LINE}[plugins.entries.x]\npath = \"x.so\"\n"));
    remove_entry_path(&path, "x").unwrap();
    assert!(!std::fs::read_to_string(&path).unwrap().contains("entries"));
}

#[test]
fn the_schema_rejects_what_the_config_rejects() {
    for (text, key) in [
        ("[budget]\nreserve_token = 9000\n", ".budget.reserve_token is unknown"),
        ("[plugin]\n", ".plugin is unknown"),
        ("[budget]\nreserve_tokens = 2.5\n", ".budget.reserve_tokens type"),
        ("[timeouts]\nassemble_ms = 0\n", ".timeouts.assemble_ms minimum"),
        ("[agent]\nthinking = \"much\"\n", ".agent.thinking enum"),
        ("[agent]\nmodel = \" \"\n", ".agent.model pattern"),
        ("[summariser]\nbase_url = \"http://x\"\n", ".summariser required"),
        ("[plugins]\nallow = [1]\n", ".plugins.allow type"),
        (
            "[plugins.entries.mask.config]\nkeep = 3\n",
            ".plugins.entries.mask.config.keep is unknown",
        ),
        (
            "[plugins.entries.legacy.config.pruning]\nmode = \"on\"\n",
            ".plugins.entries.legacy.config.pruning.mode enum",
        ),
        (
            "[plugins.entries.legacy.config.window]\nblock_share = 0\n",
            ".plugins.entries.legacy.config.window.block_share exclusiveMinimum",
        ),
    ] {
        let fault = fault_of(text).unwrap_or_default();
        assert!(fault.starts_with(key), "{text}: {fault}");
    }
    assert_eq!(fault_of("[plugins.entries.mine.config]\nkeep = 3\n"), None);
}

#[test]
fn every_default_fits_its_own_schema() {
    let mut checked = 0;
    let mut unchecked = vec![(String::new(), json_schema())];
    while let Some((at, schema)) = unchecked.pop() {
        if let Some(default) = schema.get("default") {
            assert_eq!(fault(&schema, default, &at), None);
            checked += 1;
        }
        let own = schema.get("additionalProperties").filter(|it| it.is_object()).cloned();
        unchecked.extend(own.map(|it| (format!("{at}.*"), it)));
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            assert_ne!(property["description"], "", "{at}.{name}");
            unchecked.push((format!("{at}.{name}"), property.clone()));
        }
    }
    assert!(checked > 250, "{checked}");
}

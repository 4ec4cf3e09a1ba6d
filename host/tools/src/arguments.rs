//! Validates the arguments of a call against the tool's schema: required and top-level types. Nested values are
//! left to the tool.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ToolError;

/// Returns the arguments as an object with all required fields.
pub(super) fn validate(tool: &str, schema: &Value, raw: &Value) -> Result<Value, ToolError> {
    let bad = |complaint: String| bad(tool, schema, complaint);
    let mut arguments = match raw {
        Value::Object(arguments) => arguments.clone(),
        Value::Null => Map::new(),
        other => return Err(bad(format!("expected a JSON object, not {}", kind(other)))),
    };
    // Models write null for "not set".
    arguments.retain(|name, value| !value.is_null() || takes_null(schema, name));
    for name in required(schema) {
        if !arguments.contains_key(name) {
            return Err(bad(format!("`{name}` is missing")));
        }
    }
    for (name, value) in &mut arguments {
        if let Some(complaint) = type_error(schema, name, value) {
            return Err(bad(complaint));
        }
        make_whole(schema, name, value);
    }
    Ok(Value::Object(arguments))
}

/// Parses the arguments of a built-in tool.
pub(super) fn read<T: DeserializeOwned>(
    tool: &str,
    schema: &Value,
    arguments: &Value,
) -> Result<T, ToolError> {
    T::deserialize(arguments).map_err(|error| bad(tool, schema, error.to_string()))
}

fn bad(tool: &str, schema: &Value, complaint: String) -> ToolError {
    ToolError::BadArguments { tool: tool.to_owned(), complaint, takes: describe_schema(schema) }
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    properties(schema)?.get(name)
}

/// The types of a property; none if the schema is not simple.
fn types(property: &Value) -> Vec<&str> {
    match property.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Whether a null is allowed. If the schema is not simple, it is.
fn takes_null(schema: &Value, name: &str) -> bool {
    let Some(property) = property(schema, name) else { return true };
    let types = types(property);
    types.is_empty() || types.contains(&"null")
}

fn type_error(schema: &Value, name: &str, value: &Value) -> Option<String> {
    let Some(property) = property(schema, name) else {
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        return is_closed.then(|| format!("unknown argument `{name}`"));
    };
    let types = types(property);
    if types.is_empty() || types.iter().any(|kind| has_type(value, kind)) {
        return None;
    }
    Some(format!("`{name}` must be {}, not {}", types.join(" or "), kind(value)))
}

/// Converts `5.0` to `5`, which some models write for an integer.
fn make_whole(schema: &Value, name: &str, value: &mut Value) {
    let is_whole = property(schema, name).is_some_and(|property| types(property) == ["integer"]);
    let number = value.as_f64().filter(|_| is_whole && value.is_f64());
    // Larger floats are left alone: they may not be exact integers.
    if let Some(number) = number.filter(|number| number.abs() <= f64::from(i32::MAX)) {
        *value = Value::from(number as i64);
    }
}

fn has_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        // A type of a newer schema version: left to the tool.
        _ => true,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// For example `path (string, required), offset (integer)`.
fn describe_schema(schema: &Value) -> String {
    let Some(properties) = properties(schema).filter(|map| !map.is_empty()) else {
        return "no arguments".into();
    };
    let required = required(schema).collect::<Vec<_>>();
    let one = |(name, property): (&String, &Value)| {
        let mut notes = types(property).join(" or ");
        if required.contains(&name.as_str()) {
            notes = if notes.is_empty() { "required".into() } else { format!("{notes}, required") };
        }
        if notes.is_empty() { name.clone() } else { format!("{name} ({notes})") }
    };
    properties.iter().map(one).collect::<Vec<_>>().join(", ")
}

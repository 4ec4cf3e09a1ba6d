//! Translates JSON schemas into Gemini's subset; the API refuses unknown keywords (G-10).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::schema::{SchemaResolver, object_root, required};

/// Keywords copied unchanged, by type.
const KEYWORDS: [(&str, &[&str]); 4] = [
    ("string", &["description"]),
    ("number", &["description", "minimum", "maximum"]),
    ("integer", &["description", "minimum", "maximum"]),
    ("array", &["description", "minItems", "maxItems"]),
];

/// Supported formats, by type.
const FORMATS: [(&str, &[&str]); 3] = [
    ("string", &["date-time"]),
    ("number", &["float", "double"]),
    ("integer", &["int32", "int64"]),
];

/// The parameters of a tool; `None` without any.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let root = object_root(schema);
    let mut cleaner = SchemaCleaner { resolver: SchemaResolver::new(schema) };
    let object = cleaner.object(&root, &[]);
    object.contains_key("properties").then_some(Value::Object(object))
}

struct SchemaCleaner<'a> {
    resolver: SchemaResolver<'a>,
}

impl SchemaCleaner<'_> {
    /// Translates a schema. `trail` holds the references that led to it.
    fn clean(&mut self, schema: &Value, trail: &[String]) -> Value {
        let mut trail = trail.to_vec();
        let mut node = self.resolver.resolve(schema, &mut trail);
        let branches = node.shift_remove("anyOf").or_else(|| node.shift_remove("oneOf"));
        let types = types(&node);
        let cleaned = match branches {
            // Alternatives that only vary `required`, beside the properties themselves.
            Some(Value::Array(branches)) if node.contains_key("properties") => {
                self.resolver.fold(&mut node, &branches);
                self.typed(&node, &types, &trail)
            }
            Some(Value::Array(branches)) => {
                let branches: Vec<_> =
                    branches.iter().map(|branch| inheriting(branch, &node)).collect();
                self.any_of(&branches, &node, &trail)
            }
            _ if types.iter().filter(|name| *name != "null").count() > 1 => {
                let alone = |name: &String| Value::Object(with(&node, "type", name.clone().into()));
                let branches: Vec<_> = types.iter().map(alone).collect();
                self.any_of(&branches, &Map::new(), &trail)
            }
            _ => self.typed(&node, &types, &trail),
        };
        Value::Object(cleaned)
    }

    /// Translates alternatives. A single one replaces the node, and `null` becomes `nullable`.
    fn any_of(
        &mut self,
        branches: &[Value],
        beside: &Map<String, Value>,
        trail: &[String],
    ) -> Map<String, Value> {
        let (nulls, others): (Vec<_>, Vec<_>) = branches.iter().partition(|branch| is_null(branch));
        let mut others: Vec<_> =
            others.into_iter().map(|branch| self.clean(branch, trail)).collect();
        let mut node = match others.pop() {
            Some(Value::Object(only)) if others.is_empty() => only,
            Some(last) => {
                others.push(last);
                Map::from_iter([("anyOf".to_owned(), others.into())])
            }
            None => self.typed(beside, &types(beside), trail),
        };
        if let Some(description) = beside.get("description").filter(|text| text.is_string()) {
            node.insert("description".into(), description.clone());
        }
        if !nulls.is_empty() {
            node.insert("nullable".into(), true.into());
        }
        node
    }

    /// Translates a schema of one type, possibly nullable.
    fn typed(
        &mut self,
        node: &Map<String, Value>,
        types: &[String],
        trail: &[String],
    ) -> Map<String, Value> {
        let named = types.iter().find(|name| *name != "null").map(String::as_str);
        let mut cleaned = match named.unwrap_or_else(|| guess(node)) {
            "object" => self.object(node, trail),
            "array" => self.array(node, trail),
            other => scalar(node, other),
        };
        if types.iter().any(|name| name == "null") || node.get("nullable") == Some(&json!(true)) {
            cleaned.insert("nullable".into(), true.into());
        }
        cleaned
    }

    /// Translates an object.
    fn object(&mut self, node: &Map<String, Value>, trail: &[String]) -> Map<String, Value> {
        let mut object = typed_node(node, "OBJECT", &["description"]);
        let own = node.get("properties").and_then(Value::as_object);
        let clean = |(name, schema): (&String, &Value)| (name.clone(), self.clean(schema, trail));
        let properties: Map<_, _> = own.into_iter().flatten().map(clean).collect();
        // The API refuses required names without a property, and an empty list.
        let names = required(node).into_iter().filter(|name| properties.contains_key(name));
        let names: Vec<_> = names.collect();
        if !properties.is_empty() {
            object.insert("properties".into(), properties.into());
        }
        if !names.is_empty() {
            object.insert("required".into(), names.into());
        }
        object
    }

    /// Translates an array; `items` is mandatory.
    fn array(&mut self, node: &Map<String, Value>, trail: &[String]) -> Map<String, Value> {
        let mut array = typed_node(node, "ARRAY", keywords("array"));
        let items = node.get("items").filter(|items| items.is_object());
        let items = items.map(|items| self.clean(items, trail));
        // `items` is mandatory.
        array.insert("items".into(), items.unwrap_or_else(|| json!({ "type": "STRING" })));
        array
    }
}

fn scalar(node: &Map<String, Value>, name: &str) -> Map<String, Value> {
    let known = ["string", "number", "integer", "boolean"].contains(&name);
    let name = if known { name } else { "string" };
    let mut scalar = typed_node(node, &name.to_uppercase(), keywords(name));
    let format = node.get("format").and_then(Value::as_str).unwrap_or_default();
    if FORMATS.iter().any(|(of, formats)| *of == name && formats.contains(&format)) {
        scalar.insert("format".into(), format.into());
    }
    let values = texts(node);
    // The API accepts `enum` only for strings.
    if name == "string" && !values.is_empty() {
        scalar.insert("enum".into(), values.into());
    }
    scalar
}

/// The allowed values: strings that are not empty.
fn texts(node: &Map<String, Value>) -> Vec<Value> {
    let listed = node.get("enum").and_then(Value::as_array).into_iter().flatten();
    let values = listed.chain(node.get("const"));
    let is_text = |value: &&Value| value.as_str().is_some_and(|text| !text.is_empty());
    values.filter(is_text).cloned().collect()
}

fn keywords(name: &str) -> &'static [&'static str] {
    let found = KEYWORDS.iter().find(|(of, _)| *of == name);
    found.map_or(&["description"], |(_, keywords)| keywords)
}

/// A node of a type with the keywords copied unchanged.
fn typed_node(node: &Map<String, Value>, name: &str, keywords: &[&str]) -> Map<String, Value> {
    let mut typed = Map::new();
    typed.insert("type".into(), name.into());
    for keyword in keywords {
        let value = node.get(*keyword).filter(|value| match *keyword {
            "description" => value.is_string(),
            _ => value.is_number(),
        });
        if let Some(value) = value {
            typed.insert((*keyword).to_owned(), value.clone());
        }
    }
    typed
}

fn types(node: &Map<String, Value>) -> Vec<String> {
    match node.get("type") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => {
            let names: BTreeSet<_> = names.iter().filter_map(Value::as_str).collect();
            names.into_iter().map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// The type of a schema without `type`.
fn guess(node: &Map<String, Value>) -> &'static str {
    if node.contains_key("properties") {
        "object"
    } else if node.contains_key("items") {
        "array"
    } else {
        "string"
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|name| name == "null")
        || schema.get("const") == Some(&Value::Null)
}

/// An alternative without a type has that of the schema around it.
fn inheriting(branch: &Value, node: &Map<String, Value>) -> Value {
    let says_what = ["type", "$ref", "allOf", "anyOf", "oneOf", "const", "properties"];
    match (branch, node.get("type")) {
        (Value::Object(branch), Some(name))
            if !says_what.iter().any(|key| branch.contains_key(*key)) =>
        {
            Value::Object(with(branch, "type", name.clone()))
        }
        _ => branch.clone(),
    }
}

fn with(node: &Map<String, Value>, key: &str, value: Value) -> Map<String, Value> {
    let mut node = node.clone();
    node.insert(key.to_owned(), value);
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(property: Value, expected: Value) {
        let schema = json!({
            "type": "object",
            "properties": { "it": property },
            "$defs": { "Node": {
                "type": "object",
                "properties": { "next": { "$ref": "#/$defs/Node" }, "name": { "type": "string" } },
            } },
        });
        let parameters = parameters(&schema).unwrap();
        assert_eq!(parameters["properties"]["it"], expected);
    }

    #[test]
    fn unknown_keywords_are_dropped() {
        check(
            json!({
                "type": "object",
                "properties": { "a": { "type": "string", "pattern": "x", "default": "" } },
                "additionalProperties": false,
                "propertyNames": {},
                "required": ["a", "b"],
            }),
            json!({ "type": "OBJECT", "properties": { "a": { "type": "STRING" } }, "required": ["a"] }),
        );
        check(
            json!({ "type": "string", "format": "uri", "description": "where" }),
            json!({ "type": "STRING", "description": "where" }),
        );
        check(
            json!({ "type": "integer", "format": "int64", "minimum": 1, "enum": [1, 2] }),
            json!({ "type": "INTEGER", "minimum": 1, "format": "int64" }),
        );
    }

    #[test]
    fn null_becomes_nullable() {
        check(json!({ "type": ["string", "null"] }), json!({ "type": "STRING", "nullable": true }));
        check(
            json!({ "anyOf": [{ "type": "object", "properties": { "a": {} } }, { "type": "null" }], "description": "d" }),
            json!({ "type": "OBJECT", "properties": { "a": { "type": "STRING" } }, "description": "d", "nullable": true }),
        );
    }

    #[test]
    fn alternatives_become_any_of() {
        check(
            json!({ "type": ["string", "integer"], "minimum": 1 }),
            json!({ "anyOf": [{ "type": "INTEGER", "minimum": 1 }, { "type": "STRING" }] }),
        );
        check(
            json!({ "oneOf": [{ "const": "a" }, { "type": "boolean" }] }),
            json!({ "anyOf": [{ "type": "STRING", "enum": ["a"] }, { "type": "BOOLEAN" }] }),
        );
    }

    #[test]
    fn alternatives_of_what_is_required_leave_the_object_whole() {
        check(
            json!({
                "type": "object",
                "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
                "anyOf": [{ "required": ["a"] }, { "required": ["b"] }],
            }),
            json!({
                "type": "OBJECT",
                "properties": { "a": { "type": "STRING" }, "b": { "type": "STRING" } },
            }),
        );
        check(
            json!({ "type": "integer", "anyOf": [{ "minimum": 1 }, { "maximum": -1 }] }),
            json!({ "anyOf": [{ "type": "INTEGER", "minimum": 1 }, { "type": "INTEGER", "maximum": -1 }] }),
        );
    }

    #[test]
    fn an_array_has_items() {
        check(
            json!({ "type": "array" }),
            json!({ "type": "ARRAY", "items": { "type": "STRING" } }),
        );
    }

    #[test]
    fn a_reference_to_itself_ends() {
        check(
            json!({ "$ref": "#/$defs/Node" }),
            json!({
                "type": "OBJECT",
                "properties": { "next": { "type": "STRING" }, "name": { "type": "STRING" } },
            }),
        );
    }

    #[test]
    fn a_tool_without_arguments_has_no_parameters() {
        assert_eq!(parameters(&json!({ "type": "object", "properties": {} })), None);
    }

    #[test]
    fn a_schema_that_refers_to_everything_stays_small() {
        let all: Vec<_> = (0..10).map(|n| json!({ "$ref": format!("#/$defs/{n}") })).collect();
        let def = json!({ "type": "object", "properties": { "a": { "anyOf": all } } });
        let defs: Map<_, _> = (0..10).map(|n| (n.to_string(), def.clone())).collect();
        let schema = json!({ "$ref": "#/$defs/0", "$defs": defs });
        assert!(parameters(&schema).unwrap().to_string().len() < 100_000);
    }
}

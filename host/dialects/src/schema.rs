//! Normalizes JSON schemas of tools to plain objects at their root.

use serde_json::{Map, Value, json};

/// Number of references followed per schema. A hostile schema could grow exponentially otherwise.
const REFERENCES_MAX: usize = 512;

/// A schema as a plain object with `type` and `properties`, without `$ref`, `anyOf`, `oneOf` and
/// `allOf`.
///
/// Alternatives become one object with the properties of all, which requires what all of them
/// require; the tool itself validates the rest. A schema of another type is wrapped as `input`, as
/// [`arguments_object`](crate::message::arguments_object) wraps such arguments.
pub(super) fn object_root(schema: &Value) -> Map<String, Value> {
    let mut resolver = SchemaResolver::new(schema);
    let mut root = resolver.resolve(schema, &mut Vec::new());
    if !may_be_object(&root) {
        return wrap_as_input(schema);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = root.shift_remove(key) {
            resolver.fold(&mut root, &branches);
        }
    }
    root.insert("type".into(), "object".into());
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".into(), json!({}));
    }
    root
}

/// Follows the references of one schema.
#[derive(Debug)]
pub(super) struct SchemaResolver<'a> {
    whole: &'a Value,
    references_left: usize,
}

impl<'a> SchemaResolver<'a> {
    /// A resolver for references into `whole`.
    pub(super) fn new(whole: &'a Value) -> SchemaResolver<'a> {
        SchemaResolver { whole, references_left: REFERENCES_MAX }
    }

    /// Resolves a node's reference and merges its `allOf`. `trail` holds the references that led
    /// here; none is followed inside itself.
    pub(super) fn resolve(&mut self, node: &Value, trail: &mut Vec<String>) -> Map<String, Value> {
        let mut node = node.as_object().cloned().unwrap_or_default();
        let path = node.shift_remove("$ref");
        let all = node.shift_remove("allOf");
        if let Some(target) = path.and_then(|path| self.follow(&path, trail)) {
            // Fields beside a reference win over those behind it.
            merge(&mut node, self.resolve(target, trail));
        }
        for part in all.iter().filter_map(Value::as_array).flatten() {
            merge(&mut node, self.resolve(part, trail));
        }
        node
    }

    /// Merges alternatives into one object, which requires only what all of them require.
    pub(super) fn fold(&mut self, object: &mut Map<String, Value>, branches: &[Value]) {
        let branches = branches.iter().map(|branch| self.resolve(branch, &mut Vec::new()));
        let branches: Vec<_> = branches.filter(may_be_object).collect();
        let mut common = branches.first().map(required).unwrap_or_default();
        for mut branch in branches {
            let names = required(&branch);
            common.retain(|name| names.contains(name));
            branch.shift_remove("required");
            // Nested alternatives would otherwise be merged into the root.
            for key in ["anyOf", "oneOf"] {
                branch.shift_remove(key);
            }
            merge(object, branch);
        }
        merge(object, Map::from_iter([("required".to_owned(), common.into())]));
    }

    fn follow(&mut self, path: &Value, trail: &mut Vec<String>) -> Option<&'a Value> {
        let path = path.as_str()?;
        self.references_left = self.references_left.checked_sub(1)?;
        if trail.iter().any(|earlier| earlier == path) {
            return None;
        }
        trail.push(path.to_owned());
        self.whole.pointer(path.strip_prefix('#')?)
    }
}

/// The required names of a schema.
pub(super) fn required(schema: &Map<String, Value>) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Adds the fields that a schema does not have.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(own)), Value::Object(more)) if key == "properties" => {
                more.into_iter().for_each(|(name, schema)| {
                    own.entry(name).or_insert(schema);
                });
            }
            (Some(Value::Array(own)), Value::Array(more)) if key == "required" => {
                more.into_iter().for_each(|name| {
                    if !own.contains(&name) {
                        own.push(name);
                    }
                });
            }
            (None, value) => {
                into.insert(key, value);
            }
            _ => {}
        }
    }
}

fn may_be_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        _ => true,
    }
}

fn wrap_as_input(schema: &Value) -> Map<String, Value> {
    let properties = Map::from_iter([("input".to_owned(), schema.clone())]);
    let mut root = Map::new();
    root.insert("type".into(), "object".into());
    root.insert("properties".into(), properties.into());
    root.insert("required".into(), json!(["input"]));
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, expected: Value) {
        assert_eq!(Value::Object(object_root(&schema)), expected);
    }

    #[test]
    fn a_plain_object_stays_as_it_is() {
        let schema = json!({
            "type": "object",
            "properties": { "path": { "anyOf": [{ "type": "string" }, { "type": "null" }] } },
            "required": ["path"],
        });
        check(schema.clone(), schema);
        check(json!({}), json!({ "type": "object", "properties": {} }));
        check(Value::Null, json!({ "type": "object", "properties": {} }));
    }

    #[test]
    fn alternatives_become_one_object_that_requires_what_all_require() {
        let schema = json!({
            "properties": { "path": { "type": "string" } },
            "required": ["path"],
            "oneOf": [
                { "properties": { "line": { "type": "integer" }, "mode": {} }, "required": ["line", "mode"] },
                { "properties": { "text": { "type": "string" }, "mode": {} }, "required": ["mode", "text"] },
                { "type": "null" },
            ],
        });
        check(
            schema,
            json!({
                "properties": {
                    "path": { "type": "string" },
                    "line": { "type": "integer" },
                    "mode": {},
                    "text": { "type": "string" },
                },
                "required": ["path", "mode"],
                "type": "object",
            }),
        );
    }

    #[test]
    fn references_and_all_of_are_merged() {
        let schema = json!({
            "$ref": "#/$defs/Arguments",
            "$defs": {
                "Arguments": { "allOf": [{ "$ref": "#/$defs/Path" }, { "properties": { "line": {} } }] },
                "Path": { "type": "object", "properties": { "path": {} }, "required": ["path"] },
            },
        });
        let root = object_root(&schema);
        assert_eq!(root.get("properties"), Some(&json!({ "path": {}, "line": {} })));
        assert_eq!(root.get("required"), Some(&json!(["path"])));
        assert!(!root.contains_key("$ref") && !root.contains_key("allOf"));
        assert!(root.contains_key("$defs"), "inner references still need it");
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        check(json!({ "$ref": "#" }), json!({ "type": "object", "properties": {} }));
        check(
            json!({ "allOf": [{ "$ref": "#" }, { "$ref": "#" }] }),
            json!({ "type": "object", "properties": {} }),
        );
    }

    #[test]
    fn what_is_no_object_is_wrapped() {
        check(
            json!({ "type": "string" }),
            json!({
                "type": "object",
                "properties": { "input": { "type": "string" } },
                "required": ["input"],
            }),
        );
    }
}

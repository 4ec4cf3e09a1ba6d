//! The registry: any failure of a call is returned as its result.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::stage::{Stage, context};
use crate::{CallContext, Tool, ToolError, ToolOutput, ToolRegistry, ToolSettings};

/// A tool whose behaviour depends on its name.
#[derive(Debug)]
struct Odd(&'static str);

impl Tool for Odd {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.0.into(),
            description: String::new(),
            input_schema: json!({
                "type": "object",
                "properties": { "text": { "type": "string" }, "count": { "type": ["integer", "null"] }, "any": {} },
                "required": ["text"],
                "additionalProperties": false,
            }),
        }
    }

    fn call<'a>(&'a self, arguments: &'a Value, _: &'a CallContext) -> BoxFuture<'a, ToolOutput> {
        match self.0 {
            "panics_at_once" => panic!("no {}", "way"),
            "panics" => Box::pin(async { panic!("late") }),
            "hangs" => Box::pin(std::future::pending()),
            "says_nothing" => Box::pin(async { ToolOutput::default() }),
            _ => Box::pin(async move { ToolOutput::text(arguments.to_string()) }),
        }
    }
}

async fn call(name: &'static str, arguments: Value) -> ToolOutput {
    let mut registry = ToolRegistry::empty(ToolSettings::default());
    assert!(registry.add(Arc::new(Odd(name))).unwrap());
    let context = CallContext { timeout: Duration::from_millis(50), ..context("/".as_ref()) };
    registry.call(name, &arguments, &context).await
}

#[tokio::test]
async fn a_panic_and_a_timeout_are_error_results() {
    let text = json!({"text": ""});
    for (name, words) in [
        ("panics_at_once", "`panics_at_once` panicked: no way;"),
        ("panics", "`panics` panicked: late;"),
        ("hangs", "`hangs` timed out after 50 ms"),
    ] {
        let output = call(name, text.clone()).await;
        assert!(output.is_error && output.joined_text().starts_with(words), "{output:?}");
    }
    assert_eq!(call("says_nothing", text).await, ToolOutput::text("(no output)"));
}

#[tokio::test]
async fn invalid_arguments_are_reported_with_the_expected_ones() {
    let takes = "expected text (string, required), count (integer or null), any";
    for (arguments, complaint) in [
        (json!({}), "`text` is missing"),
        (json!(null), "`text` is missing"),
        (json!({"text": null}), "`text` is missing"),
        (json!("text"), "expected a JSON object, not a string"),
        (json!({"text": 5}), "`text` must be string, not a number"),
        (json!({"text": "", "count": "5"}), "`count` must be integer or null, not a string"),
        (json!({"text": "", "count": 5.5}), "`count` must be integer or null, not a number"),
        (json!({"text": "", "txt": ""}), "unknown argument `txt`"),
    ] {
        let output = call("echo", arguments.clone()).await;
        let words = format!("invalid arguments for `echo`: {complaint}; {takes}");
        assert_eq!(output, ToolOutput::error(words), "{arguments}");
    }
}

#[tokio::test]
async fn valid_arguments_are_passed_unchanged() {
    let arguments = json!({"text": "a", "count": null, "any": [1, {"b": null}]});
    assert_eq!(call("echo", arguments.clone()).await, ToolOutput::text(arguments.to_string()));
}

#[tokio::test]
async fn nulls_are_omitted_and_whole_floats_are_integers() {
    let stage = Stage::new();
    stage.write("a.txt", "text");
    let arguments = json!({"path": "a.txt", "offset": null, "limit": 1.0});
    assert_eq!(stage.call_ok("read_file", arguments).await, "text");
    let text = stage.call_error("read_file", json!({"path": "a.txt", "offset": -1})).await;
    assert!(text.starts_with("invalid arguments for `read_file`: invalid value"), "{text}");
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_known_ones() {
    let stage = Stage::new();
    let text = stage.call_error("readfile", json!({})).await;
    assert_eq!(
        text,
        "unknown tool `readfile` (did you mean `read_file`?); tools: edit, grep, list, read_file, shell, write_file"
    );
    assert!(
        stage.call_error("fly", json!({})).await.starts_with("unknown tool `fly`; tools: edit,")
    );
}

#[test]
fn specs_are_sorted_and_their_schemas_complete() {
    let registry = ToolRegistry::with_builtins(ToolSettings::default());
    let specs = registry.specs();
    let names = specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["edit", "grep", "list", "read_file", "shell", "write_file"]);
    for spec in &specs {
        assert_eq!(spec.input_schema["type"], "object");
        assert!(!spec.description.is_empty());
        for name in spec.input_schema["required"].as_array().into_iter().flatten() {
            assert!(spec.input_schema["properties"][name.as_str().unwrap()].is_object());
        }
    }
    // They are sent with every request, so they must stay small.
    let bytes = serde_json::to_string(&specs).unwrap().len();
    assert!(bytes < 5_000, "{bytes}");
}

#[test]
fn names_are_valid_and_unique() {
    let mut registry = ToolRegistry::empty(ToolSettings::default());
    assert!(registry.add(Arc::new(Odd("one"))).unwrap());
    assert!(matches!(registry.add(Arc::new(Odd("one"))), Err(ToolError::NameTaken { .. })));
    for bad in [
        "",
        "two words",
        "a.b",
        "ä",
        "x123456789x123456789x123456789x123456789x123456789x123456789x1234",
    ] {
        assert!(
            matches!(registry.add(Arc::new(Odd(bad))), Err(ToolError::BadName { .. })),
            "{bad}"
        );
    }
}

#[test]
fn allow_and_deny_take_names_and_patterns() {
    let offered = |written: &str| {
        let settings = toml::from_str::<ToolSettings>(written).unwrap();
        ToolRegistry::with_builtins(settings)
            .names()
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(offered("deny = ['shell', '*_file']"), "edit grep list");
    assert_eq!(offered("allow = ['*_file']"), "read_file write_file");
    assert_eq!(offered("allow = ['{list,*_file}']\ndeny = ['w*']"), "list read_file");
    let error = toml::from_str::<ToolSettings>("deny = ['[a']").unwrap_err();
    assert!(error.to_string().contains("invalid name pattern `[a`"), "{error}");
    assert!(toml::from_str::<ToolSettings>("denny = []").is_err());
}

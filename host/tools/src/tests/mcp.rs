//! Servers whose messages the SDK itself would lose or not read, as shell scripts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::stage::context;
use crate::mcp::{McpTransport, SecretValues};
use crate::{McpServer, McpSettings, ToolOutput, ToolRegistry, ToolSettings};

const ECHO: &str = r#"{"name":"echo","inputSchema":{"type":"object"}}"#;

/// A server with these tools that then runs `calls`. The first call has the id 2.
fn server(tools: &str, calls: &str) -> McpSettings {
    let greeting = json!({"jsonrpc": "2.0", "id": 0, "result": {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "script", "version": "1"},
    }});
    let list = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{tools}]}}}}"#);
    let script = format!(
        "read -r _; echo '{greeting}'; read -r _; read -r _; echo '{list}'; {calls}; sleep 20"
    );
    let mut settings = McpSettings::new(McpTransport::Stdio {
        command: "sh".into(),
        args: vec!["-c".into(), script],
        env: SecretValues::default(),
        cwd: None,
    });
    settings.timeout_ms = 3_000;
    settings
}

async fn connected(settings: McpSettings) -> ToolRegistry {
    let mut registry = ToolRegistry::empty(ToolSettings::default());
    let errors = registry.connect(&BTreeMap::from([("fix".to_owned(), settings)])).await;
    assert!(errors.is_empty(), "{errors:?}");
    registry
}

async fn call(registry: &ToolRegistry) -> ToolOutput {
    registry.call("fix__echo", &json!({}), &context("/".as_ref())).await
}

fn response(id: u64, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

#[tokio::test]
async fn a_response_in_pieces_survives_the_requests_sent_meanwhile() {
    let (long, short) = (response(2, &"a".repeat(30_000)).to_string(), response(3, "b"));
    let (first, rest) = long.split_at(15_000);
    let calls = format!("read -r _; printf %s '{first}'; read -r _; echo '{rest}'; echo '{short}'");
    let registry = connected(server(ECHO, &calls)).await;
    let second = async {
        sleep(Duration::from_millis(300)).await;
        call(&registry).await
    };
    let (first, second) = tokio::join!(call(&registry), second);
    let first = first.joined_text();
    assert!(first == "a".repeat(30_000), "{} bytes: {}", first.len(), first.get(..99).unwrap());
    assert_eq!(second, ToolOutput::text("b"));
}

#[tokio::test]
async fn a_response_that_cannot_be_read_is_an_error_at_once_and_half_characters_are_replaced() {
    let lone = response(3, "cut ?").to_string().replace('?', "\\ud800");
    let broken = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[}}"#;
    let calls = format!("read -r _; printf '%s\\n' '{broken}'; read -r _; printf '%s\\n' '{lone}'");
    let registry = connected(server(ECHO, &calls)).await;
    let unreadable = call(&registry).await;
    let text = unreadable.joined_text();
    let expected = "MCP server `fix` sent an unreadable response: invalid JSON: ";
    assert!(unreadable.is_error && text.starts_with(expected), "{text}");
    assert_eq!(call(&registry).await, ToolOutput::text("cut \u{fffd}"));
}

#[tokio::test]
async fn a_tool_that_is_not_valid_leaves_the_others() {
    let tools = format!(
        r#"{ECHO},{{"name":"none"}},{{"name":"hint","inputSchema":{{}},"annotations":{{"readOnlyHint":"yes"}}}}"#
    );
    let server = McpServer::connect("fix", &server(&tools, "read -r _")).await.unwrap();
    let names = server.listed_tools().iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["echo", "hint"]);
    assert_eq!(server.list_faults(), ["tool `none`: `inputSchema` is missing, not an object"]);
}

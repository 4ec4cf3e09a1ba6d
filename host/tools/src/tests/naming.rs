//! The names of MCP tools, and the settings of MCP servers.

use ctxhost_dialects::tool_name::is_legal_tool_name;
use proptest::prelude::*;

use crate::McpSettings;
use crate::mcp::{McpTransport, SecretValues};
use crate::names::mcp_tool_name;

#[test]
fn valid_names_stay_and_changed_ones_end_in_a_hash() {
    let free = |_: &str| false;
    assert_eq!(mcp_tool_name("git", "log", free), "git__log");
    let bent = mcp_tool_name("my server", "a/b", free);
    assert!(bent.starts_with("my_server__a_b_") && bent.len() == 15 + 8, "{bent}");
    assert_ne!(bent, mcp_tool_name("my server", "a:b", free));
    assert_ne!(mcp_tool_name("git", "log", |name| name == "git__log"), "git__log");
    let long = "x".repeat(80);
    assert_ne!(
        mcp_tool_name("a", &format!("{long}1"), free),
        mcp_tool_name("a", &format!("{long}2"), free)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_name_is_valid_and_stable(server in ".{0,70}", tool in ".{0,70}") {
        let name = mcp_tool_name(&server, &tool, |_| false);
        prop_assert!(is_legal_tool_name(&name), "{}", name);
        prop_assert_eq!(name, mcp_tool_name(&server, &tool, |_| false));
    }
}

#[test]
fn a_server_has_a_command_or_a_url() {
    let read = |text: &str| toml::from_str::<McpSettings>(text);
    let settings =
        read("command = 'x'\nargs = ['a']\nenv = { A = '${HOME}' }\ntimeout_ms = 5").unwrap();
    let env = SecretValues::new([("A", "${HOME}")]);
    let wire = McpTransport::Stdio { command: "x".into(), args: vec!["a".into()], env, cwd: None };
    assert_eq!(settings, McpSettings { timeout_ms: 5, ..McpSettings::new(wire) });
    assert!(matches!(read("url = 'http://x'").unwrap().transport, McpTransport::Http { .. }));
    for (text, words) in [
        ("", "needs `command`"),
        ("command = 'x'\nurl = 'http://x'", "either `command` or `url`"),
        ("url = 'http://x'\nargs = ['a']", "require `command`"),
        ("command = 'x'\nheaders = { a = 'b' }", "requires `url`"),
        ("comand = 'x'", "unknown field `comand`"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn secret_values_are_never_shown() {
    let settings: McpSettings =
        toml::from_str("url = 'http://x'\nheaders = { Authorization = 'Bearer s3cret' }").unwrap();
    let shown = format!("{settings:?}");
    assert!(shown.contains("Authorization") && !shown.contains("s3cret"), "{shown}");
}

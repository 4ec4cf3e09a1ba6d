//! Tests of the tool and MCP tables.

use super::*;
use ctxhost_tools::mcp::McpTransport;

#[test]
fn folders_of_tools_are_taken_from_the_folder_of_the_file() {
    let text =
        "tools.roots = [\"shared\", \"/srv\"]\n[mcp.a]\ncommand = \"x\"\ncwd = \"servers\"\n";
    let config = Config::parse("/etc/ctx/ctxhost.toml", text).unwrap();
    assert_eq!(config.tools.roots, [PathBuf::from("/etc/ctx/shared"), PathBuf::from("/srv")]);
    let McpTransport::Stdio { cwd, .. } = &config.mcp["a"].transport else {
        panic!("{:?}", config.mcp)
    };
    assert_eq!(*cwd, Some(PathBuf::from("/etc/ctx/servers")));
}

#[test]
fn keys_of_servers_are_never_explained() {
    let config = parse(
        "[mcp.a]\nurl = \"http://x\"\nheaders = { Authorization = \"Bearer s3cret\" }\n\
         [mcp.b]\ncommand = \"x\"\n[mcp.b.env]\nHOME = \"s3cret ${USER}\"\n",
    );
    let rows = explain(&config);
    let value = |key: &str| rows.iter().find(|row| row.key == key).unwrap().value.as_str();
    assert_eq!(value("mcp.a.headers.Authorization"), "(not shown)");
    assert_eq!(value("mcp.b.env.HOME"), "(not shown)");
    assert!(rows.iter().all(|row| !row.value.contains("s3cret")));
}

#[test]
fn errors_in_tools_are_shown_at_their_line() {
    for (text, words) in [
        ("[tools]\ndeny = [\"[a\"]", "invalid name pattern `[a`"),
        ("[tools]\nconfine = 1", "tools.confine must be true or false"),
        ("[mcp.a]\nargs = []", "needs `command` to start it, or `url`"),
        ("[mcp.a]\ncommand = \"x\"\nurl = \"http://x\"", "either `command` or `url`"),
        ("[mcp.a]\ncomand = \"x\"", "unknown key `comand` in [mcp.a]"),
        ("[mcp.a]\ncommand = \"x\"\nenv = { A = 1 }", "mcp.a.env.A must be text"),
    ] {
        let error = Config::parse("ctxhost.toml", text).unwrap_err();
        let mut text_of_error = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            text_of_error.push_str(&source.to_string());
        }
        assert!(text_of_error.contains(words), "{text}: {text_of_error}");
    }
}

#[test]
fn variables_with_secrets_are_those_that_the_file_names() {
    let config = parse(
        "gateway.token_env = \"T\"\nstore.url_env = \"U\"\n\
         [providers.a]\ndialect = \"openai-completions\"\napi_key_env = \"MY_SECRET\"\n\
         [providers.b]\ndialect = \"anthropic-messages\"\n\
         [summariser]\nbase_url = \"http://x/v1\"\nmodel = \"m\"\napi_key_env = \"S\"\n\
         [embedder]\nurl = \"http://x/v1\"\nmodel = \"m\"\napi_key_env = \"E\"\n",
    );
    let names = config.secret_variables().collect::<Vec<_>>();
    assert_eq!(names, ["MY_SECRET", "ANTHROPIC_API_KEY", "S", "E", "U", "T"]);
}

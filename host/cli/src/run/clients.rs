//! Configures agents to use a gateway: through variables, arguments, or a note to the user.
//!
//! Only the address changes: keys, models and all settings stay the agent's own.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::other_upstreams::{
    AZURE, CLAUDE_BEDROCK, CLAUDE_VERTEX, OTHER_ANTHROPIC, OTHER_GEMINI, OTHER_OPENAI,
    other_upstreams,
};

/// The path that a client expects in its base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BasePath {
    /// None: the client appends `/v1/messages` or `/v1beta/models`.
    Root,
    /// `/v1`: the client appends `/chat/completions`.
    V1,
}

/// The variables that official SDKs and most agents read. Every child gets all of them, since an
/// agent may start another one.
const VARIABLES: &[(&str, BasePath)] = &[
    ("ANTHROPIC_BASE_URL", BasePath::Root),
    ("ANTHROPIC_API_BASE", BasePath::Root),
    ("OPENAI_BASE_URL", BasePath::V1),
    ("OPENAI_API_BASE", BasePath::V1),
    ("GOOGLE_GEMINI_BASE_URL", BasePath::Root),
    ("GEMINI_API_BASE", BasePath::Root),
];

/// The gateway's address, for scripts.
const ADDRESS: &str = "CTXHOST_URL";

/// The token, for agents that send it in a header: other users can read arguments, but not the
/// environment.
const TOKEN: &str = "CTXHOST_TOKEN";

/// Variables that list hosts to reach without a proxy; the gateway on the loopback is one.
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Agents that read their base URL from a file: program name, and the key in its file.
const CONFIG_FILE_CLIENTS: &[(&str, &str)] = &[
    ("openclaw", "models.providers.<name>.baseUrl in openclaw.json"),
    ("hermes", "model.base_url in its config.yaml"),
    ("pi", "baseUrl in models.json"),
    ("cline", "`cline auth --baseurl`"),
];

/// Clouds that Claude Code uses instead of Anthropic: the variable that selects one, and that of its address.
const CLAUDE_CLOUDS: &[(&str, &str)] =
    &[("CLAUDE_CODE_USE_VERTEX", CLAUDE_VERTEX), ("CLAUDE_CODE_USE_BEDROCK", CLAUDE_BEDROCK)];

/// Base URL and type of Copilot CLI's own provider.
const COPILOT_ADDRESS: &str = "COPILOT_PROVIDER_BASE_URL";
const COPILOT_KIND: &str = "COPILOT_PROVIDER_TYPE";

/// Claude Code assumes a window of 200,000 tokens behind any other address than Anthropic's, unless
/// this variable is set.
const CLAUDE_ASSUME_FIRST_PARTY: &str = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL";

/// A command with the settings it needs to reach the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientCommand {
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// Variables to add to its environment.
    pub(super) variables: Vec<(String, String)>,
    /// A note for the user.
    pub(super) note: Option<String>,
}

/// What to do if a command that ended well has sent nothing.
pub(super) fn note_unused(gateway: &GatewayAddress) -> String {
    format!(
        "the command sent nothing through the gateway; if it reads its base URL from settings of its own, set it to \
         {}/{} {STABLE_ADDRESS}",
        gateway.url,
        gateway.token.expose_secret()
    )
}

/// How the address that is written into a file stays valid.
const STABLE_ADDRESS: &str = "(--listen and your own CTXHOST_TOKEN keep this address stable)";

/// Address and token of a gateway.
#[derive(Clone, Debug)]
pub(super) struct GatewayAddress {
    /// Such as `http://127.0.0.1:40123`.
    pub(super) url: String,
    /// The token: the first segment of each path, or a header.
    pub(super) token: SecretString,
}

/// Configures a command to use `gateway`.
///
/// `env` is the environment that the command would get without us.
pub(super) fn configure_client(
    command: Vec<OsString>,
    gateway: &GatewayAddress,
    env: impl Fn(&str) -> Option<String>,
) -> ClientCommand {
    let token = gateway.token.expose_secret();
    let address = &format!("{}/{token}", gateway.url);
    let mut variables = vec![(ADDRESS.to_owned(), address.clone())];
    variables.push((TOKEN.to_owned(), token.to_owned()));
    variables
        .extend(VARIABLES.iter().map(|(name, base)| ((*name).to_owned(), base.append_to(address))));
    variables.extend([OTHER_ANTHROPIC, OTHER_OPENAI, OTHER_GEMINI].into_iter().flat_map(|table| {
        let (upstreams, _) = other_upstreams(table, &env);
        upstreams.into_iter().map(|it| (it.name.to_owned(), it.base.append_to(address)))
    }));
    if variables.iter().any(|(name, _)| name == AZURE) {
        // OpenAI's SDK for Node refuses to have both.
        variables.retain(|(name, _)| name != "OPENAI_BASE_URL");
    }
    let unproxied = NO_PROXY.iter().map(|name| ((*name).to_owned(), without_proxy(env(name))));
    // A company proxy cannot reach this machine's loopback, but many agents would send the requests
    // through it.
    variables.extend(unproxied);
    let program = program(&command);
    let mut client = ClientCommand { command, variables, note: None };
    // By program name, not path: agents are installed as shims in different places.
    match program.as_str() {
        "codex" => client.codex(&gateway.url, env("OPENAI_API_KEY").is_some()),
        "opencode" => client.opencode(address, env("OPENCODE_CONFIG_CONTENT")),
        "copilot" => client.copilot(address, copilot(env)),
        "claude" => client.claude(env),
        name => client.note_config_file(name, address),
    }
    client
}

/// The upstream addresses that an environment names; the gateway forwards to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientUpstreams {
    /// For the Anthropic dialect.
    pub(super) anthropic: Option<String>,
    /// For both OpenAI dialects.
    pub(super) openai: Option<String>,
    /// For Gemini.
    pub(super) gemini: Option<String>,
}

impl ClientUpstreams {
    /// Reads the upstreams from an environment, for a command.
    pub(super) fn of(
        command: &[OsString],
        env: impl Fn(&str) -> Option<String>,
    ) -> ClientUpstreams {
        // The name that SDKs document comes first. A blank variable counts as unset.
        let first = |names: &[&str]| names.iter().find_map(|name| non_blank(env(name)));
        let named = ClientUpstreams {
            anthropic: first(&["ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"])
                .or_else(|| other_upstreams(OTHER_ANTHROPIC, &env).1),
            openai: first(&["OPENAI_BASE_URL", "OPENAI_API_BASE"])
                .or_else(|| other_upstreams(OTHER_OPENAI, &env).1),
            gemini: first(&["GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"])
                .or_else(|| other_upstreams(OTHER_GEMINI, &env).1),
        };
        let is_copilot = program(command) == "copilot";
        match is_copilot.then(|| copilot(env)).flatten() {
            Some((CopilotProvider::Anthropic, address)) => {
                ClientUpstreams { anthropic: Some(address), ..named }
            }
            Some((CopilotProvider::OpenAi, address)) => {
                ClientUpstreams { openai: Some(address), ..named }
            }
            None => named,
        }
    }
}

/// The type of Copilot CLI's own provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopilotProvider {
    Anthropic,
    OpenAi,
}

/// Copilot CLI's own provider; `None` without one, or if the gateway does not speak its dialect.
fn copilot(env: impl Fn(&str) -> Option<String>) -> Option<(CopilotProvider, String)> {
    let kind = match non_blank(env(COPILOT_KIND)).as_deref() {
        None | Some("openai") => CopilotProvider::OpenAi,
        Some("anthropic") => CopilotProvider::Anthropic,
        // Azure and others have request paths that the gateway does not serve.
        Some(_) => return None,
    };
    Some((kind, non_blank(env(COPILOT_ADDRESS))?))
}

pub(super) fn non_blank(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty())
}

impl BasePath {
    pub(super) fn append_to(self, address: &str) -> String {
        match self {
            BasePath::Root => address.to_owned(),
            BasePath::V1 => format!("{address}/v1"),
        }
    }
}

impl ClientCommand {
    /// Codex reads no variable, but takes config lines as arguments. Its built-in provider ignores
    /// keys and headers from the environment, so it gets a provider that reads them: with the key
    /// if there is one, else with its login, under the name that the login requires.
    fn codex(&mut self, url: &str, has_key: bool) {
        let (name, key) = if has_key {
            ("ctxhost", "env_key = \"OPENAI_API_KEY\"")
        } else {
            ("OpenAI", "requires_openai_auth = true")
        };
        // The token goes into a header by variable name: arguments are visible to every user of the
        // machine.
        let provider = format!(
            "model_providers.ctxhost={{ name = \"{name}\", base_url = \"{url}/v1\", \
             wire_api = \"responses\", {key}, \
             env_http_headers = {{ \"x-ctxhost-token\" = \"{TOKEN}\" }} }}"
        );
        let lines = ["model_provider=\"ctxhost\"".to_owned(), provider];
        let arguments = lines.into_iter().flat_map(|line| ["-c".into(), line.into()]);
        // Before the user's own arguments: a subcommand such as `exec` must come after them, and
        // the user's `-c` values stay last.
        self.command.splice(1..1, arguments.collect::<Vec<OsString>>());
    }

    /// opencode reads a config from a variable; an existing value is merged.
    fn opencode(&mut self, address: &str, before: Option<String>) {
        let before = before.unwrap_or_else(|| "{}".into());
        // Parsed as JSON5: configs of opencode may have comments and trailing commas.
        let Ok(mut config @ Value::Object(_)) = json5::from_str::<Value>(&before) else {
            let words = "OPENCODE_CONFIG_CONTENT is not an object, so opencode is not configured";
            self.note =
                Some(format!("{words}; set provider.<name>.options.baseURL to {address}/v1"));
            return;
        };
        // opencode appends different paths per provider than the SDKs do, hence `/v1beta` for
        // Google.
        let addresses = [("anthropic", "/v1"), ("openai", "/v1"), ("google", "/v1beta")];
        for (name, path) in addresses {
            let url = json!(format!("{address}{path}"));
            merge(&mut config, json!({ "provider": { name: { "options": { "baseURL": url } } } }));
        }
        self.variables.push(("OPENCODE_CONFIG_CONTENT".into(), config.to_string()));
    }

    /// Copilot CLI uses GitHub's own models, which cannot go through a gateway, unless it has a
    /// provider of its own.
    fn copilot(&mut self, address: &str, provider: Option<(CopilotProvider, String)>) {
        let Some((kind, _)) = provider else {
            self.note = Some(format!(
                "copilot uses GitHub's own models, which bypass this gateway; set {COPILOT_ADDRESS} and \
                 {COPILOT_KIND} (openai or anthropic) to use your own provider through it"
            ));
            return;
        };
        let base = if kind == CopilotProvider::Anthropic { BasePath::Root } else { BasePath::V1 };
        self.variables.push((COPILOT_ADDRESS.to_owned(), base.append_to(address)));
    }

    /// The user decides whether to set the variable: only they know which upstream is behind the
    /// address.
    fn claude(&mut self, env: impl Fn(&str) -> Option<String>) {
        let is_set = |name: &str| non_blank(env(name)).is_some();
        let mut clouds = CLAUDE_CLOUDS.iter();
        if let Some((switch, address)) = clouds.find(|(switch, _)| is_set(switch)) {
            self.note = (!is_set(address)).then(|| {
                format!(
                    "with {switch} claude calls its cloud directly; set {address} to the cloud's address \
                     to use it through this gateway"
                )
            });
            return;
        }
        // With an own upstream in ANTHROPIC_BASE_URL the assumption was made before the gateway, so
        // there is nothing to restore.
        if env(CLAUDE_ASSUME_FIRST_PARTY).is_none()
            && non_blank(env("ANTHROPIC_BASE_URL")).is_none()
        {
            self.note = Some(format!(
                "behind a gateway claude assumes a window of 200,000 tokens; \
                 {CLAUDE_ASSUME_FIRST_PARTY}=1 restores its own (1M if your plan has it)"
            ));
        }
    }

    fn note_config_file(&mut self, name: &str, address: &str) {
        let known = CONFIG_FILE_CLIENTS.iter().find(|(program, _)| *program == name);
        self.note = known.map(|(program, place)| {
            format!(
                "{program} reads its base URL from a file: set {place} to {address} {STABLE_ADDRESS}"
            )
        });
    }
}

/// The program's name: the last path segment, without an extension.
fn program(command: &[OsString]) -> String {
    let path = command.first().map(Path::new);
    let name = path.and_then(Path::file_stem).and_then(OsStr::to_str);
    name.unwrap_or_default().to_owned()
}

/// A no-proxy list with the loopback added.
fn without_proxy(before: Option<String>) -> String {
    let before = before.filter(|hosts| !hosts.trim().is_empty());
    let hosts = before.into_iter().chain(["127.0.0.1,localhost,::1".to_owned()]);
    hosts.collect::<Vec<_>>().join(",")
}

/// Merges an object into another one, at every depth.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:40123";
    const ADDRESS: &str = "http://127.0.0.1:40123/secret";

    fn configured(command: &[&str], env: &[(&str, &str)]) -> ClientCommand {
        let find = |name: &str| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let gateway = GatewayAddress { url: URL.into(), token: "secret".into() };
        configure_client(command.iter().map(OsString::from).collect(), &gateway, find)
    }

    fn variable<'a>(client: &'a ClientCommand, name: &str) -> Option<&'a str> {
        client.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn every_child_gets_the_variables_of_the_sdks() {
        let client = configured(&["/usr/bin/aider", "-p", "hello"], &[]);
        assert_eq!(client.command, ["/usr/bin/aider", "-p", "hello"].map(OsString::from));
        assert_eq!(variable(&client, "ANTHROPIC_BASE_URL"), Some(ADDRESS));
        assert_eq!(variable(&client, "GOOGLE_GEMINI_BASE_URL"), Some(ADDRESS));
        assert_eq!(variable(&client, "OPENAI_BASE_URL"), Some("http://127.0.0.1:40123/secret/v1"));
        assert_eq!(variable(&client, "OPENAI_API_BASE"), Some("http://127.0.0.1:40123/secret/v1"));
        assert_eq!(client.note, None);
    }

    #[test]
    fn the_gateway_is_reached_without_the_users_proxy() {
        let client = configured(&["x"], &[("NO_PROXY", "intern.example"), ("no_proxy", "")]);
        assert_eq!(variable(&client, "NO_PROXY"), Some("intern.example,127.0.0.1,localhost,::1"));
        assert_eq!(variable(&client, "no_proxy"), Some("127.0.0.1,localhost,::1"));
    }

    #[test]
    fn codex_gets_a_provider_as_arguments_before_its_own() {
        let client = configured(&["codex", "exec", "hello"], &[("OPENAI_API_KEY", "k")]);
        let command: Vec<&str> = client.command.iter().map(|word| word.to_str().unwrap()).collect();
        let ["codex", "-c", "model_provider=\"ctxhost\"", "-c", provider, "exec", "hello"] =
            command[..]
        else {
            panic!("{command:?}")
        };
        // Codex reads the value as TOML.
        let read: toml::Table = toml::from_str(provider).unwrap();
        let provider = &read["model_providers"]["ctxhost"];
        assert_eq!(provider["base_url"].as_str(), Some("http://127.0.0.1:40123/v1"));
        assert_eq!(provider["env_key"].as_str(), Some("OPENAI_API_KEY"));
        assert_eq!(provider["env_http_headers"]["x-ctxhost-token"].as_str(), Some("CTXHOST_TOKEN"));
        assert_eq!(variable(&client, "CTXHOST_TOKEN"), Some("secret"));
    }

    #[test]
    fn codex_keeps_its_login_and_no_argument_shows_the_token() {
        for env in [&[][..], &[("OPENAI_API_KEY", "k")]] {
            let client = configured(&["codex"], env);
            let shown = client.command.iter().any(|word| word.to_str().unwrap().contains("secret"));
            assert!(!shown, "{:?}", client.command);
        }
        let client = configured(&["codex"], &[]);
        let read: toml::Table = toml::from_str(client.command[4].to_str().unwrap()).unwrap();
        let provider = &read["model_providers"]["ctxhost"];
        assert_eq!(provider["requires_openai_auth"].as_bool(), Some(true));
        assert_eq!(provider["base_url"].as_str(), Some("http://127.0.0.1:40123/v1"));
    }

    #[test]
    fn opencode_keeps_its_existing_config() {
        let before =
            r#"{"model": "openai/x", "provider": {"openai": {"options": {"apiKey": "k"}}}}"#;
        let client = configured(&["opencode"], &[("OPENCODE_CONFIG_CONTENT", before)]);
        let config: Value =
            serde_json::from_str(variable(&client, "OPENCODE_CONFIG_CONTENT").unwrap()).unwrap();
        assert_eq!(config["model"], "openai/x");
        let openai = &config["provider"]["openai"]["options"];
        assert_eq!(openai["apiKey"], "k");
        assert_eq!(openai["baseURL"], "http://127.0.0.1:40123/secret/v1");
        assert_eq!(
            config["provider"]["google"]["options"]["baseURL"],
            "http://127.0.0.1:40123/secret/v1beta"
        );
    }

    #[test]
    fn clients_with_a_config_file_get_a_note() {
        let client = configured(&["openclaw"], &[]);
        assert!(
            client
                .note
                .unwrap()
                .contains("baseUrl in openclaw.json to http://127.0.0.1:40123/secret ")
        );
    }

    #[test]
    fn addresses_in_the_environment_become_upstreams() {
        let env = |name: &str| match name {
            "OPENAI_API_BASE" => Some("http://ollama:11434/v1".to_owned()),
            "ANTHROPIC_BASE_URL" => Some(" ".to_owned()),
            _ => None,
        };
        let openai = Some("http://ollama:11434/v1".to_owned());
        assert_eq!(
            ClientUpstreams::of(&["x".into()], env),
            ClientUpstreams { openai, ..ClientUpstreams::default() }
        );
    }

    #[test]
    fn claude_gets_a_note_about_the_variable_that_restores_its_window() {
        let remark = |env: &[(&str, &str)]| configured(&["claude"], env).note;
        let words = remark(&[]).unwrap();
        assert!(words.contains("_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL=1 restores"), "{words}");
        assert_eq!(remark(&[("_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL", "0")]), None);
        assert_eq!(remark(&[("ANTHROPIC_BASE_URL", "http://vllm:8000")]), None);
    }

    #[test]
    fn claude_in_a_cloud_needs_the_address_of_the_cloud() {
        let vertex = ("CLAUDE_CODE_USE_VERTEX", "1");
        let note = configured(&["claude"], &[vertex]).note.unwrap();
        assert!(note.contains("set ANTHROPIC_VERTEX_BASE_URL"), "{note}");
        let address = ("ANTHROPIC_VERTEX_BASE_URL", "https://x/v1");
        let client = configured(&["claude"], &[vertex, address]);
        assert_eq!(client.note, None);
        let url = "http://127.0.0.1:40123/secret/v1";
        assert_eq!(variable(&client, "ANTHROPIC_VERTEX_BASE_URL"), Some(url));
    }

    #[test]
    fn copilot_reaches_its_own_provider_through_the_gateway() {
        let check = |kind: Option<&str>, expected_address: Option<&str>, named: ClientUpstreams| {
            let address = ("COPILOT_PROVIDER_BASE_URL", "http://ollama:11434");
            let kind = kind.map(|kind| ("COPILOT_PROVIDER_TYPE", kind));
            let env: Vec<_> = [address].into_iter().chain(kind).collect();
            let client = configured(&["copilot"], &env);
            assert_eq!(
                variable(&client, "COPILOT_PROVIDER_BASE_URL"),
                expected_address,
                "{kind:?}"
            );
            assert_eq!(client.note.is_some(), expected_address.is_none(), "{kind:?}");
            let find = |name: &str| {
                env.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned())
            };
            assert_eq!(ClientUpstreams::of(&["copilot".into()], find), named, "{kind:?}");
        };
        let asked = Some("http://ollama:11434".to_owned());
        let openai = ClientUpstreams { openai: asked.clone(), ..ClientUpstreams::default() };
        let v1 = Some("http://127.0.0.1:40123/secret/v1");
        check(None, v1, openai.clone());
        check(Some("openai"), v1, openai);
        check(
            Some("anthropic"),
            Some(ADDRESS),
            ClientUpstreams { anthropic: asked, ..ClientUpstreams::default() },
        );
        check(Some("azure"), None, ClientUpstreams::default());
        // Without its own provider it uses GitHub, and must continue to.
        let alone = configured(&["copilot"], &[]);
        assert_eq!(variable(&alone, "COPILOT_PROVIDER_BASE_URL"), None);
        assert!(alone.note.unwrap().contains("GitHub's own models"));
    }
}

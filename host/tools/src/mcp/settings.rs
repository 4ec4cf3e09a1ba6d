//! The settings `[mcp.<name>]`: how a server is started or reached.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ToolError;

/// `[mcp.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "WireMcpSettings", into = "WireMcpSettings")]
pub struct McpSettings {
    /// How the server is reached.
    pub transport: McpTransport,
    /// The timeout for the start and the handshake.
    pub connect_timeout_ms: u64,
    /// The timeout of a call without progress notifications.
    pub timeout_ms: u64,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransport {
    /// A child process, over stdin and stdout.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables beside the inherited ones.
        env: SecretValues,
        /// The working folder; the host's if `None`.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The URL.
        url: String,
        /// Headers of every request.
        headers: SecretValues,
    },
}

impl McpSettings {
    /// All settings of the table.
    pub const SETTINGS: &'static [ctxhost_engine_api::settings::Setting] =
        WireMcpSettings::SETTINGS;

    /// A server with the default timeouts.
    pub fn new(transport: McpTransport) -> McpSettings {
        let defaults = WireMcpSettings::default();
        McpSettings {
            transport,
            connect_timeout_ms: defaults.connect_timeout_ms,
            timeout_ms: defaults.timeout_ms,
        }
    }

    /// The variables that its values name and that are not set: the key of the value, and the variable.
    pub fn unset_variables(&self) -> Vec<(String, String)> {
        let (McpTransport::Stdio { env: values, .. } | McpTransport::Http { headers: values, .. }) =
            &self.transport;
        let unset =
            |(key, value): (&String, &String)| Some((key.clone(), expand_variables(value).err()?));
        values.0.iter().filter_map(unset).collect()
    }

    /// Resolves a relative working folder against this one.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> McpSettings {
        if let McpTransport::Stdio { cwd: Some(cwd), .. } = &mut self.transport {
            *cwd = folder.join(&*cwd);
        }
        self
    }
}

/// Names and values, in which `${NAME}` is replaced by an environment variable. `Debug` hides the values, which may
/// be secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SecretValues(BTreeMap<String, String>);

impl SecretValues {
    /// Creates them from pairs.
    pub fn new<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> SecretValues {
        SecretValues(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// The values with their variables replaced; `server` is for the error.
    pub(super) fn expand(&self, server: &str) -> Result<Vec<(String, String)>, ToolError> {
        let fill = |(key, value): (&String, &String)| {
            let filled = expand_variables(value).map_err(|variable| {
                ToolError::MissingVariable { server: server.to_owned(), key: key.clone(), variable }
            })?;
            Ok((key.clone(), filled))
        };
        self.0.iter().map(fill).collect()
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "(not shown)"))).finish()
    }
}

/// Replaces variables; the error is the name of one that is not set.
fn expand_variables(value: &str) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = value;
    while let Some((before, tail)) = rest.split_once("${") {
        // Without its brace `${` is ordinary text.
        let Some((name, after)) = tail.split_once('}') else { break };
        filled.push_str(before);
        filled.push_str(&std::env::var(name).map_err(|_| name.to_owned())?);
        // The inserted value is not searched: what looks like a variable in a key is part of the key.
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

ctxhost_engine_api::settings! {
    /// The table in the config file.
    #[derive(Clone, Deserialize, Serialize)]
    #[serde(default, deny_unknown_fields)]
    struct WireMcpSettings {
        /// The program of a server that is started and reached over stdin and stdout. Starting it runs its
        /// code.
        command: Option<String> = None, Text;
        /// Its arguments.
        args: Vec<String> = Vec::new(), List;
        /// Its environment variables beside PATH, HOME, language and the like; it inherits nothing
        /// else. `${NAME}` is replaced by a variable, so that no key is in the file.
        env: SecretValues = SecretValues::default(), Texts;
        /// Its working folder, relative to this file; ctxhost's if unset.
        cwd: Option<PathBuf> = None, Text;
        /// The URL of a server with streamable HTTP, instead of `command`.
        url: Option<String> = None, Url;
        /// Headers of every request to `url`; `${NAME}` is replaced by a variable, so that no key is in the
        /// file.
        headers: SecretValues = SecretValues::default(), Texts;
        /// Timeout for the start and the handshake; a first start may download the server. A server
        /// that does not respond is skipped with a warning.
        connect_timeout_ms: u64 = 30_000, Whole(1), "ms";
        /// Timeout of a call without progress notifications; with them `tools.timeout_ms` applies.
        timeout_ms: u64 = 120_000, Whole(1), "ms";
    }
}

/// Invalid settings of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpSettingsError {
    /// Neither a command nor a URL.
    #[error("an MCP server needs `command` to start it, or `url` to connect to it")]
    NoTransport,
    /// Both.
    #[error("an MCP server has either `command` or `url`; remove one of them")]
    TwoTransports,
    /// Process settings with a URL.
    #[error("`args`, `env` and `cwd` require `command`; with `url` use `headers`")]
    ProcessSettingsForUrl,
    /// HTTP settings with a command.
    #[error("`headers` requires `url`; with `command` use `env`")]
    HeadersForCommand,
}

impl TryFrom<WireMcpSettings> for McpSettings {
    type Error = McpSettingsError;

    fn try_from(wire: WireMcpSettings) -> Result<Self, McpSettingsError> {
        let WireMcpSettings {
            command,
            args,
            env,
            cwd,
            url,
            headers,
            connect_timeout_ms,
            timeout_ms,
        } = wire;
        let of_process = !args.is_empty() || env != SecretValues::default() || cwd.is_some();
        let transport = match (command, url) {
            (None, None) => return Err(McpSettingsError::NoTransport),
            (Some(_), Some(_)) => return Err(McpSettingsError::TwoTransports),
            (None, Some(_)) if of_process => return Err(McpSettingsError::ProcessSettingsForUrl),
            (None, Some(url)) => McpTransport::Http { url, headers },
            (Some(_), None) if headers != SecretValues::default() => {
                return Err(McpSettingsError::HeadersForCommand);
            }
            (Some(command), None) => McpTransport::Stdio { command, args, env, cwd },
        };
        Ok(McpSettings { transport, connect_timeout_ms, timeout_ms })
    }
}

impl From<McpSettings> for WireMcpSettings {
    fn from(settings: McpSettings) -> WireMcpSettings {
        let McpSettings { transport, connect_timeout_ms, timeout_ms } = settings;
        let timeouts =
            WireMcpSettings { connect_timeout_ms, timeout_ms, ..WireMcpSettings::default() };
        match transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                WireMcpSettings { command: Some(command), args, env, cwd, ..timeouts }
            }
            McpTransport::Http { url, headers } => {
                WireMcpSettings { url: Some(url), headers, ..timeouts }
            }
        }
    }
}

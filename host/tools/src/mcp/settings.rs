//! The table `[mcp.<name>]`: how a server is started or reached.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ToolError;

/// `[mcp.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct McpSettings {
    /// Where the server is.
    pub transport: McpTransport,
    /// How long starting it and shaking hands may take.
    pub connect_timeout_ms: u64,
    /// A call without a sign of progress.
    pub timeout_ms: u64,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransport {
    /// A child process that is spoken to over its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// What its environment holds beside the little that every server gets.
        env: SecretValues,
        /// The folder it runs in; that of the host where there is none.
        cwd: Option<PathBuf>,
    },
    /// A server that speaks streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// What is sent with every request.
        headers: SecretValues,
    },
}

impl McpSettings {
    /// Every setting of the table as it is written.
    pub const SETTINGS: &'static [ctxhost_engine_api::settings::Setting] = Written::SETTINGS;

    /// A server on a wire, with the usual times.
    pub fn new(wire: McpTransport) -> McpSettings {
        let usual = Written::default();
        McpSettings {
            transport: wire,
            connect_timeout_ms: usual.connect_timeout_ms,
            timeout_ms: usual.timeout_ms,
        }
    }

    /// The same, with a relative working folder taken from this one.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> McpSettings {
        if let McpTransport::Stdio { cwd: Some(cwd), .. } = &mut self.transport {
            *cwd = folder.join(&*cwd);
        }
        self
    }
}

/// Names and their values, in which `${NAME}` stands for a variable of the environment. They may be
/// secret, so that they are never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SecretValues(BTreeMap<String, String>);

impl SecretValues {
    /// These.
    pub fn new<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> SecretValues {
        SecretValues(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// Each with its variables replaced; `server` is for the error.
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

/// A value with its variables replaced, or the variable that is not set.
fn expand_variables(value: &str) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        filled.push_str(before);
        filled.push_str(&std::env::var(name).map_err(|_| name.to_owned())?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

ctxhost_engine_api::settings! {
    /// The table as it is written.
    #[derive(Clone, Deserialize, Serialize)]
    #[serde(default, deny_unknown_fields)]
    struct Written {
        /// The program of a server that is started and spoken to over its standard input and
        /// output. Starting it is running its code.
        command: Option<String> = None, Text;
        /// Its arguments.
        args: Vec<String> = Vec::new(), List;
        /// Its environment, beside PATH, HOME, language and the like: a server gets nothing else of
        /// ours. `${NAME}` stands for a variable, so that no key stands in a file.
        env: SecretValues = SecretValues::default(), Texts;
        /// The folder it runs in, relative to this file; unset, that of ctxhost.
        cwd: Option<PathBuf> = None, Text;
        /// The address of a server that speaks streamable HTTP, instead of `command`.
        url: Option<String> = None, Url;
        /// What is sent with every request to `url`; `${NAME}` stands for a variable, so that no
        /// key stands in a file.
        headers: SecretValues = SecretValues::default(), Texts;
        /// Starting a server and shaking hands; half a minute, since a first start may download it.
        /// One that does not answer is left out, and said to be.
        connect_timeout_ms: u64 = 30_000, Whole(1), "ms";
        /// One call without a sign of progress; with such signs `tools.timeout_ms` is the end.
        timeout_ms: u64 = 120_000, Whole(1), "ms";
    }
}

/// A table that names no server, or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpSettingsError {
    /// Neither a command nor an address.
    #[error("an MCP server needs `command`, to be started, or `url`, to be reached")]
    NoTransport,
    /// Both of them.
    #[error("an MCP server has either `command` or `url`; take one of them out")]
    TwoTransports,
    /// Settings that belong to a process, for an address.
    #[error("`args`, `env` and `cwd` belong to `command`; a server with `url` takes `headers`")]
    ProcessSettingsForUrl,
    /// Settings that belong to an address, for a process.
    #[error("`headers` belongs to `url`; a server with `command` takes `env`")]
    HeadersForCommand,
}

impl TryFrom<Written> for McpSettings {
    type Error = McpSettingsError;

    fn try_from(written: Written) -> Result<Self, McpSettingsError> {
        let Written { command, args, env, cwd, url, headers, connect_timeout_ms, timeout_ms } =
            written;
        let of_process = !args.is_empty() || env != SecretValues::default() || cwd.is_some();
        let wire = match (command, url) {
            (None, None) => return Err(McpSettingsError::NoTransport),
            (Some(_), Some(_)) => return Err(McpSettingsError::TwoTransports),
            (None, Some(_)) if of_process => return Err(McpSettingsError::ProcessSettingsForUrl),
            (None, Some(url)) => McpTransport::Http { url, headers },
            (Some(_), None) if headers != SecretValues::default() => {
                return Err(McpSettingsError::HeadersForCommand);
            }
            (Some(command), None) => McpTransport::Stdio { command, args, env, cwd },
        };
        Ok(McpSettings { transport: wire, connect_timeout_ms, timeout_ms })
    }
}

impl From<McpSettings> for Written {
    fn from(settings: McpSettings) -> Written {
        let McpSettings { transport: wire, connect_timeout_ms, timeout_ms } = settings;
        let times = Written { connect_timeout_ms, timeout_ms, ..Written::default() };
        match wire {
            McpTransport::Stdio { command, args, env, cwd } => {
                Written { command: Some(command), args, env, cwd, ..times }
            }
            McpTransport::Http { url, headers } => Written { url: Some(url), headers, ..times },
        }
    }
}

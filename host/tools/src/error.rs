//! Errors of tools. The model reads most of them, so each message says what to do next.

use std::io;
use std::path::PathBuf;

use super::output::ToolOutput;

/// An error of a tool.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A name that providers reject.
    #[error("invalid tool name `{name}`: providers accept 1 to 64 letters, digits, `_` and `-`")]
    BadName {
        /// The name.
        name: String,
    },
    /// A duplicate name.
    #[error("duplicate tool name `{name}`; rename one of the tools, or deny the name (tools.deny)")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A call of an unknown tool.
    #[error("unknown tool `{name}`{guess}; tools: {known}")]
    UnknownTool {
        /// The name.
        name: String,
        /// ` (did you mean ...)`, or nothing.
        guess: String,
        /// The available tools.
        known: String,
    },
    /// Arguments that do not match the schema.
    #[error("invalid arguments for `{tool}`: {complaint}; expected {takes}")]
    BadArguments {
        /// The tool.
        tool: String,
        /// What is wrong.
        complaint: String,
        /// The expected arguments.
        takes: String,
    },
    /// A tool panicked.
    #[error("`{tool}` panicked: {message}; this is a bug in the tool, so use another one")]
    Panicked {
        /// The tool.
        tool: String,
        /// The panic message.
        message: String,
    },
    /// A call timed out.
    #[error("`{tool}` timed out after {timeout_ms} ms; request less at a time")]
    TimedOut {
        /// The tool.
        tool: String,
        /// The timeout.
        timeout_ms: u128,
    },
    /// A call was cancelled before it had any effect.
    #[error("cancelled before it had any effect")]
    Cancelled,
    /// A missing file or folder.
    #[error("{path} does not exist; use `list` to see the folder")]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// A folder instead of a file.
    #[error("{path} is a folder; use `list` to see its files")]
    IsFolder {
        /// The path.
        path: PathBuf,
    },
    /// A device, pipe or socket.
    #[error("{path} is neither a file nor a folder; use `shell` to access it")]
    NoRegularFile {
        /// The path.
        path: PathBuf,
    },
    /// A binary file.
    #[error("{path} is a binary file of {size_bytes} bytes; use `shell` to inspect it")]
    Binary {
        /// The path.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// A file that is too large for the tool.
    #[error("{path} has {size_bytes} bytes, above the limit of {limit_bytes}; use `shell`")]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A file that turned out to be too large while it was read; some file systems, such as /proc, give no length.
    #[error("{path} has more than the limit of {limit_bytes} bytes; use `shell`")]
    LongerThanLimit {
        /// The path.
        path: PathBuf,
        /// The limit.
        limit_bytes: u64,
    },
    /// An offset after the last line.
    #[error("{path} has {lines} lines; line {offset} does not exist")]
    OffsetPastEnd {
        /// The path.
        path: PathBuf,
        /// Its number of lines.
        lines: u64,
        /// The offset.
        offset: u64,
    },
    /// A path outside the allowed folders.
    #[error("{path} is outside the allowed folders: {folders}")]
    OutsideRoots {
        /// The path, with links resolved.
        path: PathBuf,
        /// The allowed folders.
        folders: String,
    },
    /// An I/O error.
    #[error("cannot {doing} {path}: {cause}")]
    Io {
        /// The operation, such as `write`.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// An edit without old text.
    #[error("old_text is empty; give the text to replace, or use `write_file`")]
    EmptyOldText,
    /// An edit without a change.
    #[error("old_text and new_text are equal; nothing to edit")]
    SameText,
    /// The old text is not in the file.
    #[error("old_text is not in {path}{hint}; read the file again and copy the text exactly")]
    TextNotFound {
        /// The path.
        path: PathBuf,
        /// A similar line, or nothing.
        hint: String,
    },
    /// The old text is in the file several times.
    #[error(
        "old_text is in {path} {times} times, at lines {lines}; add surrounding text to make it unique"
    )]
    TextNotUnique {
        /// The path.
        path: PathBuf,
        /// The number of occurrences.
        times: usize,
        /// Their lines.
        lines: String,
    },
    /// An invalid regular expression or glob.
    #[error("{cause}")]
    BadPattern {
        /// The cause.
        cause: String,
    },
    /// The shell could not be started.
    #[error("cannot start a shell in {cwd}: {cause}")]
    ShellNotStarted {
        /// The working folder.
        cwd: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A server setting refers to an environment variable that is not set.
    #[error("MCP server `{server}`: environment variable {variable} of `{key}` is not set")]
    MissingVariable {
        /// The server.
        server: String,
        /// The entry of `env` or `headers`.
        key: String,
        /// The variable.
        variable: String,
    },
    /// Invalid settings of a server.
    #[error("MCP server `{server}`: {complaint}")]
    BadServer {
        /// The server.
        server: String,
        /// What is wrong.
        complaint: String,
    },
    /// A server is unreachable.
    #[error("MCP server `{server}` is unreachable: {cause}; check its settings and its log")]
    Unreachable {
        /// The server.
        server: String,
        /// The cause.
        cause: String,
    },
    /// A server ended during a call.
    #[error(
        "MCP server `{server}` disconnected before it responded ({cause}); the call may or may not have had effects, and the next call restarts the server"
    )]
    ServerDied {
        /// The server.
        server: String,
        /// The cause.
        cause: String,
    },
    /// A server responded with something that cannot be read.
    #[error(
        "MCP server `{server}` sent an unreadable response: {cause}; the call may or may not have had effects, so check before repeating it"
    )]
    UnreadableResponse {
        /// The server.
        server: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A server rejected a call.
    #[error("MCP server `{server}` rejected the call: {cause}")]
    Refused {
        /// The server.
        server: String,
        /// Its message.
        cause: String,
    },
}

impl ToolError {
    /// An I/O error; a missing file has its own variant.
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>, cause: io::Error) -> ToolError {
        let path = path.into();
        match cause.kind() {
            io::ErrorKind::NotFound => ToolError::NotFound { path },
            _ => ToolError::Io { doing, path, cause },
        }
    }
}

impl From<ToolError> for ToolOutput {
    fn from(error: ToolError) -> ToolOutput {
        ToolOutput::error(error.to_string())
    }
}

impl From<Result<ToolOutput, ToolError>> for ToolOutput {
    fn from(result: Result<ToolOutput, ToolError>) -> ToolOutput {
        result.unwrap_or_else(ToolOutput::from)
    }
}

//! What can go wrong with tools. Most of it is said to the model, so each message says what to do next.

use std::io;
use std::path::PathBuf;

use super::output::ToolOutput;

/// What can go wrong with tools.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A tool with a name that providers refuse.
    #[error(
        "a tool may not be called `{name}`; use 1 to 64 letters, digits, `_` and `-`, as providers ask"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// Two tools of one name.
    #[error("there is already a tool `{name}`; rename one of the two, or deny the name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A call of a tool that is not there.
    #[error("there is no tool `{name}`{guess}; tools: {known}")]
    UnknownTool {
        /// The name.
        name: String,
        /// ` (did you mean ...)`, or nothing.
        guess: String,
        /// The tools there are.
        known: String,
    },
    /// Arguments that do not fit the schema.
    #[error("bad arguments for `{tool}`: {complaint}; it takes {takes}")]
    BadArguments {
        /// The tool.
        tool: String,
        /// What is wrong.
        complaint: String,
        /// Its arguments.
        takes: String,
    },
    /// A tool panicked.
    #[error("`{tool}` broke down: {message}; this is a fault of the tool, so try another way")]
    Panicked {
        /// The tool.
        tool: String,
        /// Its last words.
        message: String,
    },
    /// A call took too long.
    #[error("`{tool}` was ended after {timeout_ms} ms; ask for less at once")]
    TimedOut {
        /// The tool.
        tool: String,
        /// How long it had.
        timeout_ms: u128,
    },
    /// A call was cancelled before it did anything.
    #[error("cancelled before anything was done")]
    Cancelled,
    /// A file or folder that is not there.
    #[error("{path} is not there; `list` shows what is")]
    NotFound {
        /// It.
        path: PathBuf,
    },
    /// A folder where a file is wanted.
    #[error("{path} is a folder; `list` shows what is in it")]
    IsFolder {
        /// It.
        path: PathBuf,
    },
    /// A device, a pipe, a socket.
    #[error("{path} is neither a file nor a folder; use `shell` if you must")]
    NoRegularFile {
        /// It.
        path: PathBuf,
    },
    /// A file that is no text.
    #[error("{path} is binary, {size_bytes} bytes; use `shell` to look into it")]
    Binary {
        /// It.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// A file too large for this tool.
    #[error("{path} has {size_bytes} bytes, and the limit here is {limit_bytes}; use `shell`")]
    TooLarge {
        /// It.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// What the tool takes.
        limit_bytes: u64,
    },
    /// An offset behind the end.
    #[error("{path} has {lines} lines, so there is no line {offset}")]
    OffsetPastEnd {
        /// The file.
        path: PathBuf,
        /// Its lines.
        lines: u64,
        /// The line asked for.
        offset: u64,
    },
    /// A path that confinement forbids.
    #[error("{path} is outside of the folders open to file tools: {folders}")]
    OutsideRoots {
        /// It, with links followed.
        path: PathBuf,
        /// The folders that are open.
        folders: String,
    },
    /// Reading or writing failed.
    #[error("could not {doing} {path}: {cause}")]
    Io {
        /// Such as `write`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// An edit of nothing.
    #[error("old_text is empty; give the text that is to be replaced, or use `write_file`")]
    EmptyOldText,
    /// An edit that leaves all as it is.
    #[error("old_text and new_text are the same, so there is nothing to edit")]
    SameText,
    /// Text that does not stand in the file.
    #[error("old_text is not in {path}{hint}; read the file again and copy it to the letter")]
    TextNotFound {
        /// The file.
        path: PathBuf,
        /// Where something alike stands, or nothing.
        hint: String,
    },
    /// Text that stands in several places.
    #[error(
        "old_text is in {path} {times} times, at lines {lines}; take more of the text around it, so that it is there once"
    )]
    TextNotUnique {
        /// The file.
        path: PathBuf,
        /// How often.
        times: usize,
        /// Where.
        lines: String,
    },
    /// A pattern that is no regular expression, or no glob.
    #[error("{cause}")]
    BadPattern {
        /// What is wrong with it.
        cause: String,
    },
    /// A command that could not be started.
    #[error("could not start a shell in {cwd}: {cause}")]
    ShellNotStarted {
        /// The folder.
        cwd: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A value of a server's settings that names an environment variable which is not set.
    #[error("MCP server `{server}`: the environment has no {variable}, which `{key}` asks for")]
    MissingVariable {
        /// The server.
        server: String,
        /// The entry of `env` or `headers`.
        key: String,
        /// The variable.
        variable: String,
    },
    /// Settings of a server that no connection can be made of.
    #[error("MCP server `{server}`: {complaint}")]
    BadServer {
        /// The server.
        server: String,
        /// What is wrong.
        complaint: String,
    },
    /// A server that cannot be reached.
    #[error("MCP server `{server}` does not answer: {cause}; check its settings and its log")]
    Unreachable {
        /// The server.
        server: String,
        /// Why.
        cause: String,
    },
    /// A server that went away in the middle of a call.
    #[error(
        "MCP server `{server}` went away before it answered ({cause}); nobody knows whether the call was carried out, and the next call starts the server again"
    )]
    ServerDied {
        /// The server.
        server: String,
        /// What was seen of it.
        cause: String,
    },
    /// A server that refused a call.
    #[error("MCP server `{server}` refused the call: {cause}")]
    Refused {
        /// The server.
        server: String,
        /// Its words.
        cause: String,
    },
}

impl ToolError {
    /// An error of reading or writing; what is not there has a kind of its own.
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

//! Errors of commands: a message, hints, an exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use ctxhost_agent::canary::CanaryError;
use ctxhost_agent::engine_registry::EngineRegistryError;
use ctxhost_agent::installation::InstallationError;
use ctxhost_agent::originals::OriginalError;
use ctxhost_agent::{BuildError, TurnError};
use ctxhost_blobs::BlobError;
use ctxhost_config::ConfigError;
use ctxhost_context::ContextError;
use ctxhost_dialects::FailureReason;
use ctxhost_engine::{EngineOpenError, LoadError, SandboxError, SlotError};
use ctxhost_history::HistoryError;
use ctxhost_import::{ImportError, ImportOpenError};
use ctxhost_models::failover::FailoverError;
use ctxhost_session::SessionError;
use ctxhost_store as store;
use ctxhost_trust::{LockError, PackageError};

use super::output::Output;
use super::render::format::format_count;
use super::session_file::session_error;
use ctxhost_platform::terminal::terminal_width;

/// Width of diagnostics that no terminal shows: few messages are longer, and a search finds them.
const DIAGNOSTIC_WIDTH: u16 = 200;

/// What has to change before the command succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CliErrorKind {
    /// Wrong arguments, config or input.
    User,
    /// The machine or the program failed.
    Internal,
    /// The library is not an engine for this host.
    Library,
    /// The engine must not be loaded: its bytes are not trusted, or it is in quarantine.
    Untrusted,
}

/// The error of a command.
#[derive(Debug)]
pub(super) struct CliError {
    kind: CliErrorKind,
    message: String,
    /// Lines after the message.
    hints: Vec<String>,
}

impl CliError {
    /// Wrong input: exit code 2.
    pub(super) fn user(message: impl Into<String>) -> Self {
        CliError { kind: CliErrorKind::User, message: message.into(), hints: Vec::new() }
    }

    /// A failure of the program or the machine: exit code 1.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        CliError { kind: CliErrorKind::Internal, message: message.into(), hints: Vec::new() }
    }

    /// A library that cannot be loaded: exit code 3.
    pub(super) fn library(message: impl Into<String>) -> Self {
        CliError { kind: CliErrorKind::Library, message: message.into(), hints: Vec::new() }
    }

    /// An engine that must not be loaded: exit code 4.
    pub(super) fn untrusted(message: impl Into<String>) -> Self {
        CliError { kind: CliErrorKind::Untrusted, message: message.into(), hints: Vec::new() }
    }

    /// A folder of sessions that exists and cannot be read: exit code 1.
    pub(super) fn unlisted(error: SessionError) -> Self {
        CliError::internal(error.to_string())
    }

    /// An error of a session that is not a recording of another agent.
    pub(super) fn of_session(error: SessionError) -> Self {
        match &error {
            SessionError::Io { source, .. } if is_failed_disk(source) => {
                CliError::internal(error.to_string()).hint(disk_hint(source))
            }
            _ => CliError::user(error.to_string()),
        }
    }

    /// Whether an engine must not be loaded.
    pub(super) fn is_untrusted(&self) -> bool {
        self.kind == CliErrorKind::Untrusted
    }

    /// Adds a line with details or the next step.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds a second error; the exit code stays that of the first.
    pub(super) fn with(self, other: CliError) -> Self {
        self.hint(other.to_string())
    }

    /// The message without hints.
    pub(super) fn into_message(self) -> String {
        self.message
    }

    /// Prints the error and returns the exit code.
    pub(super) fn report(self, output: &mut Output) -> ExitCode {
        // Standard error even for expected failures: a script reads standard output only.
        output.note(&self.to_string());
        match self.kind {
            CliErrorKind::User => ExitCode::from(2),
            CliErrorKind::Internal => ExitCode::from(1),
            CliErrorKind::Library => ExitCode::from(3),
            CliErrorKind::Untrusted => ExitCode::from(4),
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        // An unwritable file is a problem of the machine, not of the config: exit code 1, without a
        // diagnostic.
        if let ConfigError::Unwritable { cause, .. } = &error {
            return CliError::internal(format!("{error}: {cause}"));
        }
        // The diagnostic shows the line of the file.
        let handler =
            // Without colours: `note` would replace their escape codes.
            miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
                .with_width(terminal_width(std::io::stderr()).unwrap_or(DIAGNOSTIC_WIDTH).into());
        let mut shown = String::new();
        match handler.render_report(&mut shown, &error) {
            Ok(()) => {
                // miette begins each further error with a line of its own.
                let lines: Vec<&str> =
                    shown.lines().filter(|line| line.trim_end() != "Error:").collect();
                CliError::user(invalid_config(&error)).hint(lines.join("\n").trim_end())
            }
            Err(_) => CliError::user(error.to_string()),
        }
    }
}

fn invalid_config(error: &ConfigError) -> String {
    let others = match error {
        ConfigError::Invalid(first) => first.others().len(),
        ConfigError::Unreadable { .. } | ConfigError::Unwritable { .. } => 0,
    };
    match others {
        0 => "invalid config".to_owned(),
        others => format!("invalid config, {}", format_count(others as u64 + 1, "error")),
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error: {}", self.message)?;
        self.hints.iter().try_for_each(|hint| write!(f, "\n{hint}"))
    }
}

// Errors are taken apart down to the one that decides the exit code; a generic conversion would
// make all of them code 1.
impl From<BuildError> for CliError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Registry(error) => error.into(),
            BuildError::Slot(SlotError::Open(error)) => error.into(),
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<TurnError> for CliError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Context(error) => error.into(),
            TurnError::Session(error) => error.into(),
            TurnError::History(error) => error.into(),
            TurnError::Models(error) => {
                let hint = fallback_hint(&error);
                let error = CliError::internal(error.to_string());
                match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
            TurnError::NoModel | TurnError::NoSession { .. } => CliError::user(error.to_string()),
            other => CliError::internal(other.to_string()),
        }
    }
}

/// The setting for another model, where the only one may be unavailable for a while.
fn fallback_hint(error: &FailoverError) -> Option<&'static str> {
    let [attempt] = error.attempts.as_slice() else { return None };
    let is_temporary = matches!(
        attempt.reason,
        FailureReason::RateLimit
            | FailureReason::Overloaded
            | FailureReason::ServerError
            | FailureReason::Timeout
    );
    is_temporary.then_some("further models are listed in agent.fallbacks of ctxhost.toml")
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        CliError::internal(error.to_string())
    }
}

impl From<SessionError> for CliError {
    fn from(error: SessionError) -> Self {
        let file = match &error {
            SessionError::Header { name, .. } => PathBuf::from(name),
            SessionError::Io { path, .. } => path.clone(),
            _ => return CliError::of_session(error),
        };
        session_error(&file, &file, error)
    }
}

/// What to do about a disk on which nothing can be written.
pub(super) fn disk_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::FileTooLarge => "raise the limit for the size of a file (`ulimit -f`)",
        _ => "free space on its disk, or make it writable",
    }
}

/// Whether the machine cannot write, whatever the command names.
pub(super) fn is_failed_disk(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::FileTooLarge
            | ErrorKind::ReadOnlyFilesystem
    )
}

impl From<HistoryError> for CliError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Session(error) => error.into(),
            HistoryError::Unwritable { .. } => CliError::internal(error.to_string()),
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<store::StoreOpenError> for CliError {
    fn from(error: store::StoreOpenError) -> Self {
        match error {
            store::StoreOpenError::Unreachable { .. } | store::StoreOpenError::Thread { .. } => {
                CliError::internal(error.to_string())
            }
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<ImportOpenError> for CliError {
    fn from(error: ImportOpenError) -> Self {
        let is_unknown =
            matches!(error, ImportOpenError::Recording { source: ImportError::Unknown { .. }, .. });
        let error = CliError::user(error.to_string());
        if !is_unknown {
            return error;
        }
        error.hint("`ctxhost doctor` finds the sessions of the agents on this machine")
    }
}

impl From<CanaryError> for CliError {
    fn from(error: CanaryError) -> Self {
        match error {
            CanaryError::Disk { .. } => CliError::internal(error.to_string()),
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<OriginalError> for CliError {
    fn from(error: OriginalError) -> Self {
        match error {
            OriginalError::Media(error) => error.into(),
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<BlobError> for CliError {
    fn from(error: BlobError) -> Self {
        CliError::internal(error.to_string())
    }
}

impl From<EngineRegistryError> for CliError {
    fn from(error: EngineRegistryError) -> Self {
        CliError::user(error.to_string())
    }
}

impl From<EngineOpenError> for CliError {
    fn from(error: EngineOpenError) -> Self {
        match error {
            EngineOpenError::HashMismatch { .. }
            | EngineOpenError::Untrusted { .. }
            | EngineOpenError::Quarantined { .. } => CliError::untrusted(error.to_string()),
            EngineOpenError::Load(error) => error.into(),
            // A sandbox reports the errors of its loader as text.
            EngineOpenError::Sandbox { id, source: SandboxError::Refused { reason } } => {
                let message = format!("engine {id:?} is not loaded; its sandbox reports: {reason}");
                CliError::library(message)
            }
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<LoadError> for CliError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::HashMismatch { .. }
            | LoadError::WorldWritable { .. }
            | LoadError::WorldWritableFolder { .. } => CliError::untrusted(error.to_string()),
            LoadError::Unreadable { .. }
            | LoadError::NotInstalled { .. }
            | LoadError::NotAFile { .. } => CliError::user(error.to_string()),
            LoadError::NoCopy { .. } => CliError::internal(error.to_string()),
            foreign => CliError::library(foreign.to_string()),
        }
    }
}

impl From<PackageError> for CliError {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Load(error) => error.into(),
            PackageError::Signature(error) => CliError::untrusted(error.to_string()),
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<InstallationError> for CliError {
    fn from(error: InstallationError) -> Self {
        match error {
            InstallationError::Config(error) => error.into(),
            InstallationError::Load(error) => error.into(),
            InstallationError::Folder(_)
            | InstallationError::Lock(LockError::Unwritable { .. }) => {
                CliError::internal(error.to_string())
            }
            other => CliError::user(other.to_string()),
        }
    }
}

impl From<ContextError> for CliError {
    fn from(error: ContextError) -> Self {
        match error {
            ContextError::Slot(SlotError::Open(error)) => error.into(),
            ContextError::Session(error) => error.into(),
            ContextError::CompactionRequired { .. } => CliError::user(error.to_string()),
            ContextError::CannotFit(error) => CliError::user(error.to_string())
                .hint("replay against a larger window with --window"),
            ContextError::Slot(SlotError::Answer { error }) => CliError::user(error.to_string()),
            ContextError::Slot(error) => CliError::internal(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_models::ModelName;
    use ctxhost_models::failover::ModelAttempt;

    #[test]
    fn a_file_above_a_limit_is_not_a_full_disk() {
        let shown = |kind: std::io::ErrorKind| {
            let path = "/s.jsonl".into();
            CliError::from(SessionError::Io { action: "append to", path, source: kind.into() })
                .to_string()
        };
        assert!(shown(std::io::ErrorKind::FileTooLarge).ends_with("(`ulimit -f`)"));
        assert!(shown(std::io::ErrorKind::StorageFull).contains("free space on its disk"));
    }

    #[test]
    fn the_setting_for_another_model_is_named_if_the_only_one_is_overloaded() {
        let attempt = |reason| ModelAttempt {
            model: ModelName::new("p", "m"),
            reason,
            message: String::new(),
            cooldown_ms: None,
        };
        let shown =
            |attempts| CliError::from(TurnError::Models(FailoverError { attempts })).to_string();
        let overloaded = attempt(FailureReason::Overloaded);
        assert!(shown(vec![overloaded.clone()]).contains("agent.fallbacks"));
        assert!(!shown(vec![overloaded.clone(), overloaded]).contains("agent.fallbacks"));
        assert!(!shown(vec![attempt(FailureReason::Auth)]).contains("agent.fallbacks"));
    }
}

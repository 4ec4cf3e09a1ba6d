//! What went wrong, for people: a sentence, a hint, an exit code.

use std::process::ExitCode;

use ctxhost_config::ConfigError;
use ctxhost_context::ContextError;
use ctxhost_engine::{LoadError, OpenError, SlotError, WorkerError};
use ctxhost_history::HistoryError;
use ctxhost_media::MediaError;
use ctxhost_runtime::canary::CanaryError;
use ctxhost_runtime::installation::InstallationError;
use ctxhost_runtime::originals::FetchError;
use ctxhost_runtime::roster::RosterError;
use ctxhost_runtime::{BuildError, TurnError};
use ctxhost_session::SessionError;
use ctxhost_session::recording;
use ctxhost_store as store;
use ctxhost_trust::{LockError, PackageError};

use super::output::Output;

/// Whose turn it is to do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// The arguments, the config or the input are wrong.
    Caller,
    /// The machine or the program failed.
    Inside,
    /// The library that was named is no engine for this host.
    Library,
    /// An engine is there and must not be loaded: nobody vouches for its bytes, or it is in
    /// quarantine.
    Distrust,
}

/// A command that did not succeed.
#[derive(Debug)]
pub(super) struct Failure {
    blame: Blame,
    message: String,
    /// Lines after the message.
    hints: Vec<String>,
}

impl Failure {
    /// The caller's input is wrong: exit code 2.
    pub(super) fn caller(message: impl Into<String>) -> Self {
        Failure { blame: Blame::Caller, message: message.into(), hints: Vec::new() }
    }

    /// The program or the machine failed: exit code 1.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Failure { blame: Blame::Inside, message: message.into(), hints: Vec::new() }
    }

    /// The library cannot be loaded here: exit code 3.
    pub(super) fn library(message: impl Into<String>) -> Self {
        Failure { blame: Blame::Library, message: message.into(), hints: Vec::new() }
    }

    /// An engine must not be loaded: exit code 4.
    pub(super) fn distrust(message: impl Into<String>) -> Self {
        Failure { blame: Blame::Distrust, message: message.into(), hints: Vec::new() }
    }

    /// Whether an engine must not be loaded.
    pub(super) fn is_distrust(&self) -> bool {
        self.blame == Blame::Distrust
    }

    /// Adds a line that says what else is known or what to do.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Two things went wrong; the exit code is that of the first.
    pub(super) fn and(self, other: Failure) -> Self {
        self.hint(other.to_string())
    }

    /// What went wrong, without the hints.
    pub(super) fn into_message(self) -> String {
        self.message
    }

    /// Tells the person and answers the exit code.
    pub(super) fn report(self, output: &mut Output) -> ExitCode {
        output.remark(&self.to_string());
        match self.blame {
            Blame::Caller => ExitCode::from(2),
            Blame::Inside => ExitCode::from(1),
            Blame::Library => ExitCode::from(3),
            Blame::Distrust => ExitCode::from(4),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        if let ConfigError::Unwritable { cause, .. } = &error {
            return Failure::internal(format!("{error}: {cause}"));
        }
        // The diagnostic shows the line itself, with the place marked.
        let handler =
            miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor());
        let mut shown = String::new();
        match handler.render_report(&mut shown, &error) {
            Ok(()) => Failure::caller("the config is not usable").hint(shown.trim_end()),
            Err(_) => Failure::caller(error.to_string()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error: {}", self.message)?;
        self.hints.iter().try_for_each(|hint| write!(f, "\n{hint}"))
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Roster(error) => error.into(),
            BuildError::Slot(SlotError::Open(error)) => error.into(),
            other => Failure::caller(other.to_string()),
        }
    }
}

impl From<TurnError> for Failure {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Context(error) => error.into(),
            TurnError::Session(error) => error.into(),
            TurnError::History(error) => error.into(),
            TurnError::NoModel | TurnError::NoSession { .. } => Failure::caller(error.to_string()),
            other => Failure::internal(other.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::internal(error.to_string())
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Failure::caller(error.to_string())
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Session(error) => error.into(),
            HistoryError::Unwritable { .. } => Failure::internal(error.to_string()),
            asked => Failure::caller(asked.to_string()),
        }
    }
}

impl From<store::OpenError> for Failure {
    fn from(error: store::OpenError) -> Self {
        match error {
            store::OpenError::Unreachable { .. } | store::OpenError::Thread { .. } => {
                Failure::internal(error.to_string())
            }
            other => Failure::caller(other.to_string()),
        }
    }
}

impl From<recording::OpenError> for Failure {
    fn from(error: recording::OpenError) -> Self {
        Failure::caller(error.to_string())
    }
}

impl From<CanaryError> for Failure {
    fn from(error: CanaryError) -> Self {
        match error {
            CanaryError::Disk { .. } => Failure::internal(error.to_string()),
            asked => Failure::caller(asked.to_string()),
        }
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Media(error) => error.into(),
            asked => Failure::caller(asked.to_string()),
        }
    }
}

impl From<MediaError> for Failure {
    fn from(error: MediaError) -> Self {
        Failure::internal(error.to_string())
    }
}

impl From<RosterError> for Failure {
    fn from(error: RosterError) -> Self {
        Failure::caller(error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Changed { .. } | OpenError::Distrusted { .. } | OpenError::Held { .. } => {
                Failure::distrust(error.to_string())
            }
            OpenError::Load(error) => error.into(),
            // The worker says the same of a file as the loader here would.
            OpenError::Worker { source: WorkerError::Refused { reason }, .. } => {
                Failure::library(reason)
            }
            other => Failure::caller(other.to_string()),
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::HashMismatch { .. }
            | LoadError::WorldWritable { .. }
            | LoadError::WorldWritableFolder { .. } => Failure::distrust(error.to_string()),
            LoadError::Unreadable { .. } | LoadError::NotAFile { .. } => {
                Failure::caller(error.to_string())
            }
            LoadError::NoCopy { .. } => Failure::internal(error.to_string()),
            foreign => Failure::library(foreign.to_string()),
        }
    }
}

impl From<PackageError> for Failure {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Load(error) => error.into(),
            PackageError::Signature(error) => Failure::distrust(error.to_string()),
            asked => Failure::caller(asked.to_string()),
        }
    }
}

impl From<InstallationError> for Failure {
    fn from(error: InstallationError) -> Self {
        match error {
            InstallationError::Config(error) => error.into(),
            InstallationError::Load(error) => error.into(),
            InstallationError::Folder(_)
            | InstallationError::Lock(LockError::Unwritable { .. }) => {
                Failure::internal(error.to_string())
            }
            asked => Failure::caller(asked.to_string()),
        }
    }
}

impl From<ContextError> for Failure {
    fn from(error: ContextError) -> Self {
        match error {
            ContextError::Slot(SlotError::Open(error)) => error.into(),
            ContextError::Session(error) => error.into(),
            ContextError::CompactionOwed { .. } => Failure::caller(error.to_string()),
            ContextError::CannotFit(error) => Failure::caller(error.to_string())
                .hint("replay against a larger window with --window"),
            ContextError::Slot(SlotError::Answer { error }) => Failure::caller(error.to_string()),
            ContextError::Slot(error) => Failure::internal(error.to_string()),
        }
    }
}

//! Why an engine does not open, why a slot has no answer, and what happens when an engine fails.

use std::path::PathBuf;

use ctxhost_engine_api::{EngineError, ErrorKind, capability};
use serde::{Deserialize, Serialize};

use super::chain_spec::ChainSpecError;
use super::library::LoadError;
use super::quarantine::failure_log::FailureRecord;
use super::sandbox::error::SandboxError;

/// What the host does when the configured engine fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnEngineError {
    /// Quarantine it, serve with the bundled engine and report why.
    #[default]
    Fallback,
    /// Fail the request.
    Fail,
}

/// Why an engine does not open.
#[derive(Debug, thiserror::Error)]
pub enum EngineOpenError {
    /// No engine of this name is bundled.
    #[error("no bundled engine is called {id:?}")]
    NotBundled {
        /// The name.
        id: String,
    },
    /// The file cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The file contains another engine.
    #[error(
        "{} holds engine {found:?}, but the config calls it {configured:?}; an engine has one id everywhere: write [plugins.entries.{found}] and, in the slot, {found:?}",
        path.display()
    )]
    OtherId {
        /// The file.
        path: PathBuf,
        /// The id in the config.
        configured: String,
        /// The id in the file.
        found: String,
    },
    /// The file does not have the pinned bytes.
    #[error("{name}: {reason}")]
    HashMismatch {
        /// The engine, or its file.
        name: String,
        /// Both digests, the source of the pin, and what to do.
        reason: String,
    },
    /// The trust policy refuses the file.
    #[error("engine {name:?} is not loaded: {reason}")]
    Untrusted {
        /// The engine, or its file.
        name: String,
        /// Why, and what would change it.
        reason: String,
    },
    /// The engine failed before, possibly in another process.
    #[error("engine {id:?} is in quarantine: {}; `ctxhost engines release {id}` lets it serve again", record.summary())]
    Quarantined {
        /// The engine.
        id: String,
        /// Its failures.
        record: Box<FailureRecord>,
    },
    /// The engine requires capabilities that this host does not have.
    #[error("engine {id:?} requires {}, which this host does not offer{}", missing.join(", "), sources(missing))]
    MissingCapabilities {
        /// The engine.
        id: String,
        /// The capabilities.
        missing: Vec<String>,
    },
    /// `create` failed.
    #[error("engine {id:?} could not be created: {}", creation_failure(id, error))]
    Create {
        /// The engine.
        id: String,
        /// Its error.
        error: Box<EngineError>,
    },
    /// The system started no threads.
    #[error("no threads for engine {id:?}: {source}")]
    Threads {
        /// The engine.
        id: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The sandbox did not start.
    #[error("no sandbox for engine {id:?}: {source}")]
    Sandbox {
        /// The engine.
        id: String,
        /// Why.
        source: SandboxError,
    },
    /// A linked engine cannot run in a sandbox, which loads a file.
    #[error(
        "engine {id:?} is linked in; isolation = \"process\" is for engines that come from a file"
    )]
    NotALibrary {
        /// The engine.
        id: String,
    },
}

/// Why the slot has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The configured engine does not open and `on_engine_error` is `fail`, or the bundled engine
    /// does not open.
    #[error(transparent)]
    Open(#[from] EngineOpenError),
    /// An engine failed and `on_engine_error` is `fail`, or the bundled engine failed.
    #[error("engine {id:?} failed in {operation}: {error}")]
    Engine {
        /// The engine.
        id: String,
        /// The call.
        operation: &'static str,
        /// Its error.
        error: Box<EngineError>,
    },
    /// The plan violates an invariant, and the caller asked for [`OnRefusal::Report`](super::OnRefusal).
    #[error("the plan of {id:?} violates an invariant: {reason}")]
    Refused {
        /// The engine.
        id: String,
        /// The violation.
        reason: String,
    },
    /// The slot names engines that do not form a chain.
    #[error("a chain of engines {0}")]
    Chain(#[from] ChainSpecError),
    /// An answer that the caller has to handle: the window is too small, the pinned entries do not
    /// fit, the call was cancelled.
    #[error("{error}")]
    Answer {
        /// The engine's answer.
        error: Box<EngineError>,
    },
}

impl SlotError {
    /// An engine failed.
    pub fn from_engine(id: &str, operation: &'static str, error: EngineError) -> Self {
        SlotError::Engine { id: id.into(), operation, error: Box::new(error) }
    }

    /// An engine answered an error that the caller has to handle.
    pub fn from_answer(error: EngineError) -> Self {
        SlotError::Answer { error: Box::new(error) }
    }

    /// The engine's error; any other error as an [`EngineError`] with its message.
    pub fn into_engine_error(self) -> EngineError {
        match self {
            SlotError::Engine { error, .. } | SlotError::Answer { error } => *error,
            other => EngineError::failed(other.to_string()),
        }
    }
}

/// The error of an engine's `create`, with the setting that it rejects.
fn creation_failure(id: &str, error: &EngineError) -> String {
    // By convention engines put the rejected key into the error's detail.
    match error.detail.get("key").and_then(serde_json::Value::as_str) {
        None => error.to_string(),
        Some("") => format!("it rejects [plugins.entries.{id}.config]: {error}"),
        Some(key) => {
            format!("it rejects its setting `{key}` in [plugins.entries.{id}.config]: {error}")
        }
    }
}

/// What in the config makes the host offer missing capabilities.
fn sources(missing: &[String]) -> String {
    let source = |name: &String| match name.as_str() {
        capability::COMPLETE => Some("a model in [summariser]"),
        capability::EMBED => Some("a model in [embedder]"),
        capability::HISTORY | capability::PROMPT_CACHE => Some("a host that runs sessions"),
        _ => None,
    };
    missing
        .iter()
        .map(|name| match source(name) {
            Some(source) => format!("; {name} comes with {source}"),
            None => format!("; no setting of this version adds {name}"),
        })
        .collect()
}

/// Whether the caller has to handle an error, which is not the engine's fault.
pub(super) fn is_caller_error(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WindowTooSmall | ErrorKind::CannotFit | ErrorKind::Cancelled)
}

/// Whether a call whose error goes to the caller (a compaction, the start of a sub-agent) failed by the
/// engine's fault. A model without an answer and a call that the engine does not offer do not count.
pub(super) fn is_engine_fault(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Failed
            | ErrorKind::Panicked
            | ErrorKind::Deadline
            | ErrorKind::Protocol
            | ErrorKind::Dead
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_setting_is_named_with_its_table() {
        let create = |error| EngineOpenError::Create { id: "keep".into(), error: Box::new(error) };
        let text = create(EngineError::config("room.share", "not a whole number")).to_string();
        assert!(
            text.contains("`room.share` in [plugins.entries.keep.config]: ")
                && text.contains("not a whole number"),
            "{text}"
        );
        let text = create(EngineError::failed("no disk")).to_string();
        assert!(text.ends_with("could not be created: no disk"), "{text}");
    }

    #[test]
    fn a_missing_capability_is_named_with_what_offers_it() {
        let missing = [capability::COMPLETE, "telepathy"].map(str::to_owned).to_vec();
        let text = EngineOpenError::MissingCapabilities { id: "keep".into(), missing }.to_string();
        assert!(text.contains("model.complete comes with a model in [summariser]"), "{text}");
        assert!(text.contains("no setting of this version adds telepathy"), "{text}");
    }
}

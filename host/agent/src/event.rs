//! The events of a runtime. The command line and the gateway render the same events.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{ContextMode, SubagentEnd};
use serde_json::Value;

use ctxhost_context::{CompactionOutcome, Prompt};
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::{FailureReason, ProviderError};
use ctxhost_provider::RetryWait;

/// An event of a session, or of the runtime if the session id is empty.
#[derive(Clone, Debug)]
pub struct RuntimeEvent {
    pub session: Arc<str>,
    pub kind: EventKind,
}

/// What an event reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// A turn failed before its message was in the session; a later turn delivers it.
    MessageQueued,
    /// A turn started; its message is in the session.
    TurnStarted,
    /// A prompt was prepared.
    Assembled {
        /// The engine that shaped it.
        engine: String,
        /// Why the configured engine did not shape it.
        fallback: Option<String>,
        /// Its size, in estimated tokens.
        tokens: u64,
        /// Its budget, in estimated tokens.
        budget_tokens: u64,
        /// The model, as `provider/id`.
        model: String,
        /// The size of the live transcript, in estimated tokens.
        live_tokens: u64,
        /// Plans that the invariants rejected.
        rejected_plans: u64,
        /// Time inside engines, without compactions.
        took: Duration,
    },
    /// The session file was deleted, renamed or replaced, and was recreated with its full content.
    SessionFileRecreated { path: PathBuf },
    /// The session file is missing and cannot be recreated yet.
    SessionFileMissing {
        path: PathBuf,
        /// The reason, as a sentence.
        why: String,
    },
    /// A part of the answer's text.
    Text(String),
    /// A part of the model's thinking.
    Thinking(String),
    /// The answer is complete and in the session.
    Answered {
        /// The usage that the provider reports.
        usage: TokenUsage,
    },
    /// An answer ended before its end: cut off at the output limit, ended by the provider, or interrupted.
    AnswerIncomplete {
        /// How it ended, and what to do next.
        why: String,
    },
    /// The provider asked for a pause, or failed; the request is repeated after it.
    Waiting {
        /// The model, as `provider/id`.
        model: String,
        wait: RetryWait,
    },
    /// A tool call starts.
    ToolCalled { call_id: String, tool: String, arguments: Value },
    /// A tool call has ended.
    ToolEnded {
        call_id: String,
        tool: String,
        is_error: bool,
        /// The length of its text result.
        chars: usize,
    },
    /// A compaction was applied, rejected or not tried.
    Compaction(Arc<CompactionOutcome>),
    /// A compaction is due, and `compaction.timing` leaves it to the user.
    CompactionRecommended,
    /// A compaction was precomputed.
    Precomputed {
        /// The engine that made it.
        engine: String,
        /// The entries that it covers.
        entries: u64,
    },
    /// A precomputed compaction was cancelled or discarded.
    PrecomputeDropped { why: String },
    /// The model wrote notes before a compaction.
    NotesSaved {
        /// Their length; 0 if the model had nothing to note.
        chars: usize,
        /// The usage of the request.
        usage: TokenUsage,
    },
    /// Notes could not be saved before a compaction; it proceeds without them.
    NotesFailed {
        why: String,
        /// Whether this session stops requesting notes.
        is_last: bool,
    },
    /// A request failed and is retried, possibly changed.
    Recovering {
        reason: FailureReason,
        /// The recovery, as a fragment.
        action: String,
        /// The provider's error message.
        provider_message: String,
    },
    /// Failover to another model.
    ModelChanged {
        /// The new model, as `provider/id`.
        model: String,
        why: String,
    },
    /// The provider accepted a request and silently truncated it.
    SilentTruncation {
        /// The evidence, and what to do.
        message: String,
    },
    /// A sub-agent was started. Its own events carry its own session id.
    SubagentSpawned {
        /// The session of the sub-agent.
        child: String,
        task: String,
        /// What it sees of its parent's conversation.
        context: ContextMode,
    },
    /// A sub-agent ended.
    SubagentEnded {
        /// The session of the sub-agent.
        child: String,
        end: SubagentEnd,
        /// Why it gave no answer.
        failure: Option<String>,
    },
    /// Another engine is current, from each session's next turn on.
    EngineChanged {
        engine: String,
        /// The engine that served before.
        previous: String,
        /// The number of engines that the runtime has opened, including this one.
        generation: u64,
    },
    /// A new engine failed its trial, and its predecessor serves again.
    EngineRolledBack {
        /// The engine that failed.
        engine: String,
        /// The engine that serves.
        serving: String,
        why: String,
    },
    /// A change of the watched config was rejected.
    ReloadRejected {
        why: String,
        /// The engine that keeps serving.
        serving: String,
    },
    /// Many engine libraries were loaded; libraries are never unloaded.
    RestartAdvised {
        libraries: u64,
        /// The total size of their files, in MiB.
        mib: u64,
    },
    /// A canary serves a share of new sessions.
    CanaryStarted {
        engine: String,
        /// The share, as in the config.
        share: String,
    },
    /// The canary was promoted, rolled back, or broke a guard.
    CanaryEnded { engine: String, why: String },
    /// The turn ended with an answer.
    TurnEnded,
    /// The turn ended without an answer.
    TurnFailed { message: String },
}

impl EventKind {
    pub(super) fn from_prompt(prompt: &Prompt, budget_tokens: u64, model: String) -> EventKind {
        // Compactions have events of their own.
        let compacting: Duration = prompt.compactions.iter().map(|outcome| outcome.took).sum();
        EventKind::Assembled {
            engine: prompt.engine.clone(),
            fallback: prompt.fallback.clone(),
            tokens: prompt.checked.tokens,
            budget_tokens,
            model,
            live_tokens: prompt.view.total_tokens(),
            rejected_plans: prompt.rejected_plans,
            took: prompt.took.saturating_sub(compacting),
        }
    }

    pub(super) fn recovering(error: &ProviderError, action: impl Into<String>) -> EventKind {
        EventKind::Recovering {
            reason: error.reason,
            action: action.into(),
            provider_message: error.message.clone(),
        }
    }
}

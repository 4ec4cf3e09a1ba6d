//! What happens in a runtime, as it happens: every face shows the same events in its own way.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{ContextMode, SubagentEnd};
use serde_json::Value;

use ctxhost_context::{CompactionOutcome, Prompt};
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::{FailureReason, ProviderError};

/// Something that happened in a session.
#[derive(Clone, Debug)]
pub struct RuntimeEvent {
    /// The session's id.
    pub session: Arc<str>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// A turn began: its user message is in the session.
    TurnStarted,
    /// A request was shaped.
    Assembled {
        /// The engine that shaped it.
        engine: String,
        /// Why it was not the configured one.
        fallback: Option<String>,
        /// What it needs, as entries count, without margin.
        tokens: u64,
        /// What it may take.
        budget_tokens: u64,
        /// The model it is for, as `provider/id`.
        model: String,
        /// What the live conversation takes, of which it was made, as entries count.
        live_tokens: u64,
        /// Plans that the law refused on the way.
        rejected_plans: u64,
        /// Time inside engines, for this request alone: that of compactions stands with them.
        took: Duration,
    },
    /// The file of the session was deleted, renamed or replaced while it is open, and was made again with all
    /// that it held.
    SessionFileRecreated {
        /// The file.
        path: PathBuf,
    },
    /// The same, and it cannot be made again yet.
    SessionFileMissing {
        /// The file.
        path: PathBuf,
        /// Why, as a sentence.
        why: String,
    },
    /// More of the answer.
    Text(String),
    /// More of the model's thinking.
    Thinking(String),
    /// The answer is whole and in the session.
    Answered {
        /// What the provider counted.
        usage: TokenUsage,
    },
    /// A tool is called.
    ToolCalled {
        /// The call's id.
        call_id: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A tool answered.
    ToolEnded {
        /// The call's id.
        call_id: String,
        /// The tool.
        tool: String,
        /// Whether it failed.
        is_error: bool,
        /// The length of its text.
        chars: usize,
    },
    /// A compaction was applied, rejected or not tried.
    Compaction(Arc<CompactionOutcome>),
    /// A compaction would help, and the timing leaves it to the person.
    CompactionRecommended,
    /// A compaction was worked out ahead and waits until it is needed.
    Precomputed {
        /// The engine that made it.
        engine: String,
        /// The entries that it was made of.
        entries: u64,
    },
    /// A compaction ahead was given up, or thrown away.
    PrecomputeDropped {
        /// Why.
        why: String,
    },
    /// The model was asked for notes before a compaction, and the memory keeps them.
    NotesSaved {
        /// Their length; 0 where there was nothing worth it.
        chars: usize,
        /// What asking cost.
        usage: TokenUsage,
    },
    /// No notes were saved before a compaction, which goes on without.
    NotesFailed {
        /// Why.
        why: String,
        /// Whether this session asks for none any more.
        is_last: bool,
    },
    /// A request got no answer and is tried again, otherwise or elsewhere.
    Recovering {
        /// Why it got none.
        reason: FailureReason,
        /// What is done about it.
        action: String,
        /// What the provider said, in its own words.
        provider_message: String,
    },
    /// Another model answers from here on.
    ModelChanged {
        /// It, as `provider/id`.
        model: String,
        /// Why.
        why: String,
    },
    /// The provider took the request and did not read all of it.
    SilentTruncation {
        /// What was seen and what to do.
        message: String,
    },
    /// A sub-agent was started. What happens to it is told under its own session.
    SubagentSpawned {
        /// The session of the sub-agent.
        child: String,
        /// What it was asked to do.
        task: String,
        /// What it sees of its parent.
        context: ContextMode,
    },
    /// A sub-agent ended.
    SubagentEnded {
        /// The session of the sub-agent.
        child: String,
        /// How.
        end: SubagentEnd,
        /// Why it gave no answer, where it gave none by itself.
        failure: Option<String>,
    },
    /// Another engine fills the slot, from each session's next turn on.
    EngineChanged {
        /// It.
        engine: String,
        /// The engine that served before.
        previous: String,
        /// How many engines the runtime has opened, this one among them.
        generation: u64,
    },
    /// An engine that was just put into the slot failed, and the one before it serves again.
    EngineRolledBack {
        /// The engine that failed.
        engine: String,
        /// The engine that serves.
        serving: String,
        /// What the other one did.
        why: String,
    },
    /// The config that is followed changed, and the change is not taken in.
    ReloadRejected {
        /// What is wrong with it.
        why: String,
        /// The engine that goes on.
        serving: String,
    },
    /// Many libraries were loaded, and none is ever unloaded.
    RestartAdvised {
        /// How many.
        libraries: u64,
        /// The sizes of their files together, in MiB.
        mib: u64,
    },
    /// Another engine serves a share of new sessions.
    CanaryStarted {
        /// It.
        engine: String,
        /// The share, as a person writes it.
        share: String,
    },
    /// It does so no more: it was promoted, rolled back, or broke a guard.
    CanaryEnded {
        /// It.
        engine: String,
        /// Why.
        why: String,
    },
    /// The turn ended well.
    TurnEnded,
    /// The turn ended without a final answer.
    TurnFailed {
        /// Why, for a person.
        message: String,
    },
}

impl EventKind {
    /// A request was shaped for a model, named as `provider/id`, that may take so much.
    pub(super) fn from_prompt(shaped: &Prompt, budget_tokens: u64, model: String) -> EventKind {
        let compacting: Duration = shaped.compactions.iter().map(|outcome| outcome.took).sum();
        EventKind::Assembled {
            engine: shaped.engine.clone(),
            fallback: shaped.fallback.clone(),
            tokens: shaped.checked.tokens,
            budget_tokens,
            model,
            live_tokens: shaped.view.total_tokens(),
            rejected_plans: shaped.rejected_plans,
            took: shaped.took.saturating_sub(compacting),
        }
    }

    /// A request failed and something is done about it.
    pub(super) fn recovering(error: &ProviderError, action: impl Into<String>) -> EventKind {
        EventKind::Recovering {
            reason: error.reason,
            action: action.into(),
            provider_message: error.message.clone(),
        }
    }
}

//! A call of an engine as a value: what is asked and what is answered, wherever the engine is.

use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::*;
use serde::{Deserialize, Serialize};

/// What an engine is asked. One for each method of the contract.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Question {
    Bootstrap(BootstrapRequest),
    Ingest(IngestRequest),
    Assemble(AssembleRequest),
    Compact(CompactRequest),
    AfterTurn(AfterTurnRequest),
    CommitTurn(CommitTurnRequest),
    Maintain(MaintainRequest),
    PrepareSpawn(SubagentSpawnRequest),
    RollbackSpawn(SubagentRollbackRequest),
    SubagentEnded(SubagentEndedRequest),
    Tools(SessionRef),
    CallTool(ToolCallRequest),
    Status,
    Dispose,
}

impl Question {
    /// The session whose transcript comes with the question; `None` where none does.
    pub(super) fn session(&self) -> Option<&SessionRef> {
        match self {
            Question::Bootstrap(request) => Some(&request.session),
            Question::Ingest(request) => Some(&request.session),
            Question::Assemble(request) => Some(&request.session),
            Question::Compact(request) => Some(&request.session),
            Question::AfterTurn(request) => Some(&request.session),
            Question::CommitTurn(request) => Some(&request.session),
            Question::Maintain(request) => Some(&request.session),
            Question::PrepareSpawn(request) => Some(&request.parent),
            Question::CallTool(request) => Some(&request.session),
            Question::RollbackSpawn(_)
            | Question::SubagentEnded(_)
            | Question::Tools(_)
            | Question::Status
            | Question::Dispose => None,
        }
    }

    /// Whether it may be asked again when nobody knows what became of the first time: it changes
    /// nothing, or the contract says that a repeat is harmless.
    pub(super) fn may_be_repeated(&self) -> bool {
        match self {
            Question::Bootstrap(_)
            | Question::Ingest(_)
            | Question::Assemble(_)
            | Question::CommitTurn(_)
            | Question::Tools(_)
            | Question::Status => true,
            // These may have cost money, or done half of something.
            Question::Compact(_)
            | Question::AfterTurn(_)
            | Question::Maintain(_)
            | Question::PrepareSpawn(_)
            | Question::RollbackSpawn(_)
            | Question::SubagentEnded(_)
            | Question::CallTool(_)
            | Question::Dispose => false,
        }
    }

    /// Asks an engine that is in this process.
    pub(super) async fn ask(self, engine: EngineHandle, view: Transcript) -> Result<Answer> {
        Ok(match self {
            Question::Bootstrap(request) => engine.bootstrap(view, request).await?.into(),
            Question::Ingest(request) if request.entries.end > request.entries.start + 1 => {
                engine.ingest_batch(view, request).await?.into()
            }
            Question::Ingest(request) => engine.ingest(view, request).await?.into(),
            Question::Assemble(request) => engine.assemble(view, request).await?.into(),
            Question::Compact(request) => engine.compact(view, request).await?.into(),
            Question::AfterTurn(request) => engine.after_turn(view, request).await?.into(),
            Question::CommitTurn(request) => engine.commit_turn(view, request).await?.into(),
            Question::Maintain(request) => engine.maintain(view, request).await?.into(),
            Question::PrepareSpawn(request) => {
                engine.prepare_subagent_spawn(view, request).await?.into()
            }
            Question::RollbackSpawn(request) => {
                engine.rollback_subagent_spawn(request).await?.into()
            }
            Question::SubagentEnded(request) => engine.on_subagent_ended(request).await?.into(),
            Question::Tools(session) => engine.tools(&session)?.into(),
            Question::CallTool(request) => engine.call_tool(view, request).await?.into(),
            Question::Status => engine.status()?.into(),
            Question::Dispose => engine.dispose().await?.into(),
        })
    }
}

/// Makes the enum and both ways of each of its values.
macro_rules! answers {
    ($( $name:ident($kind:ty), )*) => {
        /// What an engine answered.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(super) enum Answer { $( $name($kind), )* }

        $(
            impl From<$kind> for Answer {
                fn from(answer: $kind) -> Self {
                    Answer::$name(answer)
                }
            }

            impl TryFrom<Answer> for $kind {
                type Error = EngineError;

                fn try_from(answer: Answer) -> Result<Self> {
                    match answer {
                        Answer::$name(answer) => Ok(answer),
                        _ => Err(EngineError::new(
                            ErrorKind::Protocol,
                            concat!("the answer to another question came, not ", stringify!($name)),
                        )),
                    }
                }
            }
        )*
    };
}

answers! {
    Bootstrapped(Bootstrapped),
    Ingested(Ingested),
    Planned(Plan),
    Compacted(Compaction),
    Done(()),
    Committed(Committed),
    Maintained(Maintained),
    Prepared(SpawnPrepared),
    Offered(Vec<ToolSpec>),
    Told(ToolAnswer),
    Stands(EngineStatus),
}

//! The calls of the contract as values, all of them made from one list.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, ErrorKind, Result};
use crate::plan::{Compaction, Plan};
use crate::request::*;

/// The list of the calls, one row for each: `engine_calls! { make words }` expands to
/// `make! { [words] rows }`.
///
/// ```text
/// how method: Variant(Request) -> Reply, transcript[field] crosses(request => reply) { rules };
/// ```
///
/// * `how` is `awaited` for a call that is a future, `direct` for one that is a plain function, `last` for
///   the one that ends an engine.
/// * `transcript` names the field of the request that holds the session; empty where no transcript comes
///   with the call.
/// * `crosses` names the types of `AbiEngine`.
/// * `call` and `entries` name those fields of the request, where it has them; `repeat` says whether it
///   may be asked again when it is not known what became of the first time: it changes nothing, or the
///   contract says that a repeat is harmless. `failure` is an [`FailurePolicy`], `limit` a field of the host's
///   time limits.
#[doc(hidden)]
#[macro_export]
macro_rules! engine_calls {
    ($make:ident $($words:tt)*) => { $make! { [$($words)*]
        awaited bootstrap: Bootstrap(BootstrapRequest) -> BootstrapReply, transcript[session] crosses(RString => RString)
            { call[call] entries[] repeat[true] failure[Fallback] limit[bootstrap_ms] };
        awaited ingest: Ingest(IngestRequest) -> IngestReply, transcript[session] crosses(AbiIngest => u64)
            { call[call] entries[entries] repeat[true] failure[Fallback] limit[ingest_ms] };
        awaited assemble: Assemble(AssembleRequest) -> Plan, transcript[session] crosses(AbiAssemble => AbiPlan)
            { call[call] entries[] repeat[true] failure[Fallback] limit[assemble_ms] };
        awaited compact: Compact(CompactRequest) -> Compaction, transcript[session] crosses(RString => AbiPlan)
            { call[call] entries[] repeat[false] failure[Caller] limit[compact_ms] };
        awaited after_turn: AfterTurn(AfterTurnRequest) -> (), transcript[session] crosses(RString => ())
            { call[call] entries[entries] repeat[false] failure[Fallback] limit[after_turn_ms] };
        awaited commit_turn: CommitTurn(CommitTurnRequest) -> CommitTurnReply, transcript[session] crosses(RString => RString)
            { call[call] entries[entries] repeat[true] failure[Fallback] limit[after_turn_ms] };
        awaited maintain: Maintain(MaintainRequest) -> MaintainReply, transcript[session] crosses(RString => RString)
            { call[call] entries[] repeat[false] failure[Fallback] limit[maintain_ms] };
        awaited prepare_subagent_spawn: PrepareSubagentSpawn(SubagentSpawnRequest) -> SubagentSpawnReply, transcript[parent] crosses(RString => RString)
            { call[call] entries[] repeat[false] failure[Caller] limit[subagent_ms] };
        awaited rollback_subagent_spawn: RollbackSubagentSpawn(SubagentRollbackRequest) -> (), transcript[] crosses(RString => ())
            { call[call] entries[] repeat[false] failure[Report] limit[subagent_ms] };
        awaited on_subagent_ended: OnSubagentEnded(SubagentEndedRequest) -> (), transcript[] crosses(RString => ())
            { call[call] entries[] repeat[false] failure[Fallback] limit[subagent_ms] };
        direct tools: Tools(SessionRef) -> Vec<ToolSpec>, transcript[] crosses(RString => RString)
            { call[] entries[] repeat[true] failure[Fallback] limit[subagent_ms] };
        awaited call_tool: CallTool(ToolCallRequest) -> ToolAnswer, transcript[session] crosses(RString => RString)
            { call[call] entries[] repeat[false] failure[Report] limit[after_turn_ms] };
        direct status: Status(StatusRequest) -> EngineStatus, transcript[] crosses(() => RString)
            { call[] entries[] repeat[true] failure[Report] limit[subagent_ms] };
        last dispose: Dispose(DisposeRequest) -> (), transcript[] crosses(() => ())
            { call[] entries[] repeat[false] failure[Report] limit[dispose_ms] };
    } };
}

/// The first of several expressions, the others of which need not compile.
macro_rules! first {
    ($first:expr $(, $other:expr)*) => {
        $first
    };
}

/// The tokens behind the first one, which says only that they are wanted.
macro_rules! when {
    ($wanted:ident $($tokens:tt)*) => { $($tokens)* };
}

/// What is asked of [`ContextEngine::status`](crate::ContextEngine::status): nothing more.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StatusRequest;

/// What is asked of [`ContextEngine::dispose`](crate::ContextEngine::dispose): nothing more.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DisposeRequest;

/// Who answers a call that an engine failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The bundled engine, for this call and all later ones: the one that failed is in quarantine.
    Fallback,
    /// Nobody: the error goes to the caller. An engine that broke is in quarantine from the next call on.
    Caller,
    /// Nobody: the error is shown, and the engine goes on.
    Report,
}

/// The request of one call of an engine.
pub trait EngineRequest: Into<EngineCall> {
    /// What the call answers.
    type Reply;

    /// The answer out of the reply to this call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] where it is the reply to another call.
    fn reply(reply: EngineReply) -> Result<Self::Reply>;
}

macro_rules! values {
    ([] $( $how:ident $method:ident: $variant:ident($request:ident) -> $reply:ty,
        transcript[$($session:ident)?] crosses $abi:tt
        { call[$($call:ident)?] entries[$($entries:ident)?] repeat[$repeat:literal]
          failure[$failure:ident] limit[$limit:ident] }; )*) => {
        /// A call of an engine: its request, by the method that it is for.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum EngineCall {
            $(
                #[doc = concat!("[`", stringify!($method), "`](crate::ContextEngine::", stringify!($method), ").")]
                $variant($request),
            )*
        }

        /// What an engine answered a call, by the same names.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum EngineReply {
            /// The engine was created. No call: it is what takes them from then on.
            Created,
            $(
                #[doc = concat!("[`", stringify!($method), "`](crate::ContextEngine::", stringify!($method), ").")]
                $variant($reply),
            )*
        }

        impl EngineCall {
            /// The method.
            pub const fn name(&self) -> &'static str {
                match self { $( EngineCall::$variant(_) => stringify!($method), )* }
            }

            /// The session whose transcript comes with the call; `None` where none does.
            pub const fn session(&self) -> Option<&SessionRef> {
                match self {
                    $( EngineCall::$variant(_request) => first!($(Some(&_request.$session),)? None), )*
                }
            }

            /// Positions in the transcript that the call is about.
            pub const fn entries_mut(&mut self) -> Option<&mut Range<u64>> {
                match self {
                    $( EngineCall::$variant(_request) => first!($(Some(&mut _request.$entries),)? None), )*
                }
            }

            /// Sets the number that services of the host know the call by.
            pub const fn set_id(&mut self, _id: CallId) {
                match self { $( EngineCall::$variant(_request) => first!($(_request.$call = _id,)? ()), )* }
            }

            /// Whether it may be asked again when it is not known what became of the first time.
            pub const fn may_repeat(&self) -> bool {
                match self { $( EngineCall::$variant(_) => $repeat, )* }
            }

            /// Who answers it where the engine fails.
            pub const fn on_failure(&self) -> FailurePolicy {
                match self { $( EngineCall::$variant(_) => FailurePolicy::$failure, )* }
            }
        }

        $(
            impl From<$request> for EngineCall {
                fn from(request: $request) -> Self {
                    EngineCall::$variant(request)
                }
            }

            impl EngineRequest for $request {
                type Reply = $reply;

                fn reply(reply: EngineReply) -> Result<$reply> {
                    match reply {
                        EngineReply::$variant(reply) => Ok(reply),
                        _ => Err(EngineError::new(
                            ErrorKind::Protocol,
                            concat!("the reply to another call came, not to ", stringify!($method)),
                        )),
                    }
                }
            }
        )*
    };
}

engine_calls! { values }

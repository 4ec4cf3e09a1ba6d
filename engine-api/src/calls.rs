//! The calls of the contract as values, generated from one list.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, ErrorKind, Result};
use crate::plan::{Compaction, Plan};
use crate::request::*;

/// The list of calls, one row each: `engine_calls! { make args }` expands to `make! { [args] rows }`.
///
/// ```text
/// how method: Variant(Request) -> Reply, transcript[field] crosses(request => reply) { rules };
/// ```
///
/// * `how` is `awaited` for an asynchronous call, `direct` for a synchronous one, `last` for `dispose`.
/// * `transcript` is the field of the request with the session; empty for a call without a transcript.
/// * `crosses` lists the types of `AbiEngine`.
/// * `call` and `entries` are those fields of the request, if it has them. `repeat` states whether the host
///   may retry a call whose outcome is unknown. `failure` is a [`FailurePolicy`], `limit` a field of the
///   host's time limits.
#[doc(hidden)]
#[macro_export]
macro_rules! engine_calls {
    ($make:ident $($args:tt)*) => { $make! { [$($args)*]
        awaited bootstrap: Bootstrap(BootstrapRequest) -> BootstrapReply, transcript[session] crosses(RString => RString)
            { call[call] entries[] repeat[true] failure[Fallback] limit[bootstrap_ms] };
        awaited ingest: Ingest(IngestRequest) -> IngestReply, transcript[session] crosses(AbiIngest => u64)
            { call[call] entries[entries] repeat[true] failure[Fallback] limit[ingest_ms] };
        awaited assemble: Assemble(AssembleRequest) -> Plan, transcript[session] crosses(AbiAssemble => AbiPlan)
            { call[call] entries[] repeat[true] failure[Fallback] limit[assemble_ms] };
        // Not repeated: a compaction may cost several model calls.
        awaited compact: Compact(CompactRequest) -> Compaction, transcript[session] crosses(RString => AbiPlan)
            { call[call] entries[] repeat[false] failure[Caller] limit[compact_ms] };
        // Not repeated: unlike `commit_turn` it has no idempotency key.
        awaited after_turn: AfterTurn(AfterTurnRequest) -> (), transcript[session] crosses(RString => ())
            { call[call] entries[entries] repeat[false] failure[Fallback] limit[after_turn_ms] };
        awaited commit_turn: CommitTurn(CommitTurnRequest) -> CommitTurnReply, transcript[session] crosses(RString => RString)
            { call[call] entries[entries] repeat[true] failure[Fallback] limit[after_turn_ms] };
        // Not repeated: the next turn calls it again anyway.
        awaited maintain: Maintain(MaintainRequest) -> MaintainReply, transcript[session] crosses(RString => RString)
            { call[call] entries[] repeat[false] failure[Fallback] limit[maintain_ms] };
        // Not repeated: each call may create a token that has to be rolled back.
        awaited prepare_subagent_spawn: PrepareSubagentSpawn(SubagentSpawnRequest) -> SubagentSpawnReply, transcript[parent] crosses(RString => RString)
            { call[call] entries[] repeat[false] failure[Caller] limit[subagent_ms] };
        awaited rollback_subagent_spawn: RollbackSubagentSpawn(SubagentRollbackRequest) -> (), transcript[] crosses(RString => ())
            { call[call] entries[] repeat[false] failure[Report] limit[subagent_ms] };
        awaited on_subagent_ended: OnSubagentEnded(SubagentEndedRequest) -> (), transcript[] crosses(RString => ())
            { call[call] entries[] repeat[false] failure[Fallback] limit[subagent_ms] };
        direct tools: Tools(SessionRef) -> Vec<ToolSpec>, transcript[] crosses(RString => RString)
            { call[] entries[] repeat[true] failure[Fallback] limit[subagent_ms] };
        // Not repeated: tools may have side effects. The model reads the failure.
        awaited call_tool: CallTool(ToolCallRequest) -> ToolAnswer, transcript[session] crosses(RString => RString)
            { call[call] entries[] repeat[false] failure[Report] limit[after_turn_ms] };
        direct status: Status(StatusRequest) -> EngineStatus, transcript[] crosses(() => RString)
            { call[] entries[] repeat[true] failure[Report] limit[subagent_ms] };
        last dispose: Dispose(DisposeRequest) -> (), transcript[] crosses(() => ())
            { call[] entries[] repeat[false] failure[Report] limit[dispose_ms] };
    } };
}

/// Expands to the first of several expressions; the others need not compile.
macro_rules! first {
    ($first:expr $(, $other:expr)*) => {
        $first
    };
}

/// Expands to the tokens after the first one, which only controls a repetition.
macro_rules! when {
    ($wanted:ident $($tokens:tt)*) => { $($tokens)* };
}

/// The request of [`ContextEngine::status`](crate::ContextEngine::status), which has no arguments.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StatusRequest;

/// The request of [`ContextEngine::dispose`](crate::ContextEngine::dispose), which has no arguments.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DisposeRequest;

/// What the host does when an engine fails a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Quarantine the engine; the bundled engine answers this call and all later ones.
    Fallback,
    /// Return the error to the caller. An error of kind `Failed`, `Panicked`, `Deadline`,
    /// `Protocol` or `Dead` also quarantines the engine from the next call on.
    Caller,
    /// Report the error and continue with the engine.
    Report,
}

/// The request of one call of an engine.
pub trait EngineRequest: Into<EngineCall> {
    /// The reply of the call.
    type Reply;

    /// Extracts the reply to this call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if it is the reply to another call.
    fn reply(reply: EngineReply) -> Result<Self::Reply>;
}

macro_rules! values {
    ([] $( $how:ident $method:ident: $variant:ident($request:ident) -> $reply:ty,
        transcript[$($session:ident)?] crosses $abi:tt
        { call[$($call:ident)?] entries[$($entries:ident)?] repeat[$repeat:literal]
          failure[$failure:ident] limit[$limit:ident] }; )*) => {
        /// A call of an engine: the method and its request.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum EngineCall {
            $(
                #[doc = concat!("[`", stringify!($method), "`](crate::ContextEngine::", stringify!($method), ").")]
                $variant($request),
            )*
        }

        /// The reply of an engine to a call.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum EngineReply {
            /// The engine was created. Creation has no entry in [`EngineCall`].
            Created,
            $(
                #[doc = concat!("[`", stringify!($method), "`](crate::ContextEngine::", stringify!($method), ").")]
                $variant($reply),
            )*
        }

        impl EngineReply {
            /// The method that this is the reply to.
            pub const fn name(&self) -> &'static str {
                match self {
                    EngineReply::Created => "create",
                    $( EngineReply::$variant(_) => stringify!($method), )*
                }
            }
        }

        impl EngineCall {
            /// The method.
            pub const fn name(&self) -> &'static str {
                match self { $( EngineCall::$variant(_) => stringify!($method), )* }
            }

            /// The session whose transcript the call receives, if any.
            pub const fn session(&self) -> Option<&SessionRef> {
                match self {
                    // The underscore: requests without the field do not use the binding.
                    $( EngineCall::$variant(_request) => first!($(Some(&_request.$session),)? None), )*
                }
            }

            /// The positions of the entries that the call is about.
            pub const fn entries_mut(&mut self) -> Option<&mut Range<u64>> {
                match self {
                    $( EngineCall::$variant(_request) => first!($(Some(&mut _request.$entries),)? None), )*
                }
            }

            /// Sets the id that identifies the call to services of the host.
            pub const fn set_id(&mut self, _id: CallId) {
                match self { $( EngineCall::$variant(_request) => first!($(_request.$call = _id,)? ()), )* }
            }

            /// Whether the host may retry the call when its outcome is unknown.
            pub const fn may_repeat(&self) -> bool {
                match self { $( EngineCall::$variant(_) => $repeat, )* }
            }

            /// What the host does when the engine fails the call.
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
                            concat!("the engine sent the reply to another call, not to ", stringify!($method)),
                        )),
                    }
                }
            }
        )*
    };
}

engine_calls! { values }

//! The time limit of each call, and the error of a call that exceeds it.

use ctxhost_engine_api::border::EngineCall;
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{EngineError, ErrorKind, engine_calls};
use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// The time limit of each call, in milliseconds.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct EngineTimeouts {
        /// An engine opens its storage here, and the agent waits for it at its start.
        pub create_ms: u64 = 5_000, Whole(1), "ms";
        /// An engine reads a whole old session here, once.
        pub bootstrap_ms: u64 = 10_000, Whole(1), "ms";
        /// Called for every new entry, so it has to be quick.
        pub ingest_ms: u64 = 2_000, Whole(1), "ms";
        /// Called before every request, while the user waits.
        pub assemble_ms: u64 = 5_000, Whole(1), "ms";
        /// Restarts with each progress report; a summary of a long session takes minutes.
        pub compact_ms: u64 = 300_000, Whole(1), "ms";
        /// Limit of a compaction whatever progress it reports; one may only pretend to make
        /// progress.
        pub compact_cap_ms: u64 = 900_000, Whole(1), "ms";
        /// For what an engine does at the end of a turn; a replay ends none.
        pub after_turn_ms: u64 = 60_000, Whole(1), "ms";
        /// For an engine's housekeeping between two turns; a replay does none.
        pub maintain_ms: u64 = 60_000, Whole(1), "ms";
        /// Every hook about sub-agents; a spawn waits for it.
        pub subagent_ms: u64 = 2_000, Whole(1), "ms";
        /// An engine closes its storage here; the process ends with or without it.
        pub dispose_ms: u64 = 2_000, Whole(1), "ms";
    }
}

macro_rules! limits {
    ([] $( $how:ident $method:ident: $variant:ident($request:ident) -> $reply:ty,
        transcript $session:tt crosses $abi:tt
        { call $call:tt entries $entries:tt repeat $repeat:tt failure $failure:tt limit[$limit:ident] }; )*) => {
        impl EngineTimeouts {
            /// The limit of a call in milliseconds, and the name of its setting.
            pub(super) const fn limit_of(&self, call: &EngineCall) -> (u64, &'static str) {
                match call { $( EngineCall::$variant(_) => (self.$limit, stringify!($limit)), )* }
            }
        }
    };
}

engine_calls! { limits }

/// The message of a timeout before the limit is known.
const TIMEOUT_MESSAGE: &str = "took longer than its time limit";

/// The error of a call that took too long; [`name_limit`] adds the limit.
pub(super) fn timeout_error() -> EngineError {
    EngineError::new(ErrorKind::Deadline, TIMEOUT_MESSAGE)
}

/// Adds the exceeded limit and its setting to a timeout error; other errors pass unchanged.
pub(super) fn name_limit(mut error: EngineError, limit_ms: u64, setting: &str) -> EngineError {
    if error.kind == ErrorKind::Deadline
        && let Some(rest) = error.message.strip_prefix(TIMEOUT_MESSAGE)
    {
        let limit = group_thousands(limit_ms);
        error.message = format!("exceeded {limit} ms (timeouts.{setting}){rest}");
    }
    error
}

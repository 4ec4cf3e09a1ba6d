//! The deadline of a call: each has a limit of its own, and an error says which one was exceeded.

use std::time::{Duration, Instant};

use ctxhost_engine_api::border::{EngineCall, EngineReply};
use ctxhost_engine_api::*;

use super::calls::CallLimit;
use super::instance::EngineInstance;
use super::threads::TIMEOUT_MESSAGE;
use super::timeouts::EngineTimeouts;

impl EngineInstance {
    /// Calls the engine, within the limit of the call. Only [`EngineInstance::dispose`] ends an engine.
    ///
    /// # Errors
    ///
    /// The engine's own, [`ErrorKind::Deadline`], or [`ErrorKind::Dead`] where its process died.
    pub async fn call(&self, view: &Transcript, mut call: EngineCall) -> Result<EngineReply> {
        let (mut limit_ms, mut setting) = self.timeouts.of(&call);
        let mut limit = CallLimit::fixed(Duration::from_millis(limit_ms));
        let is_compaction = matches!(call, EngineCall::Compact(_));
        if is_compaction {
            limit.cap = Duration::from_millis(self.timeouts.compact_cap_ms);
        }
        let session = match &call {
            EngineCall::Tools(session) => Some(session),
            call => call.session(),
        };
        let guard = self.calls.begin(limit, call.session().map(|_| view.clone()));
        let guard = guard.with_session_id(session.map(|session| session.id.as_str().into()));
        call.set_id(guard.id);
        let began = Instant::now();
        let reply = self.backend.call(&guard, view.clone(), call).await;
        if is_compaction && began.elapsed() >= limit.cap {
            (limit_ms, setting) = (self.timeouts.compact_cap_ms, "compact_cap_ms");
        }
        reply.map_err(|error| exceeded(error, limit_ms, setting))
    }
}

macro_rules! limits {
    ([] $( $how:ident $method:ident: $variant:ident($request:ident) -> $reply:ty,
        transcript $session:tt crosses $abi:tt
        { call $call:tt entries $entries:tt repeat $repeat:tt failure $failure:tt limit[$limit:ident] }; )*) => {
        impl EngineTimeouts {
            /// The limit of a call in milliseconds, and its setting.
            pub(super) const fn of(&self, call: &EngineCall) -> (u64, &'static str) {
                match call { $( EngineCall::$variant(_) => (self.$limit, stringify!($limit)), )* }
            }
        }
    };
}

engine_calls! { limits }

/// An error that says which limit a call exceeded, and where that is set.
fn exceeded(mut error: EngineError, limit_ms: u64, setting: &str) -> EngineError {
    if error.kind == ErrorKind::Deadline
        && let Some(rest) = error.message.strip_prefix(TIMEOUT_MESSAGE)
    {
        let limit = group_thousands(limit_ms);
        error.message = format!("exceeded {limit} ms (timeouts.{setting}){rest}");
    }
    error
}

/// A number with a comma for each thousand.
pub fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

//! The deadline layer: limits each call of an engine in time, and the texts of its reply in size.

use std::time::{Duration, Instant};

use ctxhost_engine_api::border::{EngineCall, EngineReply};
use ctxhost_engine_api::*;

use super::calls::CallLimit;
use super::engine_texts::limit_reply;
use super::instance::EngineInstance;
use super::timeouts::name_limit;

impl EngineInstance {
    /// Calls the engine within the limit of the call. [`EngineInstance::dispose`] has a
    /// limit of its own.
    ///
    /// # Errors
    ///
    /// The engine's own, [`ErrorKind::Deadline`], or [`ErrorKind::Dead`] where its process died.
    pub async fn call(&self, view: &Transcript, mut call: EngineCall) -> Result<EngineReply> {
        let (mut limit_ms, mut setting) = self.timeouts.limit_of(&call);
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
        let mut reply = self.backend.call(&guard, view.clone(), call).await;
        limit_reply(&mut reply);
        // Progress moves the deadline up to the cap, so only the clock tells which of the two ended it.
        if is_compaction && began.elapsed() >= limit.cap {
            (limit_ms, setting) = (self.timeouts.compact_cap_ms, "compact_cap_ms");
        }
        reply.map_err(|error| name_limit(error, limit_ms, setting))
    }
}

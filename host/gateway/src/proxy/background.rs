//! What is done about a request in the background: it is on its way already, and nobody waits for this.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::task::yield_now;

use super::ClientRequest;
use super::blocking_pool::{is_large, run_blocking};
use super::core::Proxy;
use super::ingest::IngestedRequest;
use super::request::ProxyRequest;
use ctxhost_agent::SessionGuard;
use ctxhost_context::Target;
use ctxhost_dialects::message::TokenUsage;

impl Proxy {
    /// Writes the messages of a request to its session file and, where a turn has ended, calls the engine's `after_turn`.
    /// The session is locked until then: the next request of the conversation waits.
    pub(super) fn finish_request(
        self: &Arc<Self>,
        incoming: &ClientRequest,
        mut heard: IngestedRequest,
        target: Target,
    ) {
        let (desk, is_large) = (self.clone(), is_large(incoming));
        let work = async move {
            if desk.write_out(&mut heard) {
                desk.end_turn(&mut heard.guard, &target, heard.ended_turn.as_ref()).await;
                desk.close_in_flight(&heard.conversation, heard.guard).await;
            }
        };
        match is_large {
            true => self.runtime.spawn_background(run_blocking(work)),
            false => self.runtime.spawn_background(work),
        }
    }

    /// Writes the messages of a request to its session file; `false` where the session cannot be used any more.
    pub(super) fn write_out(&self, heard: &mut IngestedRequest) -> bool {
        let Err(error) = heard.guard.write_out() else { return true };
        tracing::warn!(session = heard.session, %error, "words of a client are not written down");
        // What stands in the file is not known: whoever opens that again knows what to make of it.
        self.invalidate(&heard.conversation);
        false
    }

    /// Calls the engine's `after_turn`, where a turn has ended.
    async fn end_turn(
        &self,
        guard: &mut SessionGuard,
        target: &Target,
        ended: Option<&(String, String)>,
    ) {
        let Some((first_id, next_id)) = ended else { return };
        if let Err(error) = guard.end_turn(target, first_id, next_id).await {
            tracing::warn!(%error, "the engine was not told that a turn has ended");
        }
    }

    /// Records the usage that the upstream reported.
    pub(super) fn record_usage(self: &Arc<Self>, journey: ProxyRequest, usage: TokenUsage) {
        let desk = self.clone();
        let mut work = Box::pin(async move {
            if let Some(mut guard) = desk.lock_conversation(&journey.conversation).await {
                guard.record_answer(&journey.target, journey.sent_tokens, &usage);
                // So far this may be the task of a connection, and what follows waits for the disk.
                yield_now().await;
                desk.close_in_flight(&journey.conversation, guard).await;
            }
        });
        // Begun before the client has the end of its answer, it has its place before the next request of the conversation.
        if (&mut work).now_or_never().is_none() {
            self.runtime.spawn_background(work);
        }
    }
}

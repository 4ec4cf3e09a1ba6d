//! Work that runs after a request was forwarded: no client waits for it.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::task::yield_now;

use super::blocking_pool::{is_large, run_blocking};
use super::core::Proxy;
use super::ingest::IngestedRequest;
use super::messages::ClientRequest;
use super::request::{InFlightRequest, ProxyRequest};
use ctxhost_agent::SessionGuard;
use ctxhost_context::Target;
use ctxhost_conversations::Conversation;
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::usage::AnswerReport;
use ctxhost_session::SessionError;

impl Proxy {
    /// Records a complete response and what it reports.
    pub fn record_answer(self: &Arc<Self>, mut in_flight: InFlightRequest, report: AnswerReport) {
        in_flight.pending.mark_answered();
        if let Some(history) = in_flight.truncated_history {
            self.record_truncated(history, report.id.as_deref());
        }
        if let (Some(request), Some(usage)) = (in_flight.request, report.usage) {
            self.record_usage(*request, usage, report.has_provider_rounds);
        }
        self.start_eviction();
    }

    /// Writes the messages of a request to its session file and, if a turn has ended, calls the engine's `after_turn`.
    /// The session stays locked until then, so the next request of the conversation waits.
    pub(super) fn finish_request(
        self: &Arc<Self>,
        request: &ClientRequest,
        mut ingested: IngestedRequest,
        target: Target,
    ) {
        let (proxy, is_large) = (self.clone(), is_large(request));
        let work = async move {
            if proxy.write_out(&mut ingested) {
                proxy.end_turn(&mut ingested.guard, &target, ingested.ended_turn.as_ref()).await;
                proxy.close_in_flight(&ingested.conversation, ingested.guard).await;
            }
        };
        if is_large {
            self.runtime.spawn_background(run_blocking(work));
        } else {
            self.runtime.spawn_background(work);
        }
    }

    /// Writes the messages of a request to its session file; `false` if the session can no longer be used.
    fn write_out(&self, ingested: &mut IngestedRequest) -> bool {
        let session = &ingested.session;
        match ingested.guard.write_out() {
            Ok(()) => {
                let mut state = ingested.conversation.state();
                if state.is_persisted && std::mem::take(&mut state.is_unwritten) {
                    tracing::info!(session, "the session file is written again");
                }
                true
            }
            // The conversation continues in memory.
            Err(error @ SessionError::Unwritten { .. }) => {
                self.report_unwritten(&ingested.conversation, &error);
                true
            }
            Err(error) => {
                if self.is_unwritten_warning_due() {
                    tracing::warn!(session, %error, "cannot write messages to the session file: the conversation is reloaded");
                } else {
                    tracing::debug!(session, %error, "the conversation is reloaded, as others before it");
                }
                // The write may be partial. Reopening the file repairs it.
                self.invalidate(&ingested.conversation);
                false
            }
        }
    }

    /// Logs that the file of a conversation cannot be written: once per conversation, and once a minute for all of them.
    pub(super) fn report_unwritten(&self, conversation: &Conversation, error: &SessionError) {
        let session = conversation.id();
        let is_known = std::mem::replace(&mut conversation.state().is_unwritten, true);
        if is_known || !self.is_unwritten_warning_due() {
            tracing::debug!(session, %error, "the conversation is in memory only, as others before it");
        } else {
            tracing::warn!(session, %error, "cannot write the conversation to its file: it is kept in memory only, and a restart would lose it");
        }
    }

    async fn end_turn(
        &self,
        guard: &mut SessionGuard,
        target: &Target,
        ended_turn: Option<&(String, String)>,
    ) {
        let Some((first_id, next_id)) = ended_turn else { return };
        if let Err(error) = guard.end_turn(target, first_id, next_id).await {
            tracing::warn!(%error, "after_turn failed");
        }
    }

    fn record_usage(
        self: &Arc<Self>,
        request: ProxyRequest,
        usage: TokenUsage,
        has_provider_rounds: bool,
    ) {
        let proxy = self.clone();
        let mut work = Box::pin(async move {
            if let Some(mut guard) = proxy.lock_conversation(&request.conversation).await {
                if has_provider_rounds {
                    guard.report_answer(&usage);
                } else {
                    guard.record_answer(&request.target, request.sent_tokens, &usage);
                }
                // Up to here this runs on the connection's task; closing the session waits for the disk.
                yield_now().await;
                proxy.close_in_flight(&request.conversation, guard).await;
            }
        });
        // Polled before the client gets the end of the response, so that this usage takes the session lock before the
        // client's next request can, and is not attributed to that one.
        if (&mut work).now_or_never().is_none() {
            self.runtime.spawn_background(work);
        }
    }
}

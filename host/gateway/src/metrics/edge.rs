//! Metrics that other modules update: conversations, bodies, wrong tokens.

use ctxhost_conversations::ConversationCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Metrics that other modules update. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct EdgeMetrics {
    /// Conversations.
    pub conversations: ConversationCounts,
    /// Memory held by bodies, in bytes.
    pub body_bytes: Gauge,
    /// Requests rejected because of that.
    pub bodies_rejected: Counter,
    /// Requests with a wrong token.
    pub wrong_tokens: Counter,
}

impl EdgeMetrics {
    /// Registers them.
    pub(super) fn register(&self, all: &mut Registry) {
        let EdgeMetrics { conversations, body_bytes, bodies_rejected, wrong_tokens } = self.clone();
        let ConversationCounts { in_memory, read_again } = conversations;
        all.register("conversations", "Conversations in memory", in_memory);
        let help = "Conversations reloaded because gateway.conversations is too small";
        all.register("conversations_reloaded", help, read_again);
        let help = "Memory held by bodies";
        all.register_with_unit("buffered_bodies", help, Unit::Bytes, body_bytes);
        let help = "Requests rejected because of gateway.max_bodies_bytes";
        all.register("bodies_rejected", help, bodies_rejected);
        all.register("wrong_token", "Requests with a wrong token", wrong_tokens);
    }
}

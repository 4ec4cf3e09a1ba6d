//! What is counted at the edge: conversations in memory, bodies, wrong tokens.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::conversations::ConversationCounts;

/// Counts that others keep. Clones are the same counts.
#[derive(Clone, Debug, Default)]
pub struct EdgeMetrics {
    /// Conversations.
    pub conversations: ConversationCounts,
    /// What the bodies of all requests take, in bytes.
    pub body_bytes: Gauge,
    /// Requests that were told to come again because of that.
    pub bodies_refused: Counter,
    /// Wrong tokens that were shown.
    pub wrong_tokens: Counter,
}

impl EdgeMetrics {
    /// Has them shown.
    pub(super) fn register(&self, all: &mut Registry) {
        let EdgeMetrics { conversations, body_bytes, bodies_refused, wrong_tokens } = self.clone();
        let ConversationCounts { in_memory, read_again } = conversations;
        all.register("conversations", "Conversations in memory", in_memory);
        let help = "Conversations that had left memory for others and were read again";
        all.register("conversations_read_again", help, read_again);
        let help = "Memory that the bodies of requests take";
        all.register_with_unit("bodies", help, Unit::Bytes, body_bytes);
        let help = "Requests that were told to come again because bodies took too much";
        all.register("bodies_refused", help, bodies_refused);
        all.register("wrong_token", "Requests that have shown a wrong token", wrong_tokens);
    }
}

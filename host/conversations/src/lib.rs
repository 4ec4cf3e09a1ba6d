//! Matches requests to conversations.
//!
//! Clients send their whole history with every request, and most of them without a session id. A request belongs to
//! the conversation whose answered items it has:
//!
//! ```text
//!  known     a b c d        a b c d    a b c t          a B c D        a b c d e     a b c d e     a b c d
//!  request   a b c d e f    a b c d    a b c d t'       a b' c D e     a d e f       S d e f       a b x
//!            continues      retry      new tail         edited (b)     left out      summarized    fork after b
//! ```
//!
//! Items are equal if their bytes are, or if they differ only in provider cache markers and JSON formatting. The
//! known items are stored in the session itself; the `index` beside the session files says which of them to read
//! first.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod alignment;
mod conversation;
mod identity;
mod index;
mod items_record;
mod known_items;
mod label;
mod left_out;
mod matching;
mod new_group;
mod read_pool;
mod returned_summary;
pub mod secret;
mod seeded_hash;
pub mod side_calls;
mod splice;
mod table;
mod thinking_record;
mod traits;

pub use alignment::ChangedRun;
pub use conversation::{
    Conversation, ConversationState, EvictedConversation, LastRequest, PendingRequest,
    has_compactions,
};
pub use identity::{BadSessionId, is_named, session_scope};
pub use items_record::ItemEdits;
pub use known_items::{KnownItems, text_hash, text_of_content};
pub use label::ConversationLabel;
pub use matching::{HistoryRewrite, RequestMatch};
pub use new_group::{EntryTraits, NewGroup};
pub use read_pool::ReadPool;
pub use returned_summary::{ReturnedSummary, SummaryOrigin};
pub use seeded_hash::{ConversationScope, RequestItems, SeededHash, read_seed};
pub use splice::ItemSplice;
pub use table::{CacheLimits, ConversationCounts, ConversationTable};
pub use thinking_record::{ContentHashes, is_thinking_removal};
pub use traits::ItemAuthor;

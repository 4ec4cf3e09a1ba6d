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
mod seeded_hash;
mod splice;
mod table;
mod thinking_record;
mod traits;

pub(crate) use alignment::ChangedRun;
pub(crate) use conversation::{
    Conversation, EvictedConversation, LastRequest, PendingRequest, has_compactions,
};
pub(crate) use identity::{BadSessionId, is_named, session_scope};
pub(crate) use items_record::ItemEdits;
pub(crate) use known_items::{KnownItems, text_hash, text_of_content};
pub use label::ConversationLabel;
pub(crate) use matching::{HistoryRewrite, RequestMatch};
pub(crate) use new_group::{EntryTraits, NewGroup};
pub(crate) use returned_summary::{ReturnedSummary, SummaryOrigin};
pub(crate) use seeded_hash::{ConversationScope, RequestItems, SeededHash, read_seed};
pub(crate) use splice::ItemSplice;
pub(crate) use table::{CacheLimits, ConversationCounts, ConversationTable};
pub(crate) use thinking_record::{ContentHashes, is_thinking_removal};
pub(crate) use traits::ItemAuthor;

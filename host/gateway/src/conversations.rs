//! Which conversation a request goes on with.
//!
//! Clients send their whole history with every request, and most of them say nothing of sessions. A
//! request goes on with the conversation whose answered items it has:
//!
//! ```text
//!  known     a b c d        a b c d    a b c t          a B c D        a b c d e     a b c d
//!  request   a b c d e f    a b c d    a b c d t'       a b' c D e     S d e f       a b x
//!            goes on        again      the tail is      b is cleared   summarised    a fork
//!                                      replaced                                      behind b
//! ```
//!
//! Two items are the same where their bytes are, or where they say the same and only marks for the
//! provider's cache have wandered. What is known of items stands in the session itself; beside the files of those
//! that begin alike stands which of them to look at (`index`).

mod conversation;
mod identity;
mod index;
mod known_items;
mod matching;
mod read_pool;
mod seeded_hash;
mod table;
mod traits;

pub use conversation::{
    Conversation, EvictedConversation, LastRequest, PendingRequest, has_compactions,
};
pub use identity::{BadSessionId, SESSION_HEADER, is_named, session_scope};
pub use known_items::{KnownItem, KnownItems, RECORD, is_user_request, text_hash, text_of_content};
pub use matching::{HistoryRewrite, RequestMatch};
pub use read_pool::ReadPool;
pub use seeded_hash::{
    CanonicalItem, ConversationScope, ItemHashes, RequestItems, SeededHash, read_seed,
};
pub use table::{ConversationCounts, ConversationTable};

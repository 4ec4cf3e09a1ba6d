//! Which conversation a request goes on with.
//!
//! Clients send their whole history with every request, and most of them say nothing of sessions. A
//! request goes on with the conversation whose items it begins with:
//!
//! ```text
//!  known     a b c d          a b c d          a b c d          a b c d        a b c d
//!  request   a b c d e f      a b c d          a b x            a b            x y
//!            goes on          again            a fork behind b  a fork behind b   one of its own
//! ```
//!
//! Two items are the same where their bytes are, or where they say the same and only marks for the
//! provider's cache have wandered. What is known of items stands in the session itself, so a restart
//! finds conversations by listing a folder.

mod digest;
mod identity;
mod outline;
mod table;

pub use digest::{Asked, Digest, Names, secret};
pub use identity::{BadSessionId, SESSION_HEADER, scope};
pub use outline::{Fit, Known, Outline, RECORD};
pub use table::{Rest, Thread, Threads, has_compactions};

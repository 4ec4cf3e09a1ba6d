//! The host's dialects against the numbered rules, which were written without a look at the host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "dialects/client.rs"]
mod client;
#[path = "dialects/conversations.rs"]
mod conversations;
#[path = "dialects/encoded.rs"]
mod encoded;
#[path = "dialects/exchange.rs"]
mod exchange;
#[path = "dialects/heard.rs"]
mod heard;
#[path = "dialects/lawful.rs"]
mod lawful;
#[path = "dialects/odd.rs"]
mod odd;
#[path = "dialects/sent.rs"]
mod sent;
#[path = "dialects/whose.rs"]
mod whose;

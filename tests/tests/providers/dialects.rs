//! The host's dialects against the numbered rules, which were written without a look at the host.

mod client;
mod conversations;
mod encoded;
mod exchange;
mod lawful;
mod odd;
mod received;
mod sent;
mod whose;

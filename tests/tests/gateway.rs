//! The gateway over real sockets: what passes, what is refused, and what happens when others fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

#[path = "gateway/accepted.rs"]
mod accepted;
#[path = "gateway/access.rs"]
mod access;
#[path = "gateway/alternating.rs"]
mod alternating;
// Clients of the stories without a socket; not all that they can is needed here.
#[allow(dead_code)]
#[path = "providers/dialects/client.rs"]
mod agent;
#[path = "gateway/binary.rs"]
mod binary;
#[path = "gateway/clouds.rs"]
mod clouds;
#[path = "gateway/compaction.rs"]
mod compaction;
#[path = "gateway/counting.rs"]
mod counting;
#[path = "gateway/dashboard.rs"]
mod dashboard;
#[path = "gateway/failing.rs"]
mod failing;
#[path = "gateway/gone.rs"]
mod gone;
#[path = "gateway/identity.rs"]
mod identity;
#[path = "gateway/instructions.rs"]
mod instructions;
#[path = "gateway/killed.rs"]
mod killed;
#[path = "gateway/limits.rs"]
mod limits;
#[path = "gateway/linked.rs"]
mod linked;
#[path = "gateway/many.rs"]
mod many;
#[path = "gateway/models.rs"]
mod models;
#[path = "gateway/neutral.rs"]
mod neutral;
#[path = "gateway/ollama.rs"]
mod ollama;
#[path = "gateway/overflow.rs"]
mod overflow;
#[path = "gateway/overtaken.rs"]
mod overtaken;
#[path = "gateway/provider_edits.rs"]
mod provider_edits;
#[path = "gateway/proxies.rs"]
mod proxies;
#[path = "gateway/raw.rs"]
mod raw;
#[path = "gateway/recompacted.rs"]
mod recompacted;
#[path = "gateway/reserve.rs"]
mod reserve;
#[path = "gateway/rewritten.rs"]
mod rewritten;
#[path = "gateway/run.rs"]
mod run;
#[path = "gateway/said.rs"]
mod said;
#[path = "gateway/stage.rs"]
mod stage;
#[path = "gateway/strange.rs"]
mod strange;
#[path = "gateway/streams.rs"]
mod streams;
#[path = "gateway/talk.rs"]
mod talk;
#[path = "gateway/thinking.rs"]
mod thinking;
#[path = "gateway/together.rs"]
mod together;
#[path = "gateway/trouble.rs"]
mod trouble;
#[path = "gateway/truth.rs"]
mod truth;

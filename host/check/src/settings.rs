//! The numbers of the kit. They stand in no config: a verdict must mean the same wherever it was given.

use std::time::Duration;

/// How long one call of the engine may take. 10 s: twice what the host allows to `assemble`, because the
/// kit also runs unoptimised, on busy machines.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Generated histories; each is told to the engine in four dialects. 48: small faults of a cut show
/// within the first ten, and a child does a whole dialect in well under a second.
pub(super) const HISTORIES: u64 = 48;

/// Budgets that each history is assembled with, at most, spread over all places where a cut can fall.
pub(super) const BUDGETS: usize = 12;

/// The smallest budget that an engine's own words are measured by, in tokens. No model has a window this
/// small; below it a notice of one line already takes half of the budget.
pub(super) const FAIR_BUDGET: u64 = 1_000;

/// Every so many generated histories one is a long session of work, so that engines that leave short
/// ones alone are asked, too.
pub(super) const WORK_EVERY: u64 = 4;

/// What chance begins with. Fixed: a case has the same history on every machine.
pub(super) const SEED: u64 = 0x5eed_c0de;

/// Failures of a group after which it stops. The first is what an author mends first.
pub(super) const FAILURES_MAX: usize = 3;

/// Steps of the search for the smallest history, and the time it may take: a fault is worth reading
/// while its author waits.
pub(super) const SHRINK_STEPS: usize = 200;
/// See [`SHRINK_STEPS`].
pub(super) const SHRINK_TIME: Duration = Duration::from_secs(20);

/// How long a child may live in all, beside the limit of its single calls.
pub(super) const CHILD_LIMIT: Duration = Duration::from_secs(180);

/// How long a child may take from its start to its first case: loading, hashing, a busy machine.
pub(super) const CHILD_START: Duration = Duration::from_secs(60);

/// Address space of a child, in bytes. An engine that eats memory ends its own process, not the machine.
pub(super) const CHILD_BYTES: u64 = 8 << 30;

/// Entries of the long history.
pub(super) const LONG_ENTRIES: u64 = 50_000;

/// Bytes of the giant message.
pub(super) const GIANT_BYTES: usize = 8 << 20;

/// Entries that the figures of [`resources`](super::groups::resources) are taken over.
pub(super) const MEASURED_ENTRIES: u64 = 10_000;

/// How often an engine is created and let go of while its memory is watched.
pub(super) const ENGINE_LIVES: u64 = 100;

/// What those lives may leave behind, in bytes: an allocator keeps some, a leak of each life is more.
pub(super) const LEFT_BEHIND_BYTES: u64 = 16 << 20;

/// Requests to one service in one call, at most: a loop over a host that always has more is no work.
pub(super) const SERVICE_CALLS_MAX: u64 = 5_000;

/// Polls of one call until the service that stays pending must have been reached.
pub(super) const AWAITS_MAX: u64 = 12;

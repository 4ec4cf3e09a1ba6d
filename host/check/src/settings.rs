//! The constants of the suite. They are not configurable, so that verdicts are comparable.

use std::time::Duration;

/// Time limit of one call. 10 s: twice the host's limit of `assemble`, because the suite also runs
/// unoptimised, on busy machines.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Number of generated histories, each in four dialects. 48: small faults of a cut show within the first
/// ten, and a child runs a whole dialect in well under a second.
pub(super) const HISTORIES: u64 = 48;

/// Maximum number of budgets for each history, spread over all possible cuts.
pub(super) const BUDGETS: usize = 12;

/// One of this many generated histories is a long work session, for engines that keep short ones whole.
pub(super) const WORK_EVERY: u64 = 4;

/// The random seed. Fixed, so that a case has the same history on every machine.
pub(super) const SEED: u64 = 0x5eed_c0de;

/// Number of failures after which a group stops.
pub(super) const FAILURES_MAX: usize = 3;

/// Maximum number of shrinking attempts, and their time limit: the author waits for the result.
pub(super) const SHRINK_STEPS: usize = 200;
/// See [`SHRINK_STEPS`].
pub(super) const SHRINK_TIME: Duration = Duration::from_secs(20);

/// Time limit of a child, in addition to the limit of each call.
pub(super) const CHILD_LIMIT: Duration = Duration::from_secs(180);

/// Time limit of a child before its first case: loading, hashing, a busy machine.
pub(super) const CHILD_START: Duration = Duration::from_secs(60);

/// Address space of a child, in bytes.
pub(super) const CHILD_BYTES: u64 = 8 << 30;

/// The largest file that a child writes, in bytes: an engine needs none, and its verdicts have less than a
/// megabyte.
pub(super) const CHILD_FILE_BYTES: u64 = 64 << 20;

/// Entries of the long history.
pub(super) const LONG_ENTRIES: u64 = 50_000;

/// Bytes of the giant message.
pub(super) const GIANT_BYTES: usize = 8 << 20;

/// Entries of the history that [`resources`](super::groups::resources) measures.
pub(super) const MEASURED_ENTRIES: u64 = 10_000;

/// How often an engine is created and disposed in the leak test.
pub(super) const ENGINE_LIVES: u64 = 100;

/// Allowed growth of memory in the leak test, in bytes: allocators keep some memory.
pub(super) const LEFT_BEHIND_BYTES: u64 = 16 << 20;

/// Maximum number of service requests in one call: stops loops over a host that always has more pages.
pub(super) const SERVICE_CALLS_MAX: u64 = 5_000;

/// Maximum number of awaits at which a call is cancelled.
pub(super) const AWAITS_MAX: u64 = 12;

//! Settings of engines that follow each other on a running host.

use super::{Allowed, MS, Setting, setting};

/// In the order in which people read about them.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "swap.watch_ms",
        MS,
        Allowed::Whole(0),
        "how often a running host looks whether this file has changed, 0 for never; a look is one call of the system, and half a second is no wait",
    ),
    setting(
        "swap.drain_ms",
        MS,
        Allowed::Whole(0),
        "how long an engine that was replaced may finish its turns; longer ones go on with the new engine",
    ),
    setting(
        "swap.warm_ms",
        MS,
        Allowed::Whole(0),
        "how long an engine that was replaced stays ready to serve again; what is wrong with a new one mostly shows in its first minute",
    ),
    setting(
        "swap.proving_requests",
        "requests",
        Allowed::Whole(0),
        "lawful requests a new engine has to shape; where it fails before, the one it replaced answers the call and serves again. 0 for no such trial",
    ),
    setting(
        "swap.generations_hint",
        "libraries",
        Allowed::Whole(1),
        "from so many loaded by one process on a restart is advised: none is ever unloaded",
    ),
    setting(
        "swap.loaded_hint_bytes",
        "bytes",
        Allowed::Whole(1),
        "the same for the sizes of their files together",
    ),
    setting(
        "swap.guard_requests",
        "requests",
        Allowed::Whole(1),
        "what a canary must have shaped before a guard on a percentile counts; of fewer, the 99th percentile is the slowest one",
    ),
];

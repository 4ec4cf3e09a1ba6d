//! Landlock: what the disk looks like to a worker. It can read what a library needs to run, and nothing
//! of the person's.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetStatus, Scope, path_beneath_rules,
};

use super::ConfinementLimits;

/// The newest rules that are asked for; an older kernel gives what it has.
const RULES: ABI = ABI::V6;

/// Where the system keeps libraries and time zones, and what the C library asks of the kernel: of a process'
/// folder only the files that it or the Rust library opens. The rest of that folder shows the network
/// (`net`), memory (`map_files`, `mem`) and mounts.
const SYSTEM: [&str; 21] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/usr/share/locale",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    // The stack of the main thread.
    "/proc/self/maps",
    // How much memory and how many threads it has, for allocators.
    "/proc/self/status",
    "/proc/self/statm",
    // How many processors it may use.
    "/proc/self/cgroup",
    "/sys/devices/system/cpu",
    // `closefrom`.
    "/proc/self/fd",
];

/// Closes the disk and the network for this thread and all that it starts.
pub(super) fn restrict_access(limits: &ConfinementLimits) -> Result<(), String> {
    let status = restrict(limits).map_err(|error| error.to_string())?;
    match status {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err("this kernel has none".into()),
    }
}

fn restrict(limits: &ConfinementLimits) -> Result<RulesetStatus, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // Rules for what is not there are left out.
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(&limits.readable, read))?
        .restrict_self()?;
    Ok(restricted.ruleset)
}

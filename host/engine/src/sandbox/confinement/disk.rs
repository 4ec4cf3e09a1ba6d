//! Landlock: a confined process can read what a library needs to run, and no files of the user. It writes
//! nowhere, or below one folder.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetStatus, Scope, path_beneath_rules,
};

use super::self_test;
use crate::sandbox::info::ConfinementLimits;

/// The newest rules that are requested; an older kernel enforces those that it has.
const RULES: ABI = ABI::V6;

/// Libraries, time zones, and the files of `/proc/self` that the C library or the Rust library opens. The
/// rest of that folder shows the network (`net`), memory (`map_files`, `mem`) and mounts.
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

/// Restricts files and network for this thread and its descendants.
pub(super) fn restrict_access(limits: &ConfinementLimits) -> Result<(), String> {
    self_test::is_only_thread()?;
    let status = restrict(limits).map_err(|error| error.to_string())?;
    match status {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err("this kernel has no landlock".into()),
    }
}

fn restrict(limits: &ConfinementLimits) -> Result<RulesetStatus, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let writable = limits.writable.iter().map(|writable| &writable.folder);
    // Rules for missing paths are skipped.
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(&limits.readable, read))?
        .add_rules(path_beneath_rules(writable, read | write))?
        .restrict_self()?;
    Ok(restricted.ruleset)
}

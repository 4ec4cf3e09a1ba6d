//! The restrictions of a sandbox, in the order in which they are applied, each with its test.

use rustix::process::{Resource, Rlimit, setrlimit};

use super::{capabilities, disk, self_test, syscalls};
use crate::sandbox::info::{Confinement, ConfinementLimits};

/// A step that may fail, with the reason.
type ProtectionStep<'a> = Box<dyn Fn() -> Result<(), String> + 'a>;

/// One restriction.
struct Protection<'a> {
    /// Its description for people.
    description: String,
    /// Applies it.
    apply: ProtectionStep<'a>,
    /// Tests it once all are applied: a kernel may accept a restriction and not enforce it.
    test: ProtectionStep<'a>,
}

/// Applies and tests all restrictions.
pub(crate) fn confine(limits: &ConfinementLimits) -> Confinement {
    let protections = protections(limits);
    let applied: Vec<_> = protections.iter().map(|protection| (protection.apply)()).collect();
    let mut confinement = Confinement::default();
    for (protection, applied) in protections.into_iter().zip(applied) {
        match applied.and_then(|()| (protection.test)()) {
            Ok(()) => confinement.applied.push(protection.description),
            Err(reason) => {
                confinement.missing.push(format!("{} ({reason})", protection.description))
            }
        }
    }
    confinement
}

impl<'a> Protection<'a> {
    fn new(
        description: impl Into<String>,
        apply: impl Fn() -> Result<(), String> + 'a,
        test: impl Fn() -> Result<(), String> + 'a,
    ) -> Protection<'a> {
        Protection { description: description.into(), apply: Box::new(apply), test: Box::new(test) }
    }

    fn limit(description: impl Into<String>, resource: Resource, limit: u64) -> Protection<'a> {
        Protection::new(
            description,
            move || set_limit(resource, limit),
            move || self_test::limit(resource, limit),
        )
    }
}

/// All restrictions, in the order in which they are applied.
fn protections(limits: &ConfinementLimits) -> Vec<Protection<'_>> {
    let memory = limits.memory_bytes;
    vec![
        Protection::new(
            format!("{} MiB of memory", memory / (1024 * 1024)),
            move || set_limit(Resource::As, memory),
            move || self_test::memory(memory),
        ),
        Protection::limit(
            format!("{} open files", limits.open_files),
            Resource::Nofile,
            limits.open_files,
        ),
        Protection::limit("no core files", Resource::Core, 0),
        Protection::limit("no file writes", Resource::Fsize, 0),
        Protection::new(
            "landlock: reads only the system's libraries",
            || disk::restrict_access(limits),
            self_test::disk,
        ),
        Protection::new("no capabilities", capabilities::drop_all, capabilities::check_none),
        Protection::new("a non-root account", || Ok(()), self_test::account),
        // Last: it refuses the calls that apply the others.
        Protection::new(
            "seccomp: an allowlist of system calls, without network, processes, programs and writing",
            syscalls::install_filter,
            self_test::calls,
        ),
    ]
}

fn set_limit(resource: Resource, limit: u64) -> Result<(), String> {
    let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
    setrlimit(resource, limit).map_err(|error| error.to_string())
}

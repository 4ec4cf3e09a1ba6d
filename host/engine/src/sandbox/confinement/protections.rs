//! The restrictions of a sandbox, in the order in which they are applied, each with its test.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{capabilities, disk, self_test, syscalls};
use crate::sandbox::info::{Confinement, ConfinementLimits, WritableFolder};

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

/// Confines this process, which has to have one thread: applies all restrictions and tests each.
///
/// They cannot be lifted again. What the process opened before stays open. Where the kernel lacks landlock, the
/// process writes nowhere, also not below `limits.writable`.
#[must_use]
pub fn confine(limits: &ConfinementLimits) -> Confinement {
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
    let (file_limit, file_bytes, reach) = match &limits.writable {
        None => ("no file writes".to_owned(), 0, "reads only the system's libraries"),
        Some(WritableFolder { file_bytes, .. }) => (
            format!("files of at most {} MiB", file_bytes / (1024 * 1024)),
            *file_bytes,
            "reads only the system's libraries, writes only below its working folder",
        ),
    };
    let writes = if limits.writable.is_some() { "" } else { " and writing" };
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
        Protection::limit(file_limit, Resource::Fsize, file_bytes),
        Protection::new(
            format!("landlock: {reach}"),
            || disk::restrict_access(limits),
            self_test::disk,
        ),
        Protection::new("no capabilities", capabilities::drop_all, capabilities::check_none),
        Protection::new("a non-root account", || Ok(()), self_test::account),
        // Last: it refuses the calls that apply the others.
        Protection::new(
            format!(
                "seccomp: an allowlist of system calls, without network, processes, programs{writes}"
            ),
            // Numbers do not name a folder: the filter leaves that to landlock.
            || syscalls::install_filter(limits.writable.is_some() && self_test::disk().is_ok()),
            self_test::calls,
        ),
    ]
}

fn set_limit(resource: Resource, limit: u64) -> Result<(), String> {
    // A lower limit of the host stays: only root may raise it.
    let limit = getrlimit(resource).maximum.map_or(limit, |maximum| limit.min(maximum));
    let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
    setrlimit(resource, limit).map_err(|error| error.to_string())
}

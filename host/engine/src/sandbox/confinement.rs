//! Confines a sandbox: resource limits, read-only access to few files, an allowlist of system calls. The
//! process confines itself before any code of an engine runs; the restrictions cannot be lifted.

mod capabilities;
mod disk;
mod self_test;
mod syscalls;

use std::path::PathBuf;

use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// The resources of a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConfinementLimits {
    /// The address space.
    pub(super) memory_bytes: u64,
    /// The number of open descriptors.
    pub(super) open_files: u64,
    /// Readable paths beside the system's libraries.
    pub(super) readable: Vec<PathBuf>,
}

/// The restrictions of a sandbox, and those that this machine's kernel lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// In force.
    pub applied: Vec<String>,
    /// Not in force, each with the reason.
    pub missing: Vec<String>,
}

/// Closes the descriptors of the host, and ties the life of this process to that of the host.
///
/// # Errors
///
/// When the host has ended.
pub(super) fn detach_from_host(host: i32) -> Result<(), String> {
    close_inherited();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| format!("no signal when the host ends: {error}"))?;
    // The signal does not come if the host ended before it was requested.
    if nix::unistd::getppid() == Pid::from_raw(host) {
        Ok(())
    } else {
        Err("the host has ended".into())
    }
}

/// Closes all descriptors but standard input, which is the socket, and the two outputs.
fn close_inherited() {
    let listed = std::fs::read_dir("/proc/self/fd").map(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse::<i32>().ok()).collect::<Vec<_>>()
    });
    // Without `/proc`: the usual limit of descriptors.
    let open = listed.unwrap_or_else(|_| (3..1024).collect());
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // Fails for the descriptor of the folder that was just listed.
        let _ = nix::unistd::close(descriptor);
    }
}

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
pub(super) fn confine(limits: &ConfinementLimits) -> Confinement {
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

//! What holds a worker: limits of the system, a view of the disk that can only be read, calls of the
//! kernel that fail. A worker puts it on itself before anything of an engine runs, and never off.

mod capabilities;
mod disk;
mod self_test;
mod syscalls;

use std::path::PathBuf;

use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// What a worker may use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConfinementLimits {
    /// Address space.
    pub(super) memory_bytes: u64,
    /// Open descriptors.
    pub(super) open_files: u64,
    /// What may be read beside the system's libraries.
    pub(super) readable: Vec<PathBuf>,
}

/// What holds a worker, and what this machine's kernel does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// In force.
    pub applied: Vec<String>,
    /// Not in force, with the reason.
    pub missing: Vec<String>,
}

/// Lets go of what came from the host: its descriptors, and a life longer than its own.
///
/// # Errors
///
/// When the host is gone already.
pub(super) fn detach_from_host(host: i32) -> Result<(), String> {
    close_inherited();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| format!("no signal at the host's end: {error}"))?;
    // It may have ended just before.
    if nix::unistd::getppid() == Pid::from_raw(host) {
        Ok(())
    } else {
        Err("the host is gone".into())
    }
}

/// Only the wire, which stands in for standard input, and the two outputs stay open.
fn close_inherited() {
    let listed = std::fs::read_dir("/proc/self/fd").map(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse::<i32>().ok()).collect::<Vec<_>>()
    });
    let open = listed.unwrap_or_else(|_| (3..1024).collect());
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // One that is not open any more is the folder that was just read.
        let _ = nix::unistd::close(descriptor);
    }
}

/// What may fail, with the reason.
type ProtectionStep<'a> = Box<dyn Fn() -> Result<(), String> + 'a>;

/// One thing that holds a worker.
struct Protection<'a> {
    /// What it is, for people.
    what: String,
    /// Puts it on.
    put_on: ProtectionStep<'a>,
    /// Tries whether it holds, once all are on: what a kernel says it has done is not what it does.
    try_out: ProtectionStep<'a>,
}

/// Puts everything on that this kernel has, and tries it.
pub(super) fn confine(limits: &ConfinementLimits) -> Confinement {
    let protections = protections(limits);
    let put_on: Vec<_> = protections.iter().map(|protection| (protection.put_on)()).collect();
    let mut confinement = Confinement::default();
    for (protection, put_on) in protections.into_iter().zip(put_on) {
        match put_on.and_then(|()| (protection.try_out)()) {
            Ok(()) => confinement.applied.push(protection.what),
            Err(reason) => confinement.missing.push(format!("{} ({reason})", protection.what)),
        }
    }
    confinement
}

impl<'a> Protection<'a> {
    fn new(
        what: impl Into<String>,
        put_on: impl Fn() -> Result<(), String> + 'a,
        try_out: impl Fn() -> Result<(), String> + 'a,
    ) -> Protection<'a> {
        Protection { what: what.into(), put_on: Box::new(put_on), try_out: Box::new(try_out) }
    }

    fn limit(what: impl Into<String>, resource: Resource, most: u64) -> Protection<'a> {
        Protection::new(
            what,
            move || limit(resource, most),
            move || self_test::limit(resource, most),
        )
    }
}

/// All of them, in their order.
fn protections(limits: &ConfinementLimits) -> Vec<Protection<'_>> {
    let memory = limits.memory_bytes;
    vec![
        Protection::new(
            format!("{} MiB of memory", memory / (1024 * 1024)),
            move || limit(Resource::As, memory),
            move || self_test::memory(memory),
        ),
        Protection::limit(
            format!("{} open files", limits.open_files),
            Resource::Nofile,
            limits.open_files,
        ),
        Protection::limit("no core files", Resource::Core, 0),
        Protection::limit("files of no size", Resource::Fsize, 0),
        Protection::new(
            "landlock: nothing but the system's libraries is read",
            || disk::restrict_access(limits),
            self_test::disk,
        ),
        Protection::new("no capabilities", capabilities::drop_all, capabilities::check_none),
        Protection::new("an account that is not root's", || Ok(()), self_test::account),
        // Last: it refuses the calls that the others are put on with.
        Protection::new(
            "seccomp: a reviewed list of system calls, no network, process, program or writing",
            syscalls::install_filter,
            self_test::calls,
        ),
    ]
}

fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).map_err(|error| error.to_string())
}

//! What holds a worker: limits of the system, a view of the disk that can only be read, calls of the
//! kernel that fail. A worker puts it on itself before anything of an engine runs, and never off.

mod capabilities;
mod disk;
mod syscalls;

use std::path::PathBuf;

use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// What a worker may use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Limits {
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

impl Confinement {
    fn note(&mut self, what: &str, done: Result<(), String>) {
        match done {
            Ok(()) => self.applied.push(what.into()),
            Err(reason) => self.missing.push(format!("{what} ({reason})")),
        }
    }
}

/// Lets go of what came from the host: its descriptors, and a life longer than its own.
///
/// # Errors
///
/// When the host is gone already.
pub(super) fn leave_host(host: i32) -> Result<(), String> {
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

/// Puts everything on that this kernel has.
pub(super) fn confine(limits: &Limits) -> Confinement {
    let mut confinement = Confinement::default();
    let memory = format!("{} MiB of memory", limits.memory_bytes / (1024 * 1024));
    confinement.note(&memory, limit(Resource::As, limits.memory_bytes));
    let files = format!("{} open files", limits.open_files);
    confinement.note(&files, limit(Resource::Nofile, limits.open_files));
    confinement.note("no core files", limit(Resource::Core, 0));
    confinement.note("files of no size", limit(Resource::Fsize, 0));
    confinement.note("landlock: nothing but the system's libraries is read", disk::close(limits));
    confinement.note("no capabilities", capabilities::give_up());
    confinement.note("an account that is not root's", no_root());
    // Last: it refuses the calls that the others are put on with.
    confinement.note(
        "seccomp: a reviewed list of system calls, no network, process, program or writing",
        syscalls::forbid(),
    );
    confinement
}

/// Files of root are its own even without capabilities.
fn no_root() -> Result<(), String> {
    match rustix::process::geteuid().is_root() || rustix::process::getuid().is_root() {
        false => Ok(()),
        true => {
            Err("ctxhost runs as root, and so do its engines; start it as an ordinary user".into())
        }
    }
}

fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).map_err(|error| error.to_string())
}

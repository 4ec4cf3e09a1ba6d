//! Tests in the sandbox that the restrictions are in force, before any code of an engine runs.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

use rustix::process::{Resource, getrlimit};

/// An allocation of the whole address space fails.
pub(super) fn memory(limit: u64) -> Result<(), String> {
    let limit_bytes = usize::try_from(limit).unwrap_or(usize::MAX);
    match Vec::<u8>::new().try_reserve_exact(limit_bytes) {
        Err(_) => self::limit(Resource::As, limit),
        Ok(()) => Err("a larger allocation succeeded".into()),
    }
}

/// The kernel reports the limit, and that it cannot be raised.
pub(super) fn limit(resource: Resource, limit: u64) -> Result<(), String> {
    let current = getrlimit(resource);
    match (current.current, current.maximum) {
        (Some(current), Some(maximum)) if current <= limit && maximum <= limit => Ok(()),
        other => Err(format!("the limit is {other:?}")),
    }
}

/// A folder outside the allowed ones is unreadable. Any account may list `/` without landlock.
pub(super) fn disk() -> Result<(), String> {
    match fs::read_dir("/").map(drop) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(format!("the test failed with: {error}")),
        Ok(()) => Err("the test succeeded in spite of it".into()),
    }
}

/// Landlock and capabilities are those of a thread, and later threads inherit them.
pub(super) fn is_only_thread() -> Result<(), String> {
    // Without `/proc` nothing is known.
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads == 1 { Ok(()) } else { Err(format!("the process has {threads} threads already")) }
}

/// No socket is created, and a file that is writable for all is not opened for writing.
pub(super) fn calls() -> Result<(), String> {
    let socket = UnixDatagram::unbound().map(drop);
    let written = File::options().write(true).open("/dev/null").map(drop);
    for result in [socket, written] {
        match result {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(format!("the test failed with: {error}")),
            Ok(()) => return Err("the test succeeded in spite of it".into()),
        }
    }
    Ok(())
}

/// Root owns files of root even without capabilities.
pub(super) fn account() -> Result<(), String> {
    if rustix::process::geteuid().is_root() || rustix::process::getuid().is_root() {
        return Err("ctxhost and its engines run as root; start it as an ordinary user".into());
    }
    Ok(())
}

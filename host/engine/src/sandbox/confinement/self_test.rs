//! Tries in the worker whether what was put on holds, before anything of an engine runs.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

use rustix::process::{Resource, getrlimit};

/// More address space than the limit cannot be had.
pub(super) fn memory(most: u64) -> Result<(), String> {
    let most_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    match Vec::<u8>::new().try_reserve_exact(most_bytes) {
        Err(_) => limit(Resource::As, most),
        Ok(()) => Err("more could be had".into()),
    }
}

/// The kernel says that this is the limit, and that it cannot be raised.
pub(super) fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let limit = getrlimit(resource);
    match (limit.current, limit.maximum) {
        (Some(current), Some(maximum)) if current <= most && maximum <= most => Ok(()),
        other => Err(format!("the limit is {other:?}")),
    }
}

/// No folder that is not the system's is read. Everybody may list the root of the disk where nothing
/// forbids it.
pub(super) fn disk() -> Result<(), String> {
    match fs::read_dir("/").map(drop) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(format!("tried, and the kernel says: {error}")),
        Ok(()) => Err("tried, and it does not hold".into()),
    }
}

/// No socket is made, and nothing is opened for writing that anybody may write to.
pub(super) fn calls() -> Result<(), String> {
    let socket = UnixDatagram::unbound().map(drop);
    let written = File::options().write(true).open("/dev/null").map(drop);
    for tried in [socket, written] {
        match tried {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(format!("tried, and the kernel says: {error}")),
            Ok(()) => return Err("tried, and it does not hold".into()),
        }
    }
    Ok(())
}

/// Files of root are its own even without capabilities.
pub(super) fn account() -> Result<(), String> {
    match rustix::process::geteuid().is_root() || rustix::process::getuid().is_root() {
        false => Ok(()),
        true => {
            Err("ctxhost runs as root, and so do its engines; start it as an ordinary user".into())
        }
    }
}

//! Confines a sandbox: resource limits, read-only access to few files, an allowlist of system calls. The
//! process confines itself before any code of an engine runs; the restrictions cannot be lifted.
//!
//! Only Linux has them. On other systems the process is separate, but has all rights of the user.

#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod protections;
#[cfg(target_os = "linux")]
mod self_test;
#[cfg(target_os = "linux")]
mod syscalls;

use ctxhost_platform::processes::parent_id;

#[cfg(target_os = "linux")]
pub use self::protections::confine;

/// Closes the descriptors that this process inherited, and ends it when its parent, the process `host`, ends.
///
/// # Errors
///
/// When the host has ended.
pub fn detach_from_host(host: u32) -> Result<(), String> {
    close_inherited();
    // Elsewhere the process ends when its socket does.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| format!("no signal when the host ends: {error}"))?;
    // The signal does not come if the host ended before it was requested.
    if parent_id() == Some(host) { Ok(()) } else { Err("the host has ended".into()) }
}

/// Closes all descriptors but standard input, which is the socket of a sandbox, and the two outputs.
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

//! Processes: groups, limits, and how a process ended.

#[cfg_attr(unix, path = "processes/unix.rs")]
#[cfg_attr(windows, path = "processes/windows.rs")]
mod system;

mod groups;

pub use groups::{RUNNING_GROUPS, RunningGroups};
pub use system::{
    OutputReader, abort_signal, async_reader, host_name, is_alive, kill_group, lead_group,
    limit_arenas, limit_memory, parent_id, raise_open_files, signal_name, signal_of,
};

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_group_ends_with_its_leader() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--list").stdout(Stdio::null());
        lead_group(&mut command);
        let mut child = command.spawn().unwrap();
        assert!(is_alive(child.id()));
        kill_group(child.id());
        let _ = child.wait().unwrap();
        assert!(is_alive(std::process::id()));
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(!host_name().is_empty());
    }
}

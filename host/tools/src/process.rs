//! A child process in a group of its own, so that all it starts ends with it.

use std::io;
use std::process::ExitStatus;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// A child and its group. Dropping it kills the whole group; only what made itself a session of its
/// own, as `setsid` does, lives on.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    child: Child,
    leader: Option<Pid>,
}

impl ProcessGroup {
    pub(super) fn spawn(mut command: Command) -> io::Result<ProcessGroup> {
        // The group is killed by us; the flag has tokio collect the child afterwards.
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(ProcessGroup { child, leader })
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the child, then ends what it left behind. Safe to drop and to call again.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.kill();
        Ok(status)
    }

    /// Whether the child has ended. What it left behind is ended then.
    pub(super) fn has_ended(&mut self) -> bool {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if has_ended {
            self.kill();
        }
        has_ended
    }

    /// Kills the group, once: later the number may be somebody else's.
    pub(super) fn kill(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        // That everybody is gone already is no error.
        let _ = killpg(leader, Signal::SIGKILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

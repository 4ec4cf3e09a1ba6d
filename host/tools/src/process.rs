//! Child processes in their own process group, which ends with them.

use std::io;
use std::process::ExitStatus;

use ctxhost_platform::processes::{RUNNING_GROUPS, lead_group};
use tokio::process::{Child, Command};

/// A child and its process group. Dropping it kills the group; only a process that has called `setsid` survives.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    child: Child,
    leader: Option<u32>,
}

impl ProcessGroup {
    pub(super) fn spawn(mut command: Command) -> io::Result<ProcessGroup> {
        // `kill_on_drop` makes tokio reap the child; the group is killed below.
        lead_group(command.as_std_mut());
        let child = command.kill_on_drop(true).spawn()?;
        let leader = child.id();
        // A signal that ends this process reaches only its own group.
        if let Some(leader) = leader {
            RUNNING_GROUPS.add(leader);
        }
        Ok(ProcessGroup { child, leader })
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the child, then kills the rest of its group. Cancel-safe and repeatable.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.kill();
        Ok(status)
    }

    /// Whether the child has ended; if so, kills the rest of its group.
    pub(super) fn has_ended(&mut self) -> bool {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if has_ended {
            self.kill();
        }
        has_ended
    }

    /// Kills the group, once: later the id may belong to another process.
    pub(super) fn kill(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        RUNNING_GROUPS.kill(leader);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

//! The running groups of processes, which a signal to this process ends with it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::system::kill_group;

/// Groups that a program has started, by their leaders.
#[derive(Debug)]
pub struct RunningGroups(Mutex<GroupList>);

#[derive(Debug)]
struct GroupList {
    leaders: BTreeSet<u32>,
    is_ended: bool,
}

/// The groups of this process.
pub static RUNNING_GROUPS: RunningGroups = RunningGroups::new();

impl RunningGroups {
    const fn new() -> RunningGroups {
        RunningGroups(Mutex::new(GroupList { leaders: BTreeSet::new(), is_ended: false }))
    }

    /// Adds a group, from [`super::lead_group`].
    pub fn add(&self, leader: u32) {
        let mut list = self.list();
        if list.is_ended {
            kill_group(leader);
        } else {
            list.leaders.insert(leader);
        }
    }

    /// Kills a group and removes it. Its leader must not have been waited for long ago, see [`kill_group`].
    pub fn kill(&self, leader: u32) {
        let mut list = self.list();
        list.leaders.remove(&leader);
        kill_group(leader);
    }

    /// Kills all groups, and from now on each that is added.
    pub fn kill_all(&self) {
        let mut list = self.list();
        list.is_ended = true;
        for leader in std::mem::take(&mut list.leaders) {
            kill_group(leader);
        }
    }

    fn list(&self) -> MutexGuard<'_, GroupList> {
        // Nothing here panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::super::{lead_group, signal_of};
    use super::*;

    fn start() -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").stdout(Stdio::null());
        lead_group(&mut command);
        command.spawn().unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn all_groups_end_and_later_ones_too() {
        let groups = RunningGroups::new();
        let [mut first, mut second, mut late] = [start(), start(), start()];
        groups.add(first.id());
        groups.add(second.id());
        groups.kill(first.id());
        assert_eq!(signal_of(first.wait().unwrap()), Some(9));
        groups.kill_all();
        assert_eq!(signal_of(second.wait().unwrap()), Some(9));
        groups.add(late.id());
        assert_eq!(signal_of(late.wait().unwrap()), Some(9));
    }
}

//! Watches what a worker uses while it runs: its threads, and processor time outside of calls.
//!
//! No limit of the kernel does this for one process: those of threads count all of an account, those of
//! processor time count calls as well.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::SandboxSettings;
use super::process::SandboxProcess;

/// How often it is looked: a few reads of one file, unseen by anybody.
const EVERY: Duration = Duration::from_millis(250);

/// The time for which `background_cpu_ms` is a limit.
const WINDOW: Duration = Duration::from_secs(60);

/// The unit in which the kernel tells processor time: `USER_HZ`, the same on all our platforms.
const TICK: Duration = Duration::from_millis(10);

/// What a process uses at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessUsage {
    threads: u64,
    /// Processor time since it began, of all its threads.
    cpu: Duration,
}

/// Which calls a worker has: how many began, and whether one is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallActivity {
    pub(super) begun: u64,
    pub(super) is_running: bool,
}

/// Kills the worker when it uses too much, until `ended` says that it is gone.
pub(super) fn enforce_limits(
    process: &SandboxProcess,
    settings: &SandboxSettings,
    calling: impl Fn() -> CallActivity,
    ended: &Receiver<()>,
) {
    let mut background = BackgroundCpu::new(Duration::from_millis(settings.background_cpu_ms));
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        // Asked before it is looked: a call that begins meanwhile is none of the time before.
        let calls = calling();
        let Some(usage) = process.with_running_pid(read_usage).flatten() else { continue };
        if usage.threads > settings.threads {
            let (threads, most) = (usage.threads, settings.threads);
            process.kill(Some(&format!(
                "was killed, because it had {threads} threads, {most} are allowed (plugins.worker.threads)"
            )));
        } else if let Some(spent) = background.record(usage.cpu, calls, Instant::now()) {
            let (spent, most) = (spent.as_millis(), settings.background_cpu_ms);
            process.kill(Some(&format!(
                "was killed, because it used {spent} ms of processor time within a minute while no call \
                 was under way, {most} are allowed (plugins.worker.background_cpu_ms)"
            )));
        }
    }
}

/// Processor time between calls.
struct BackgroundCpu {
    most: Duration,
    last: Option<(Duration, CallActivity)>,
    began: Option<Instant>,
    spent: Duration,
}

impl BackgroundCpu {
    fn new(most: Duration) -> BackgroundCpu {
        BackgroundCpu { most, last: None, began: None, spent: Duration::ZERO }
    }

    /// Takes note of the time used so far; answers what was spent where it is too much.
    fn record(&mut self, cpu: Duration, calls: CallActivity, now: Instant) -> Option<Duration> {
        if self.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            (self.began, self.spent) = (Some(now), Duration::ZERO);
        }
        if let Some((before, calls_before)) = self.last.replace((cpu, calls)) {
            let nobody_asked = !calls.is_running && calls == calls_before;
            if nobody_asked {
                self.spent += cpu.saturating_sub(before);
            }
        }
        (self.spent > self.most).then_some(self.spent)
    }
}

/// Reads it of a process that runs; `None` where the kernel does not tell.
fn read_usage(pid: u32) -> Option<ProcessUsage> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&line)
}

fn parse(line: &str) -> Option<ProcessUsage> {
    // The name of the program stands in brackets and may hold anything.
    let (_, rest) = line.rsplit_once(')')?;
    let numbers: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| numbers.get(at)?.parse::<u64>().ok();
    let ticks = number(11)?.checked_add(number(12)?)?;
    Some(ProcessUsage {
        threads: number(17)?,
        cpu: TICK * u32::try_from(ticks).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read_whatever_the_program_is_called() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 1 2 3";
        let usage = parse(line).unwrap();
        assert_eq!(usage, ProcessUsage { threads: 9, cpu: Duration::from_secs(2) });
        assert_eq!(parse(""), None);
        assert!(read_usage(std::process::id()).unwrap().threads >= 1);
    }

    #[test]
    fn time_between_calls_counts_and_time_in_calls_does_not() {
        let ms = Duration::from_millis;
        let mut background = BackgroundCpu::new(ms(100));
        let start = Instant::now();
        let none = |begun| CallActivity { begun, is_running: false };
        let some = |begun| CallActivity { begun, is_running: true };
        assert_eq!(background.record(ms(0), none(0), start), None);
        assert_eq!(background.record(ms(90), none(0), start), None);
        assert_eq!(background.record(ms(5_000), some(1), start), None, "a call is under way");
        assert_eq!(background.record(ms(9_000), none(1), start), None, "one was, meanwhile");
        assert_eq!(background.record(ms(9_900), none(2), start), None, "one began and ended");
        assert_eq!(background.record(ms(9_920), none(2), start), Some(ms(110)));
        let later = start + WINDOW;
        assert_eq!(background.record(ms(9_950), none(2), later), None, "another minute");
    }
}

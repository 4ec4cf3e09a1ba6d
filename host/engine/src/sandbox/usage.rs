//! Enforces the limits of a running sandbox: its threads, and its processor time between calls.
//!
//! The kernel has no such limits for one process: RLIMIT_NPROC counts all processes of an account, and
//! RLIMIT_CPU counts calls as well.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::process::SandboxProcess;
use super::settings::SandboxSettings;
use ctxhost_engine_api::transcript::tokens::group_thousands;

/// The interval of the checks. A check reads one file of `/proc`, which costs microseconds.
const EVERY: Duration = Duration::from_millis(250);

/// The period of `background_cpu_ms`.
const WINDOW: Duration = Duration::from_secs(60);

/// The unit of processor time in `/proc`: `USER_HZ`, which is 100 on all supported platforms.
const TICK: Duration = Duration::from_millis(10);

/// The resource usage of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessUsage {
    threads: u64,
    /// Processor time since its start, of all threads.
    cpu: Duration,
}

/// The calls of a sandbox: how many began, and whether one is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallActivity {
    pub(super) begun: u64,
    pub(super) is_running: bool,
}

/// Kills the process when it exceeds a limit. Returns when the process has exited.
pub(super) fn enforce_limits(
    process: &SandboxProcess,
    settings: &SandboxSettings,
    activity: impl Fn() -> CallActivity,
    exited: &Receiver<()>,
) {
    let mut background = BackgroundCpu::new(Duration::from_millis(settings.background_cpu_ms));
    while exited.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        // Before the usage: time before a call must not be excused by a call that begins in between.
        let calls = activity();
        let Some(usage) = process.with_running_pid(read_usage).flatten() else { continue };
        if usage.threads > settings.threads {
            let (threads, limit) = (usage.threads, settings.threads);
            process.kill(Some(&format!(
                "was killed: it had {threads} threads, the limit is {limit} (plugins.sandbox.threads)"
            )));
        } else if let Some(spent) = background.record(usage.cpu, calls, Instant::now()) {
            let spent_ms = group_thousands(u64::try_from(spent.as_millis()).unwrap_or(u64::MAX));
            let limit_ms = group_thousands(settings.background_cpu_ms);
            process.kill(Some(&format!(
                "was killed: it used {spent_ms} ms of processor time in a minute between calls, \
                 the limit is {limit_ms} ms (plugins.sandbox.background_cpu_ms)"
            )));
        }
    }
}

/// Processor time between calls.
struct BackgroundCpu {
    limit: Duration,
    last: Option<(Duration, CallActivity)>,
    began: Option<Instant>,
    spent: Duration,
}

impl BackgroundCpu {
    fn new(limit: Duration) -> BackgroundCpu {
        BackgroundCpu { limit, last: None, began: None, spent: Duration::ZERO }
    }

    /// Records the processor time so far; returns the time spent between calls where it exceeds the limit.
    fn record(&mut self, cpu: Duration, calls: CallActivity, now: Instant) -> Option<Duration> {
        if self.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            (self.began, self.spent) = (Some(now), Duration::ZERO);
        }
        if let Some((before, calls_before)) = self.last.replace((cpu, calls)) {
            let is_idle = !calls.is_running && calls == calls_before;
            if is_idle {
                self.spent += cpu.saturating_sub(before);
            }
        }
        (self.spent > self.limit).then_some(self.spent)
    }
}

/// The usage of a running process; `None` where `/proc` has none.
fn read_usage(pid: u32) -> Option<ProcessUsage> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&line)
}

fn parse(line: &str) -> Option<ProcessUsage> {
    // The program name is in parentheses and may contain any character, parentheses included.
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

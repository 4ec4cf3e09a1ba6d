//! What the servers of this process use of the processor.

use std::time::Duration;

/// The names of the threads of the upstream and of the bare proxy.
pub(crate) const UPSTREAM: &str = "upstream";
pub(crate) const BARE: &str = "bare";

/// The processor time of all threads with a name; zero where the system does not say.
pub(crate) fn cpu_of(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let named = tasks.map(|task| task.path()).filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    named.map(|task| cpu_in(&task.join("schedstat"))).sum()
}

/// The processor time of the gateway: of this process without the upstream, the bare proxy and the client, which is the
/// first thread. Threads that have ended count as well.
pub(crate) fn cpu_of_gateway() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};

    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let times = [usage.user_time(), usage.system_time()];
    let micros: i64 = times.iter().map(|time| time.tv_sec() * 1_000_000 + time.tv_usec()).sum();
    let first = format!("/proc/self/task/{}/schedstat", std::process::id());
    let others = cpu_of(UPSTREAM) + cpu_of(BARE) + cpu_in(first.as_ref());
    Duration::from_micros(micros.unsigned_abs()).saturating_sub(others)
}

fn cpu_in(schedstat: &std::path::Path) -> Duration {
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

//! The group `resources`: time per call, peak memory, and leaks over create and dispose.

use std::fs;
use std::time::Duration;

use ctxhost_engine_api::Trigger;

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::report::MethodTime;
use crate::session::expect_ok;
use crate::settings::{ENGINE_LIVES, LEFT_BEHIND_BYTES, MEASURED_ENTRIES};
use crate::workload;

pub(super) const CASES: [NamedCase; 2] =
    [("time and memory of every call", times), ("created and disposed repeatedly", lives)];

/// How often the calls of a request are measured.
const REQUESTS: usize = 20;

const TURN_ENTRIES: u64 = 6;

fn times(harness: &CaseHarness<'_>) -> CaseOutcome {
    let builder = workload::session(MEASURED_ENTRIES / TURN_ENTRIES);
    let view = builder.transcript();
    // Resident memory before the engine is created, to report its own part of the peak.
    let before = memory("VmRSS:");
    let mut times = CallTimes::default();
    let target = harness.open(harness.host_with_model())?;
    target.bootstrap(&view)?;
    times.record("bootstrap", target.last_duration());
    let (len, budget) = (view.len() as u64, view.total_tokens() / 4);
    target.ingest(&view, 0..len)?;
    times.record("ingest_batch", target.last_duration());
    for turn in 0..REQUESTS {
        target.ingest(&view, len - 1..len)?;
        times.record("ingest", target.last_duration());
        target.assemble(&view, budget)?;
        times.record("assemble", target.last_duration());
        expect_ok("after_turn", target.after_turn(&view, len - TURN_ENTRIES..len)?)?;
        times.record("after_turn", target.last_duration());
        let _ = target.commit(&view, &format!("turn-{turn}"))?;
        times.record("commit_turn", target.last_duration());
        let _ = target.maintain(&view)?;
        times.record("maintain", target.last_duration());
    }
    let _ = target.compact(&view, budget, Trigger::Overflow)?;
    times.record("compact", target.last_duration());
    target.dispose()?;
    times.record("dispose", target.last_duration());
    let peak_bytes = memory("VmHWM:");
    let grown = peak_bytes.saturating_sub(before) >> 20;
    let assemble = times.median("assemble");
    let note = format!("{len} messages: assemble {:.2} ms, {grown} MiB", assemble as f64 / 1_000.0);
    let times = times.times();
    Ok(CaseStats { checks: times.len() as u64, note, times, peak_bytes, ..CaseStats::default() })
}

/// Creates and disposes the engine repeatedly: a leak adds up in a host that reloads engines.
fn lives(harness: &CaseHarness<'_>) -> CaseOutcome {
    let view = workload::session(20).transcript();
    let life = || {
        let target = harness.open(harness.host())?;
        target.bootstrap_and_ingest(&view)?;
        target.assemble(&view, view.total_tokens() / 2)?;
        target.dispose()
    };
    // Warm-up: one-time initialisation and allocator growth are not leaks.
    (0..ENGINE_LIVES / 10).try_for_each(|_| life())?;
    let before = memory("VmRSS:");
    (0..ENGINE_LIVES).try_for_each(|_| life())?;
    let left = memory("VmRSS:").saturating_sub(before);
    if left > LEFT_BEHIND_BYTES {
        let message = format!(
            "{ENGINE_LIVES} times created and disposed, the engine leaked {} MiB; does dispose release \
             sessions and threads?",
            left >> 20
        );
        return Err(CheckFault::new("leak", message));
    }
    Ok(CaseStats {
        checks: ENGINE_LIVES,
        note: format!("{ENGINE_LIVES} times without a leak"),
        ..CaseStats::default()
    })
}

/// A memory size of this process from `/proc/self/status`, in bytes; 0 if unavailable.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The durations of calls by name, in the order of their first call.
#[derive(Default)]
struct CallTimes {
    noted: Vec<(&'static str, Vec<u64>)>,
}

impl CallTimes {
    fn record(&mut self, method: &'static str, duration: Duration) {
        let duration = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        match self.noted.iter_mut().find(|(name, _)| *name == method) {
            Some((_, times)) => times.push(duration),
            None => self.noted.push((method, vec![duration])),
        }
    }

    fn median(&self, method: &str) -> u64 {
        let times = self.noted.iter().find(|(name, _)| *name == method);
        times.map_or(0, |(_, times)| median(times))
    }

    fn times(self) -> Vec<MethodTime> {
        let time = |(method, times): (&str, Vec<u64>)| MethodTime {
            method: method.to_owned(),
            calls: times.len() as u64,
            median_us: median(&times),
            longest_us: times.iter().copied().max().unwrap_or(0),
        };
        self.noted.into_iter().map(time).collect()
    }
}

fn median(times: &[u64]) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    // The upper median: exact enough for a report.
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_keeps_the_middle_and_the_longest() {
        let mut times = CallTimes::default();
        for duration in [5, 1, 9] {
            times.record("assemble", Duration::from_micros(duration));
        }
        let times = times.times();
        assert_eq!((times[0].calls, times[0].median_us, times[0].longest_us), (3, 5, 9));
        assert!(memory("VmHWM:") > 0);
    }
}

//! `resources`: what an engine costs: time per call, memory, and what it leaves behind when it is gone.

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
    [("time and memory of every call", times), ("created and let go of, again and again", lives)];

/// How often the calls of every request are measured.
const REQUESTS: usize = 20;

/// Entries that come with one turn.
const TURN_ENTRIES: u64 = 6;

fn times(bench: &CaseHarness<'_>) -> CaseOutcome {
    let talk = workload::session(MEASURED_ENTRIES / TURN_ENTRIES);
    let view = talk.transcript();
    let before = memory("VmRSS:");
    let mut clock = CallTimes::default();
    let stage = bench.open(bench.host_with_model())?;
    stage.bootstrap(&view)?;
    clock.record("bootstrap", stage.last_duration());
    let (len, budget) = (view.len() as u64, view.total_tokens() / 4);
    stage.ingest(&view, 0..len)?;
    clock.record("ingest_batch", stage.last_duration());
    for turn in 0..REQUESTS {
        stage.ingest(&view, len - 1..len)?;
        clock.record("ingest", stage.last_duration());
        stage.assemble(&view, budget)?;
        clock.record("assemble", stage.last_duration());
        expect_ok("after_turn", stage.after_turn(&view, len - TURN_ENTRIES..len)?)?;
        clock.record("after_turn", stage.last_duration());
        let _ = stage.commit(&view, &format!("turn-{turn}"))?;
        clock.record("commit_turn", stage.last_duration());
        let _ = stage.maintain(&view)?;
        clock.record("maintain", stage.last_duration());
    }
    let _ = stage.compact(&view, budget, Trigger::Overflow)?;
    clock.record("compact", stage.last_duration());
    stage.dispose()?;
    clock.record("dispose", stage.last_duration());
    let peak_bytes = memory("VmHWM:");
    let grown = peak_bytes.saturating_sub(before) >> 20;
    let assemble = clock.median("assemble");
    let note = format!("{len} messages: assemble {:.2} ms, {grown} MiB", assemble as f64 / 1_000.0);
    let times = clock.times();
    Ok(CaseStats { checks: times.len() as u64, note, times, peak_bytes, ..CaseStats::default() })
}

/// A leak of each life adds up where engines are swapped while the host runs.
fn lives(bench: &CaseHarness<'_>) -> CaseOutcome {
    let view = workload::session(20).transcript();
    let life = || {
        let stage = bench.open(bench.host())?;
        stage.bootstrap_and_ingest(&view)?;
        stage.assemble(&view, view.total_tokens() / 2)?;
        stage.dispose()
    };
    // What is set up once is no leak.
    (0..ENGINE_LIVES / 10).try_for_each(|_| life())?;
    let before = memory("VmRSS:");
    (0..ENGINE_LIVES).try_for_each(|_| life())?;
    let left = memory("VmRSS:").saturating_sub(before);
    if left > LEFT_BEHIND_BYTES {
        let message = format!(
            "{ENGINE_LIVES} times created and let go of, the engine left {} MiB behind; does dispose let go of \
             its sessions and threads?",
            left >> 20
        );
        return Err(CheckFault::new("leak", message));
    }
    Ok(CaseStats {
        checks: ENGINE_LIVES,
        note: format!("{ENGINE_LIVES} lives leave nothing"),
        ..CaseStats::default()
    })
}

/// A size of this process as the kernel counts it, in bytes; 0 where it does not say.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The times of calls by their names, in the order of the first of each.
#[derive(Default)]
struct CallTimes {
    noted: Vec<(&'static str, Vec<u64>)>,
}

impl CallTimes {
    fn record(&mut self, method: &'static str, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        match self.noted.iter_mut().find(|(name, _)| *name == method) {
            Some((_, times)) => times.push(took),
            None => self.noted.push((method, vec![took])),
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
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_keeps_the_middle_and_the_longest() {
        let mut clock = CallTimes::default();
        for took in [5, 1, 9] {
            clock.record("assemble", Duration::from_micros(took));
        }
        let times = clock.times();
        assert_eq!((times[0].calls, times[0].median_us, times[0].longest_us), (3, 5, 9));
        assert!(memory("VmHWM:") > 0);
    }
}

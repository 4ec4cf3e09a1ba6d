//! `resources`: what an engine costs: time per call, memory, and what it leaves behind when it is gone.

use std::fs;
use std::time::Duration;

use ctxhost_engine_api::Trigger;

use super::Named;
use crate::bench::Bench;
use crate::fault::{Fault, Outcome, Passed};
use crate::report::MethodTime;
use crate::settings::{LEFT_BEHIND_BYTES, LIVES, MEASURED_ENTRIES};
use crate::stage::must;
use crate::working;

pub(super) const CASES: [Named; 2] =
    [("time and memory of every call", times), ("created and let go of, again and again", lives)];

/// How often the calls of every request are measured.
const REQUESTS: usize = 20;

/// Entries that come with one turn.
const TURN_ENTRIES: u64 = 6;

fn times(bench: &Bench<'_>) -> Outcome {
    let talk = working::session(MEASURED_ENTRIES / TURN_ENTRIES);
    let view = talk.transcript();
    let before = memory("VmRSS:");
    let mut clock = Clock::default();
    let stage = bench.open(bench.host_with_model())?;
    stage.bootstrap(&view)?;
    clock.note("bootstrap", stage.took());
    let (len, budget) = (view.len() as u64, view.total_tokens() / 4);
    stage.ingest(&view, 0..len)?;
    clock.note("ingest_batch", stage.took());
    for turn in 0..REQUESTS {
        stage.ingest(&view, len - 1..len)?;
        clock.note("ingest", stage.took());
        stage.assemble(&view, budget)?;
        clock.note("assemble", stage.took());
        must("after_turn", stage.after_turn(&view, len - TURN_ENTRIES..len)?)?;
        clock.note("after_turn", stage.took());
        let _ = stage.commit(&view, &format!("turn-{turn}"))?;
        clock.note("commit_turn", stage.took());
        let _ = stage.maintain(&view)?;
        clock.note("maintain", stage.took());
    }
    let _ = stage.compact(&view, budget, Trigger::Overflow)?;
    clock.note("compact", stage.took());
    stage.dispose()?;
    clock.note("dispose", stage.took());
    let peak_bytes = memory("VmHWM:");
    let grown = peak_bytes.saturating_sub(before) >> 20;
    let assemble = clock.median("assemble");
    let note = format!("{len} messages: assemble {:.2} ms, {grown} MiB", assemble as f64 / 1_000.0);
    let times = clock.times();
    Ok(Passed { checks: times.len() as u64, note, times, peak_bytes, ..Passed::default() })
}

/// A leak of each life adds up where engines are swapped while the host runs.
fn lives(bench: &Bench<'_>) -> Outcome {
    let view = working::session(20).transcript();
    let life = || {
        let stage = bench.open(bench.host())?;
        stage.take_in(&view)?;
        stage.assemble(&view, view.total_tokens() / 2)?;
        stage.dispose()
    };
    // What is set up once is no leak.
    (0..LIVES / 10).try_for_each(|_| life())?;
    let before = memory("VmRSS:");
    (0..LIVES).try_for_each(|_| life())?;
    let left = memory("VmRSS:").saturating_sub(before);
    if left > LEFT_BEHIND_BYTES {
        let message = format!(
            "{LIVES} times created and let go of, the engine left {} MiB behind; does dispose let go of \
             its sessions and threads?",
            left >> 20
        );
        return Err(Fault::new("leak", message));
    }
    Ok(Passed { checks: LIVES, note: format!("{LIVES} lives leave nothing"), ..Passed::default() })
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
struct Clock {
    noted: Vec<(&'static str, Vec<u64>)>,
}

impl Clock {
    fn note(&mut self, method: &'static str, took: Duration) {
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
        let mut clock = Clock::default();
        for took in [5, 1, 9] {
            clock.note("assemble", Duration::from_micros(took));
        }
        let times = clock.times();
        assert_eq!((times[0].calls, times[0].median_us, times[0].longest_us), (3, 5, 9));
        assert!(memory("VmHWM:") > 0);
    }
}

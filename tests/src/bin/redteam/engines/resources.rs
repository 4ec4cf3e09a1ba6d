//! What an engine must not exhaust: memory, threads, time, the log, the store, descriptors.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Hostile, SOON, attack};
use crate::gateway::ticks;
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::{Stand, peak_mib};

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("memory", "takes memory until there is none", memory),
        attack(
            "memory in pipes",
            "hides memory in pipes, where no limit of a process sees it",
            pipes,
        ),
        attack("memory in files", "hides memory in files that have no name", memory_files),
        attack("threads", "starts twice as many threads as it may have", threads),
        attack("cpu between calls", "goes on computing when nobody asked for anything", burn),
        attack("log flood", "logs without end", log),
        attack("store flood", "keeps values without end", store),
        attack("descriptors", "opens descriptors without end", descriptors),
        attack("words for a terminal", "logs line ends, escapes and titles of windows", words),
    ]
}

/// What an engine's process may hold: its limit of 1 GiB, and a little for the tables of the kernel.
const WORKER_MIB: u64 = 1_100;
/// What may stand beside that limit and is not seen by it.
const BESIDE_KIB: i64 = 64 << 10;

fn memory(stand: &Stand) {
    let hostile = Hostile::new("memory").with("amount", 3_000);
    let end = AtomicBool::new(false);
    let watched = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !end.load(Ordering::SeqCst) {
                most = most.max(largest_worker_mib(stand));
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        hostile.meets_a_conversation(stand, |met| met.gateway.must_take_at_most(500, "the host"));
        end.store(true, Ordering::SeqCst);
        watching.join().expect("a number")
    });
    stand.must(watched <= WORKER_MIB, Breach::Escaped, || {
        format!("the engine held {watched} MiB; its limit is 1024 MiB")
    });
    stand.must(watched > 100, Breach::Wrong, || {
        format!("the engine took {watched} MiB only, so the attack did not happen")
    });
}

/// The most that any process of this stand's engines held. They stand in the process table under the command of the host.
fn largest_worker_mib(stand: &Stand) -> u64 {
    let home = stand.path("").display().to_string();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_worker = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("engine-sandbox") && host_of(*pid, &home)
    };
    pids.filter(is_worker).map(peak_mib).max().unwrap_or(0)
}

/// Whether the parent of a process works in a folder below this one.
fn host_of(pid: u32, home: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let parent = behind.split_whitespace().nth(1).unwrap_or_default();
    fs::read_link(format!("/proc/{parent}/cwd")).is_ok_and(|cwd| cwd.starts_with(home))
}

fn hidden(stand: &Stand, attack: &str, claim: &str) {
    let hostile = Hostile::new(attack).with("amount", 512_i64 << 20);
    hostile.meets_a_conversation(stand, |met| {
        // An engine that died over it holds nothing any more.
        let kib = met.claimed(claim).unwrap_or(0);
        stand.must(kib <= BESIDE_KIB, Breach::Escaped, || {
            format!("{} MiB are held beside the limit of memory", kib / 1024)
        });
    });
}

fn pipes(stand: &Stand) {
    hidden(stand, "vmsplice", "vmspliced-kib");
}

fn memory_files(stand: &Stand) {
    hidden(stand, "memfd", "memfd-kib");
}

/// `plugins.sandbox.threads` as it is by default. Between two looks of the host more may start; the documents promise that the process
/// is killed then. The client is told of it by the next call, if at all.
const MOST_THREADS: usize = 256;

fn threads(stand: &Stand) {
    let hostile = Hostile::new("threads").with("amount", 2 * MOST_THREADS as i64);
    hostile.meets_a_conversation(stand, |met| {
        let count =
            |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let most = || met.gateway.workers().iter().map(count).max().unwrap_or(0);
        let begun = Instant::now();
        while most() > MOST_THREADS && begun.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(50));
        }
        let most = most();
        stand.must(most <= MOST_THREADS, Breach::Escaped, || {
            format!("{most} threads run on; {MOST_THREADS} are allowed")
        });
    });
}

/// What it may compute between calls, in ms; less than by default, so that nobody has to wait for it.
const BACKGROUND_MS: u64 = 1_000;
/// As much longer it may take until somebody has looked and acted.
const LATE_MS: u64 = 2_000;

/// It has to stop. What counts is the processor's time: on a busy machine little of it
/// passes.
fn burn(stand: &Stand) {
    let mut hostile = Hostile::new("burn");
    hostile.limits = format!("plugins.sandbox.background_cpu_ms = {BACKGROUND_MS}\n");
    hostile.meets_a_conversation(stand, |met| {
        met.must_have_acted();
        let begun = Instant::now();
        let mut last = ticks(&met.gateway.workers());
        let mut spent_ms = 0;
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = ticks(&met.gateway.workers());
            let more_ms = now.saturating_sub(last) * 10;
            (last, spent_ms) = (now, spent_ms + more_ms);
            if more_ms == 0 {
                break;
            }
            if spent_ms > BACKGROUND_MS + LATE_MS || begun.elapsed() > 3 * SOON {
                let what =
                    format!("the engine computes for {spent_ms} ms, {BACKGROUND_MS} are allowed");
                stand.broke(Breach::Unbounded, what);
                break;
            }
        }
    });
}

/// What an engine may leave in the log in all, in bytes: twice what `plugins.quotas.log_kib_per_minute` allows, for an attack that
/// crosses the border of a minute, and what the host says itself.
const LOG_BYTES: u64 = (2 * 256 + 128) << 10;

fn log(stand: &Stand) {
    let lines = stand.size(20_000, 60_000, 200_000);
    Hostile::new("log").with("amount", lines).meets_a_conversation(stand, |met| {
        let logged = met.gateway.log_bytes();
        stand.must(logged <= LOG_BYTES, Breach::Unbounded, || {
            format!("{} KiB of log by {lines} lines of one engine", logged >> 10)
        });
        stand.must(logged > 20_000, Breach::Wrong, || "the engine did not log at all".to_owned());
    });
}

/// What an engine may keep of the 200 MiB and more that it tries to, in MiB. The quota is smaller than by default, so that less has
/// to be written.
const STORE_MIB: u64 = 64;
/// The same in bytes on the disk, with the tables of the store and its journal.
const STORED_BYTES: u64 = (STORE_MIB + 32) << 20;

fn folder_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => folder_bytes(&entry.path()),
            _ => entry.metadata().map_or(0, |about| about.len()),
        })
        .sum()
}

fn store(stand: &Stand) {
    let times = stand.size(100, 200, 1_000);
    let mut hostile = Hostile::new("store").with("amount", times);
    hostile.limits = format!("plugins.quotas.store_mib = {STORE_MIB}\n");
    // Not the time of a call is what should stop it.
    hostile.assemble_ms = 20_000;
    hostile.meets_a_conversation(stand, |met| {
        // What goes on behind the request is over when nothing is added any more.
        let begun = Instant::now();
        let mut stored = 0;
        while begun.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(500));
            let now = folder_bytes(&stand.path("state"));
            if now == stored {
                break;
            }
            stored = now;
        }
        stand.must(stored <= STORED_BYTES, Breach::Unbounded, || {
            format!("an engine keeps {} MiB", stored >> 20)
        });
        stand.must(stored > 100 << 10, Breach::Wrong, || "the engine kept nothing".to_owned());
        met.gateway.must_take_at_most(500, "the host");
    });
}

fn descriptors(stand: &Stand) {
    Hostile::new("descriptors").meets_a_conversation(stand, |met| {
        met.must_have_acted();
        let opened = met.claimed("descriptors").unwrap_or(0);
        stand.must(opened <= 64, Breach::Escaped, || format!("{opened} of 64 descriptors"));
    });
}

fn words(stand: &Stand) {
    Hostile::new("words").meets_a_conversation(stand, |met| {
        met.must_have_acted();
        let said = met.gateway.said_text();
        let is_logged = said.contains("FORGED-LINE");
        stand.must(is_logged, Breach::Wrong, || "the engine's words are not logged".to_owned());
        let forged =
            said.lines().any(|line| line.contains("INFO FORGED-LINE") && !line.contains("one"));
        stand.must(!forged, Breach::Escaped, || {
            "an engine's word begins a line of the log".to_owned()
        });
        for (character, name) in [('\u{9b}', "CSI of C1"), ('\u{202e}', "right-to-left override")] {
            stand.must(!said.contains(character), Breach::Escaped, || {
                format!("U+{:04X} ({name}) stands in the log as it is", character as u32)
            });
        }
    });
}

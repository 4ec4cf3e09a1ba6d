//! Engines that crash or hang in every call.

use std::fs;
use std::time::Duration;

use super::{Hostile, attack};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    let panics = Attack {
        is_long: true,
        ..attack("panics", "panics in every call and in its drop", panics)
    };
    vec![
        panics,
        attack("death in create", "ends or hangs while it is created", create),
        attack("death in a call", "ends or hangs while it is asked", call),
        attack("death in its end", "ends or hangs while it is let go", drop_it),
        attack(
            "ends without an end",
            "a replay and a check of an engine that never lets go",
            commands,
        ),
        attack("a lane that hangs", "never answers, or never lets go, on a lane", lane),
        attack(
            "exit on a lane",
            "calls exit(0) and quick_exit(0) on a lane: the host may die, not as if all were well",
            exit_on_an_engine_thread,
        ),
    ]
}

const WAYS: [&str; 13] = [
    "exit",
    "loop",
    "abort",
    "overflow",
    "scribble",
    "stop",
    "segv",
    "close-all",
    "_exit",
    "exit-3",
    "pause",
    "ignore-signals",
    "sigterm",
];

/// The library in Rust: it takes a build of its own, which the tests of the gate do.
fn panics(stand: &Stand) {
    for isolation in ["process", "thread"] {
        for mode in
            ["panic-assemble", "panic-create", "panic-ingest", "panic-compact", "panic-drop"]
        {
            let mut hostile = Hostile::new(mode).with("mode", mode);
            (hostile.id, hostile.library) = ("chaos", ctxhost_tests::chaos_library());
            hostile.isolation = isolation;
            hostile.meets_a_conversation(stand, |_| {});
        }
    }
}

fn die(stand: &Stand, place: &str, short: u64) {
    for way in WAYS.iter().take(stand.size(short, 99, 99) as usize) {
        Hostile::new(&format!("{place}-{way}")).meets_a_conversation(stand, |_| {});
    }
}

fn create(stand: &Stand) {
    die(stand, "create", 3);
}

fn call(stand: &Stand) {
    die(stand, "call", 6);
}

fn drop_it(stand: &Stand) {
    die(stand, "drop", 3);
}

/// Commands that end by themselves, whatever the engine does.
fn ends(stand: &Stand, hostile: &Hostile) {
    stand.tried(1);
    fs::write(stand.path("work/ctxhost.toml"), hostile.config(stand)).expect("a config");
    let arguments = ["replay", "demo:mixed", "--window", "32k", "--no-timings", "--json"];
    stand.ctxhost(&arguments, Duration::from_secs(20));
}

fn commands(stand: &Stand) {
    let ways = ["drop-loop", "drop-pause", "drop-exit", "call-exit", "drop-stop"];
    for way in ways.iter().take(stand.size(2, 99, 99) as usize) {
        ends(stand, &Hostile::new(way));
    }
}

/// The documents promise of a lane: what never answers is called off, and a thread is lost. The host ends all the same.
fn lane(stand: &Stand) {
    let ways = ["call-loop", "call-pause", "create-pause"];
    for way in ways.iter().take(stand.size(1, 99, 99) as usize) {
        Hostile::new(way).on_an_engine_thread().meets_a_conversation(stand, |_| {});
    }
    for way in ["drop-loop", "drop-pause"].iter().take(stand.size(1, 99, 99) as usize) {
        Hostile::new(way).on_an_engine_thread().meets_a_conversation(stand, |_| {});
        ends(stand, &Hostile::new(way).on_an_engine_thread());
    }
}

/// A host that an engine ends must not look like one that has done its work: the documents promise a sentence that names the engine
/// and code 70.
fn exit_on_an_engine_thread(stand: &Stand) {
    for way in ["call-exit", "call-quick-exit"] {
        stand.tried(1);
        let hostile = Hostile::new(way).on_an_engine_thread();
        fs::write(stand.path("work/ctxhost.toml"), hostile.config(stand)).expect("a config");
        let arguments = ["replay", "demo:mixed", "--window", "32k", "--no-timings", "--json"];
        let ran = stand.ctxhost(&arguments, Duration::from_secs(30));
        stand.must(ran.code == Some(70), Breach::Panic, || {
            format!("{way} on a lane ends the host with {:?}", ran.code)
        });
        stand.must(ran.said().contains("hostile"), Breach::Wrong, || {
            format!("{way} on a lane: no word of the engine: {:.200}", ran.said())
        });
    }
}

//! Files that are not engines: no code of them runs, and the error names them.

use std::fs;
use std::time::Duration;

use super::{Hostile, attack, library};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "damaged libraries",
            "libraries cut short, patched, of another major or machine",
            damaged,
        ),
        attack(
            "no libraries",
            "folders, pipes, devices, links and texts in the place of one",
            strange,
        ),
    ]
}

/// Says that this file stands in the slot, and holds what comes of it against what must.
fn is_refused(stand: &Stand, path: &str, what: &str) {
    stand.tried(1);
    let limit = Duration::from_secs(20);
    let ran = stand.ctxhost(&["check", "--only", "load", path], limit);
    let has_run = ran.said().contains("CONSTRUCTOR-RAN") || ran.text().contains("CONSTRUCTOR-RAN");
    stand.must(!has_run, Breach::Escaped, || format!("{what}: its code ran"));
    let is_error = ran.is_late || ran.code.is_some_and(|code| code != 0);
    stand.must(is_error, Breach::Wrong, || format!("{what}: `check` ends with {:?}", ran.code));
    let is_told = !ran.said().is_empty() || !ran.out.is_empty();
    stand.must(is_told || ran.is_late, Breach::Wrong, || format!("{what}: no word of it"));
    let raw = ran.err.iter().chain(&ran.out).any(|byte| crate::gateway::is_control(*byte));
    stand.must(!raw, Breach::Escaped, || format!("{what}: its bytes reach the terminal"));
    let config = Hostile::new("none").config(stand);
    let own = format!("{:?}", library().display().to_string());
    let config = config.replace(&own, &format!("{path:?}"));
    fs::write(stand.path("work/ctxhost.toml"), config).expect("a config");
    let ran = stand.ctxhost(&["replay", "demo:mixed", "--window", "32k", "--no-timings"], limit);
    let has_run = ran.said().contains("CONSTRUCTOR-RAN");
    stand.must(!has_run, Breach::Escaped, || format!("{what}: `replay` runs its code"));
}

fn damaged(stand: &Stand) {
    let good = fs::read(library()).expect("it was built");
    let meta = b"CTXHOST\x01ENGMETA\n";
    let at = good.windows(meta.len()).position(|it| it == meta).expect("its metadata");
    let patched = |from: &str, to: &str| {
        let place = good[at..].windows(from.len()).position(|it| it == from.as_bytes());
        let place = at + place.unwrap_or_else(|| panic!("no {from} in the metadata"));
        let mut bytes = good.clone();
        bytes[place..place + to.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("major 9".into(), patched("abi_major=1", "abi_major=9")),
        ("door x".into(), patched("door=c", "door=x")),
        ("id with escapes".into(), patched("id=hostile", "id=\u{1b}[31m\n;")),
        ("id of a path".into(), patched("id=hostile", "id=../../a")),
        ("pointer 32".into(), patched("pointer=64", "pointer=32")),
        ("empty".into(), Vec::new()),
        ("a script".into(), b"#!/bin/sh\ntouch owned\n".to_vec()),
    ];
    let mut length = good.clone();
    length[at + 16..at + 18].copy_from_slice(&[0xff, 0xff]);
    cases.push(("length of the metadata".into(), length));
    let mut random = stand.random();
    for _ in 0..stand.size(4, 30, 300) {
        let end = random.usize(..good.len());
        cases.push((format!("cut at {end}"), good[..end].to_vec()));
    }
    for (what, bytes) in cases {
        let path = stand.path("work/damaged.so");
        fs::write(&path, bytes).expect("a file");
        is_refused(stand, &path.display().to_string(), &what);
    }
}

fn strange(stand: &Stand) {
    let fifo = stand.path("work/fifo.so");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let (one, two) = (stand.path("work/one.so"), stand.path("work/two.so"));
    std::os::unix::fs::symlink(&one, &two).expect("a link");
    std::os::unix::fs::symlink(&two, &one).expect("a link");
    fs::create_dir(stand.path("work/folder.so")).expect("a folder");
    let sparse = fs::File::create(stand.path("work/sparse.so")).expect("a file");
    sparse.set_len(stand.size(1 << 30, 8 << 30, 8 << 30)).expect("a sparse file");
    let paths = [
        ("a pipe", fifo),
        ("a loop of links", one),
        ("a folder", stand.path("work/folder.so")),
        ("a device", "/dev/zero".into()),
        ("nothing", stand.path("work/nothing.so")),
        ("a sparse file", stand.path("work/sparse.so")),
    ];
    for (what, path) in paths {
        is_refused(stand, &path.display().to_string(), what);
    }
}

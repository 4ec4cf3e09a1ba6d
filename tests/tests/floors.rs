//! The floors of the house: every `use` points down, and each room keeps what it must not know out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_tests::root;

/// Rooms of the host from the ground up. Rooms on one floor do not know each other.
const FLOORS: [&[&str]; 8] = [
    &["session", "law", "media", "provider", "tool", "survival"],
    &["engine", "history"],
    &["store", "trust"],
    &["config"],
    &["runtime"],
    &["chaos", "check", "dev", "gateway", "scaffold"],
    &["cli"],
    &["main"],
];

/// The sources below a folder of the workspace, tests left out.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.retain(|(path, _)| !is_test(path));
    assert!(!found.is_empty(), "{} holds no source", folder.display());
    found
}

/// Tests may know more than the room they test.
fn is_test(path: &Path) -> bool {
    path.strip_prefix(root())
        .unwrap_or(path)
        .components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

/// The room of a file: the first part of its path below `src`.
fn room(source: &Path, path: &Path) -> String {
    let below = path.strip_prefix(source).unwrap();
    let first = below.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// The rooms that a source names: `crate::room` anywhere, in code or in paths of documentation.
fn named_rooms(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let ends = |c: char| !(c.is_alphanumeric() || c == '_');
    let after = code.match_indices("crate::").map(|(at, found)| &code[at + found.len()..]);
    let names = after.map(|rest| rest.split(ends).next().unwrap_or("").to_owned());
    names.filter(|name| floor(name).is_some()).collect()
}

#[test]
fn every_use_points_down() {
    let source = root().join("host/src");
    let mut broken = Vec::new();
    for (path, text) in sources(&source) {
        let here = room(&source, &path);
        if here == "lib" {
            continue;
        }
        let Some(own) = floor(&here) else {
            panic!("{} is in no room of FLOORS; put it on a floor", path.display())
        };
        for named in named_rooms(&text) {
            if named != here && floor(&named).unwrap() >= own {
                broken.push(format!("{}: {here} names {named}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "uses that point up or sideways:\n{}", broken.join("\n"));
}

/// Words that may stand in one place only, with the places.
const CONFINED: [(&str, &str, &[&str]); 13] = [
    ("abi_stable", "engine-api/src", &["abi", "abi.rs"]),
    ("async_ffi", "engine-api/src", &["abi", "abi.rs"]),
    ("libloading", "host/src", &["engine/library.rs"]),
    ("ctxhost_engine_legacy", "host/src", &["engine/bundled.rs"]),
    ("ctxhost_engine_kit", "host/src", &["survival", "survival.rs"]),
    ("reqwest", "host/src", &["provider", "provider.rs"]),
    ("rmcp", "host/src", &["tool/mcp"]),
    ("hyper_util", "host/src", &["gateway"]),
    ("hyper_rustls", "host/src", &["gateway"]),
    ("tokio_rustls", "host/src", &["gateway"]),
    ("minisign_verify", "host/src", &["trust/signature.rs"]),
    ("tokio_postgres", "host/src", &["store/postgres", "store/postgres.rs"]),
    ("println!", "host/src", &[]),
];

#[test]
fn what_one_room_knows_stays_there() {
    for (word, folder, places) in CONFINED {
        let source = root().join(folder);
        for (path, text) in sources(&source) {
            let below = path.strip_prefix(&source).unwrap();
            let allowed = places.iter().any(|place| below.starts_with(place));
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found = code.into_iter().any(|line| line.contains(word));
            assert!(allowed || !found, "{} names {word}", path.display());
        }
    }
}

#[test]
fn unsafe_stands_in_three_rooms_only() {
    for folder in ["engine-api/src", "engines", "host/src"] {
        let source = root().join(folder);
        for (path, text) in sources(&source) {
            let below = path.strip_prefix(root()).unwrap();
            let allowed = below.starts_with("engine-api/src/abi")
                || below == Path::new("engine-api/src/abi.rs")
                || below == Path::new("host/engine/src/library.rs")
                || below == Path::new("host/engine/src/crash.rs");
            let uses = text.contains("unsafe {") || text.contains("unsafe fn");
            assert!(allowed || !uses, "{} holds unsafe code", path.display());
        }
    }
}

#[test]
fn every_room_says_what_it_is() {
    for folder in ["engine-api/src", "engines", "host/src"] {
        for (path, text) in sources(&root().join(folder)) {
            let opens =
                text.trim_start().trim_start_matches("#![forbid(unsafe_code)]").trim_start();
            assert!(opens.starts_with("//!"), "{} opens without a sentence", path.display());
        }
    }
}

#[test]
fn engines_know_the_contract_alone() {
    let engines = ["legacy", "window", "mask", "boundary", "head-tail"];
    for engine in engines.into_iter().chain(["kit"]) {
        let manifest = root().join("engines").join(engine).join("Cargo.toml");
        let text = fs::read_to_string(manifest).unwrap();
        assert!(!text.contains("ctxhost.workspace"), "{engine} depends on the host");
        for other in engines.iter().filter(|other| **other != engine) {
            assert!(!text.contains(&format!("engine-{other}.")), "{engine} depends on {other}");
        }
    }
}

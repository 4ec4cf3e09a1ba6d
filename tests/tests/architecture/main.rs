//! Dependency rules that cargo cannot express: which crate may use which, and which file may contain what.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod words;

use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_tests::root;

/// Crates of the host from the ground up. Crates on one floor do not know each other.
const FLOORS: [&[&str]; 13] = [
    &["dialects", "platform"],
    &["files"],
    &["session", "invariants", "blobs", "provider", "tools", "retention"],
    &["engine", "history", "import"],
    &["store", "trust"],
    &["config"],
    &["models"],
    &["context"],
    &["agent"],
    &["check", "conversations", "dev", "quality", "scaffold"],
    &["gateway"],
    &["cli"],
    &["host"],
];

/// The sources below a folder of the workspace, tests left out.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = all_sources(folder);
    found.retain(|(path, _)| !is_test(path));
    assert!(!found.is_empty(), "{} holds no source", folder.display());
    found
}

/// The sources below a folder of the workspace.
fn all_sources(folder: &Path) -> Vec<(PathBuf, String)> {
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

/// The dependencies of a crate that other code is built with, tests left out.
fn dependencies(manifest: &Path) -> Vec<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let table: toml::Table = text.parse().unwrap();
    table["dependencies"].as_table().unwrap().keys().cloned().collect()
}

/// The crates of the host, each with its manifest.
fn host_crates() -> Vec<(String, PathBuf)> {
    let host = root().join("host");
    let folders = fs::read_dir(&host).unwrap().map(|entry| entry.unwrap().path());
    let mut found = vec![("host".to_owned(), host.join("Cargo.toml"))];
    for folder in folders {
        let manifest = folder.join("Cargo.toml");
        if manifest.is_file() {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, manifest));
        }
    }
    found
}

#[test]
fn every_dependency_points_down() {
    let floor = |name: &str| FLOORS.iter().position(|crates| crates.contains(&name));
    for (name, manifest) in host_crates() {
        let Some(own) = floor(&name) else { panic!("{name} is on no floor of FLOORS; add it") };
        for dependency in dependencies(&manifest) {
            let below = dependency.strip_prefix("ctxhost-").and_then(floor);
            assert!(below.is_none_or(|below| below < own), "{name} depends on {dependency}");
        }
    }
}

/// Crates of others that only some crates of the host may depend on, with those.
const DEPENDED_ON_BY: [(&str, &[&str]); 14] = [
    ("rusqlite", &["import"]),
    ("libloading", &["engine"]),
    ("ctxhost-engine-legacy", &["engine"]),
    ("ctxhost-engine-kit", &["invariants", "retention"]),
    ("reqwest", &["provider"]),
    ("rmcp", &["tools"]),
    ("hyper-util", &["gateway"]),
    ("hyper-rustls", &["gateway"]),
    ("tokio-rustls", &["gateway"]),
    ("minisign-verify", &["trust"]),
    ("tokio-postgres", &["store"]),
    ("landlock", &["engine"]),
    ("clap", &["cli"]),
    ("opentelemetry", &["cli"]),
];

#[test]
fn what_one_crate_knows_stays_there() {
    for (name, manifest) in host_crates() {
        let known = dependencies(&manifest);
        for (dependency, allowed) in DEPENDED_ON_BY {
            let has = known.iter().any(|known| known == dependency);
            assert!(!has || allowed.contains(&name.as_str()), "{name} depends on {dependency}");
        }
    }
}

/// The whole of what the wire formats are made with. They read and write bytes, and nothing else.
const DIALECTS_ARE_MADE_WITH: [&str; 8] =
    ["ctxhost-engine-api", "memchr", "regex", "serde", "serde_json", "sha2", "thiserror", "url"];

#[test]
fn dialects_know_no_socket_clock_or_key() {
    let manifest = root().join("host/dialects/Cargo.toml");
    for dependency in dependencies(&manifest) {
        let allowed = DIALECTS_ARE_MADE_WITH.contains(&dependency.as_str());
        assert!(allowed, "dialects depends on {dependency}");
    }
    let words =
        ["std::net", "std::fs", "std::env", "std::process", "Instant", "SystemTime", "secrecy"];
    for (path, text) in sources(&root().join("host/dialects/src")) {
        let found = words.into_iter().find(|word| text.contains(word));
        assert_eq!(found, None, "{} names it", path.display());
    }
}

/// What only some operating systems have: the files of each, and the sandbox of Unix.
const SYSTEM_FILES: &[&str] = &[
    "platform/src/files",
    "platform/src/processes",
    "platform/src/signals",
    "platform/src/standard_input.rs",
    "platform/src/terminal.rs",
    "engine/src/sandbox",
    "engine/src/signal_handler.rs",
];

/// Words that may stand in some files of a crate only, with the files.
const CONFINED: [(&str, &str, &[&str]); 12] = [
    ("std::os::", "host", SYSTEM_FILES),
    ("nix::", "host", SYSTEM_FILES),
    ("rustix::", "host", SYSTEM_FILES),
    ("rusqlite", "host/import/src", &["opencode/database.rs", "opencode/database"]),
    ("abi_stable", "engine-api/src", &["abi", "abi.rs"]),
    ("async_ffi", "engine-api/src", &["abi", "abi.rs"]),
    ("libloading", "host/engine/src", &["library.rs"]),
    ("ctxhost_engine_legacy", "host/engine/src", &["bundled.rs"]),
    ("rmcp", "host/tools/src", &["mcp"]),
    ("minisign_verify", "host/trust/src", &["signature.rs"]),
    ("tokio_postgres", "host/store/src", &["postgres", "postgres.rs"]),
    // Commands print through `cli/src/output.rs`, which knows the width and a closed pipe.
    ("println!", "host", &[]),
];

/// Whether a line names a path or a macro; `os::unix::` does not name `nix::`.
fn names(line: &str, word: &str) -> bool {
    let is_path = word.ends_with("::");
    line.match_indices(word).any(|(at, _)| {
        !(is_path && line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
    })
}

#[test]
fn what_one_room_knows_stays_there() {
    for (word, folder, places) in CONFINED {
        let source = root().join(folder);
        for (path, text) in sources(&source) {
            let below = path.strip_prefix(&source).unwrap();
            let allowed = places.iter().any(|place| below.starts_with(place));
            // Tests at the end of a file may know more.
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found = code.into_iter().any(|line| names(line, word));
            assert!(allowed || !found, "{} names {word}", path.display());
        }
    }
}

#[test]
fn unsafe_stands_in_three_rooms_only() {
    for folder in ["engine-api/src", "text/src", "engines", "host"] {
        let source = root().join(folder);
        for (path, text) in sources(&source) {
            let below = path.strip_prefix(root()).unwrap();
            let allowed = below.starts_with("engine-api/src/abi")
                || below == Path::new("engine-api/src/abi.rs")
                || below == Path::new("host/engine/src/library.rs")
                || below == Path::new("host/engine/src/signal_handler.rs");
            let uses = text.contains("unsafe {") || text.contains("unsafe fn");
            assert!(allowed || !uses, "{} holds unsafe code", path.display());
        }
    }
}

#[test]
fn every_room_says_what_it_is() {
    for folder in ["engine-api/src", "text/src", "engines", "host"] {
        for (path, text) in sources(&root().join(folder)) {
            let opens =
                text.trim_start().trim_start_matches("#![forbid(unsafe_code)]").trim_start();
            assert!(opens.starts_with("//!"), "{} opens without a sentence", path.display());
        }
    }
}

/// Cargo would not run a test there: `test = false` saves linking a program for each that runs nothing.
#[test]
fn every_file_of_tests_is_a_module() {
    let files = all_sources(&root().join("tests/tests"));
    for (path, _) in &files {
        let name = path.file_stem().unwrap().to_string_lossy();
        let is_root = name == "main" || path.parent().unwrap().ends_with("tests/tests");
        let module = format!("mod {name};");
        assert!(
            is_root || files.iter().any(|(_, text)| text.contains(&module)),
            "{} is in no module, so its tests never run",
            path.display()
        );
    }
}

#[test]
fn targets_without_a_harness_hold_no_tests() {
    let attribute = ["#[", "test]"].concat();
    let programs =
        ["tests/src/bin", "examples/agent/src", "examples/embed/src", "examples/http-client/src"];
    let programs = programs.map(|folder| root().join(folder)).into_iter();
    for folder in programs.chain(libraries_without("test")) {
        for (path, text) in all_sources(&folder) {
            assert!(!text.contains(&attribute), "{} holds a test", path.display());
        }
    }
}

/// Nor an example there: `doctest = false` saves reading a crate once more for examples that it does not have.
#[test]
fn libraries_without_examples_hold_none() {
    for folder in libraries_without("doctest") {
        for (path, text) in all_sources(&folder) {
            let line = first_example(&text);
            assert_eq!(line, None, "{}: an example that nothing runs", path.display());
        }
    }
}

/// The sources of each library of the workspace whose manifest switches a harness off.
fn libraries_without(harness: &str) -> Vec<PathBuf> {
    let workspace: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let mut found = Vec::new();
    for member in members {
        let folder = root().join(member.as_str().unwrap());
        let manifest: toml::Table =
            fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        let switch = manifest.get("lib").and_then(|library| library.get(harness));
        if switch.and_then(toml::Value::as_bool) == Some(false) {
            found.push(folder.join("src"));
        }
    }
    assert!(found.len() > 5, "{harness}: {found:?}");
    found
}

/// The first line of documentation that opens an example in Rust, from 1.
fn first_example(text: &str) -> Option<usize> {
    let of_rust = |word: &str| {
        ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&word)
            || word.starts_with("edition")
            || word.starts_with('E')
    };
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(line) = line.strip_prefix("///").or(line.strip_prefix("//!")) else { continue };
        let Some(language) = line.trim().strip_prefix("```") else { continue };
        if !is_open && language.split(',').all(|word| of_rust(word.trim())) {
            return Some(at + 1);
        }
        is_open = !is_open;
    }
    None
}

#[test]
fn examples_are_found() {
    let fence = "```";
    assert_eq!(first_example(&format!("//! A.\n//! {fence}\n//! f();\n//! {fence}\n")), Some(2));
    assert_eq!(first_example(&format!("/// {fence}compile_fail,E0308\n")), Some(1));
    assert_eq!(first_example(&format!("/// {fence}text\n/// a\n/// {fence}\nfn f() {{}}\n")), None);
}

#[test]
fn engines_know_the_contract_alone() {
    let engines = ["legacy", "window", "mask", "boundary", "head-tail", "recall", "dag"];
    let engines = engines.map(|engine| {
        let shared: &[&str] = &["ctxhost-engine-api", "ctxhost-engine-kit", "ctxhost-text"];
        (format!("engines/{engine}"), shared)
    });
    let kit = ("engines/kit".to_owned(), &["ctxhost-engine-api", "ctxhost-text"][..]);
    let text = ("text".to_owned(), &["ctxhost-engine-api"][..]);
    for (folder, allowed) in engines.into_iter().chain([kit, text]) {
        let known = dependencies(&root().join(&folder).join("Cargo.toml"));
        let mut ours = known.iter().filter(|dependency| dependency.starts_with("ctxhost"));
        let other = ours.find(|dependency| !allowed.contains(&dependency.as_str()));
        assert_eq!(other, None, "a dependency of {folder}");
    }
}

//! Which calls of the kernel a worker may make: each number is tried in a real one and held against the
//! table in docs/engines/sandbox.md, which people read.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use ctxhost_engine::{EngineInstance, EngineSpec, Isolation};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_tests::native::native_library;
use ctxhost_tests::root;
use rustix::io::Errno;

use super::{open, patient, program};

const ENGINE: &str = "tests/fixtures/c/system_calls.c";

/// The last number that is tried; no kernel has so many.
const LAST: u32 = 600;

fn engine(config: Value) -> Arc<EngineInstance> {
    let mut spec = EngineSpec::file("system-calls", &native_library(ENGINE, &[]), config);
    spec.isolation = Isolation::Process;
    spec.sandbox.program = Some(program());
    open(&spec, &patient())
}

async fn tried(config: Value) -> Value {
    engine(config).status().await.unwrap().details
}

/// Whether the filter holds the engine; says loudly where this kernel has none.
fn is_filtered(engine: &EngineInstance) -> bool {
    let confinement = engine.sandbox_info().unwrap().confinement;
    let is_filtered = confinement.applied.iter().any(|it| it.contains("seccomp"));
    if !is_filtered {
        println!("SKIPPED: this kernel has no seccomp: {:?}", confinement.missing);
    }
    is_filtered
}

/// A call in the table.
#[derive(Clone)]
struct Row {
    name: String,
    answer: String,
    reason: String,
}

fn table() -> BTreeMap<u32, Row> {
    let page = std::fs::read_to_string(root().join("docs/engines/sandbox.md")).unwrap();
    let mut table = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, answer @ ("allowed" | "by arguments" | "unknown" | "refused"), reason, calls, _] =
            cells[..]
        else {
            continue;
        };
        for call in calls.split_whitespace().map(|call| call.trim_matches('`')) {
            // A name and its number, or the first and the last number of several without names.
            let (name, numbers) = call.split_once('=').unwrap_or(("", call));
            let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
            for number in first.parse().unwrap()..=last.parse().unwrap() {
                let (name, answer) = (name.to_owned(), answer.to_owned());
                let row = Row { name, answer, reason: reason.to_owned() };
                assert!(table.insert(number, row).is_none(), "{number} has two rows");
            }
        }
    }
    table
}

/// Why a call is refused; what comes after a semicolon explains one row.
const REFUSED_FOR: [&str; 9] = [
    "uncounted memory",
    "privileges and namespaces",
    "file metadata",
    "not needed",
    "writes files",
    "network",
    "other processes",
    "kernel administration",
    "unassigned",
];

#[test]
fn every_number_has_a_row_and_every_refusal_a_known_reason() {
    let table = table();
    let newest = *table.keys().next_back().unwrap();
    assert_eq!(table.len() as u32, newest + 1, "a number has no row");
    for (number, row) in table.iter().filter(|(_, row)| row.answer == "refused") {
        let reason = row.reason.split(';').next().unwrap();
        assert!(REFUSED_FOR.contains(&reason), "{number} {}: {reason:?}", row.name);
    }
}

/// The filter of a sandbox knows numbers, people read names.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_number_has_the_name_that_the_kernel_gives_it() {
    let headers = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];
    let Some(header) = headers.iter().find_map(|path| std::fs::read_to_string(path).ok()) else {
        println!("SKIPPED: this machine has no headers of the kernel: {headers:?}");
        return;
    };
    let calls = header.lines().filter_map(|line| line.strip_prefix("#define __NR_"));
    let calls = calls.filter_map(|line| {
        let (name, number) = line.split_once(' ')?;
        Some((number.trim().parse::<u32>().ok()?, name))
    });
    let (table, mut compared) = (table(), 0);
    for (number, name) in calls {
        // A newer kernel may have more calls than the table.
        let Some(row) = table.get(&number) else { continue };
        assert_eq!(row.name, name, "{number}");
        compared += 1;
    }
    assert!(compared > 300, "only {compared} calls of {headers:?} are in the table");
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn every_number_is_answered_as_the_table_says() {
    let engine = engine(json!({ "mode": "walk" }));
    if !is_filtered(&engine) {
        return;
    }
    let answers = engine.status().await.unwrap().details;
    let table = table();
    let newest = *table.keys().next_back().unwrap();
    assert!(newest >= 469, "the table ends at {newest}");
    let mut wrong = Vec::new();
    for number in 0..=LAST {
        let errno = i32::try_from(answers[number.to_string()].as_i64().unwrap()).unwrap();
        let row = table.get(&number);
        let (name, answer) =
            row.map_or(("?", "newer"), |row| (row.name.as_str(), row.answer.as_str()));
        let fits = match answer {
            // It does not come back.
            _ if errno == -1 => answer == "allowed" || ["uretprobe", "uprobe"].contains(&name),
            // An older kernel may not have it.
            "allowed" => errno != Errno::PERM.raw_os_error(),
            // The walk's arguments fit no rule.
            "refused" | "by arguments" => errno == Errno::PERM.raw_os_error(),
            "unknown" => errno == Errno::NOSYS.raw_os_error(),
            "newer" => number > newest && errno == Errno::NOSYS.raw_os_error(),
            _ => false,
        };
        if !fits {
            wrong.push(format!("{number} {name}: {answer:?} in the table, errno {errno}"));
        }
        let x32 = answers[format!("x{number}")].as_i64();
        if x32 != Some(Errno::PERM.raw_os_error().into()) {
            wrong.push(format!("{number} of x32: {x32:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a worker must not do to a file, whoever it runs as.
fn is_refused(tried: &Value) {
    let tried = tried.as_object().unwrap();
    assert!(tried.contains_key("fchmodat2") && tried.contains_key("read"), "{tried:?}");
    for (call, errno) in tried {
        assert_ne!(errno.as_i64(), Some(0), "{call} succeeded: {tried:?}");
    }
}

fn unchanged(file: &Path) {
    let after = std::fs::metadata(file).unwrap();
    assert_eq!(after.permissions().mode() & 0o7777, 0o600);
    assert_eq!(std::fs::read(file).unwrap(), b"private");
}

fn private_file(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("private");
    std::fs::write(&file, "private").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[tokio::test]
async fn no_file_of_the_person_is_changed_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = private_file(folder.path());
    is_refused(&tried(json!({ "mode": "change", "path": file })).await);
    unchanged(&file);
}

/// Root has no right to pass through folders of others any more, once it is confined.
#[tokio::test]
async fn a_worker_of_root_loads_an_engine_below_a_folder_of_somebody_else() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this is not root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut environment = patient();
    environment.copies_folder = folder.path().join("cache");
    std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534)).unwrap();
    let mut spec = EngineSpec::file("system-calls", &native_library(ENGINE, &[]), json!({}));
    spec.isolation = Isolation::Process;
    spec.sandbox.program = Some(program());
    assert_eq!(open(&spec, &environment).status().await.unwrap().summary, "tried");
}

/// The same as an ordinary user: files of theirs are their own.
#[test]
fn no_file_of_an_ordinary_user_is_changed_or_read() {
    use std::os::unix::process::CommandExt as _;
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this is an ordinary user, of whom the test above tells");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where nobody may read the program and the library, whatever stands above them.
    let (host, library) = (folder.path().join("ctxhost"), folder.path().join("libsystem_calls.so"));
    std::fs::copy(program(), &host).unwrap();
    std::fs::copy(native_library(ENGINE, &[]), &library).unwrap();
    std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o755)).unwrap();
    let own = folder.path().join("own");
    std::fs::create_dir(&own).unwrap();
    let file = private_file(&own);
    let config = format!(
        "[plugins]\ntrust = \"any\"\n[plugins.entries.system-calls]\npath = {library:?}\n\
         [plugins.entries.system-calls.config]\nmode = \"change\"\npath = {file:?}\n"
    );
    std::fs::write(own.join("ctxhost.toml"), config).unwrap();
    for path in [&own, &file] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = std::process::Command::new(&host);
    command.args(["engines", "info", "system-calls", "--config", "ctxhost.toml"]);
    command.current_dir(&own).env_clear().env("CTXHOST_STATE_DIR", own.join("state"));
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("nothing was done"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("a non-root account"), "{said}");
    unchanged(&file);
}

#[tokio::test]
async fn a_worker_has_no_capability() {
    let status = tried(json!({ "mode": "own-status" })).await;
    let sets = status.as_object().unwrap();
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(sets[set], "0000000000000000", "{set}: {status}");
    }
    // An ordinary user cannot empty this one; without new privileges nothing comes of it.
    if rustix::process::geteuid().is_root() {
        assert_eq!(sets["CapBnd"], "0000000000000000", "{status}");
    }
    assert_eq!(sets["NoNewPrivs"], "1", "{status}");
}

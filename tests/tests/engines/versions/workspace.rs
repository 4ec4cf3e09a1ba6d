//! One cargo workspace with an engine and a host for each variant, generated and built.
//!
//! ```text
//!  fixtures_target()/versions/
//!    Cargo.toml, Cargo.lock       the members; the repository's lock, cut down by cargo
//!    api/v1-1/Cargo.toml          a workspace of the copy alone, for the keys it inherits
//!    api/v1-1/engine-api/         the copy, patched
//!    engine-v1-1/, host-v1-1/     copies of the fixtures, pointed at it
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use ctxhost_tests::{build, fixtures_target, root};

use super::variants::*;

const ENGINES: [&Variant; 7] = [&V1_0, &V1_1, &V1_2, &V1_3, &V2_0, &V1_2_FIELD, &V1_2_REMOVED];
const HOSTS: [&Variant; 3] = [&V1_0, &V1_1, &V1_2];

/// The library of the engine that was built against a variant. Built at the first call.
pub(crate) fn library(variant: &Variant) -> PathBuf {
    build_all();
    let name = format!("libengine_{}.so", variant.name.replace('-', "_"));
    fixtures_target().join("debug").join(name)
}

/// The host that was built against a variant. Built at the first call.
pub(crate) fn program(variant: &Variant) -> PathBuf {
    build_all();
    fixtures_target().join("debug").join(format!("host-{}", variant.name))
}

/// Once for all tests of this process: they are threads, and a file that one of them writes must
/// not be read by the cargo of another.
fn build_all() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let engines = ENGINES.iter().map(|variant| member("engine", variant));
        let hosts = HOSTS.iter().map(|variant| member("host", variant));
        let members: Vec<String> = engines.chain(hosts).collect();
        write(&workspace().join("Cargo.toml"), &manifest_of(&members));
        seed_lock();
        build(&workspace(), &["--offline"], &fixtures_target());
    });
}

fn workspace() -> PathBuf {
    fixtures_target().join("versions")
}

/// Cargo takes path dependencies below a workspace for its members; the copies of the API are not.
fn manifest_of(members: &[String]) -> String {
    format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\nexclude = [\"api\"]\n")
}

/// Writes the member for a fixture and a variant, and answers its name.
fn member(fixture: &str, variant: &Variant) -> String {
    let member = format!("{fixture}-{}", variant.name);
    let name = (format!("name = {fixture:?}"), format!("name = {member:?}"));
    let api = ("\"../../../../engine-api\"".to_owned(), format!("{:?}", api(variant)));
    let features = ("default = []".to_owned(), format!("default = {:?}", variant.features));
    let edits = [name, api, features];
    let patches = edits.iter().map(|(anchor, text)| replace("Cargo.toml", anchor, text));
    let source = root().join("tests/fixtures/versions").join(fixture);
    copy(&source, &workspace().join(&member), &patches.collect::<Vec<_>>());
    member
}

/// The crate of a variant's API; the repository's own where nothing is different.
fn api(variant: &Variant) -> PathBuf {
    let ours = root().join("engine-api");
    if variant.changes.is_empty() {
        return ours;
    }
    let home = workspace().join("api").join(variant.name);
    write(&home.join("Cargo.toml"), &inherited());
    let version = format!("version = {:?}", variant.version);
    let version = replace("Cargo.toml", "version = \"1.1.0\"", &version);
    let changes = variant.changes.iter().copied().flatten().copied();
    copy(&ours, &home.join("engine-api"), &changes.chain([version]).collect::<Vec<_>>());
    home.join("engine-api")
}

/// The tables of the root manifest that the API's own inherits from, at the head of a workspace in
/// which the API is alone.
fn inherited() -> String {
    let manifest = read(&root().join("Cargo.toml"));
    let (_, tables) = manifest.split_once("[workspace.package]").expect("the root has a package");
    let (tables, _) = tables.split_once("[profile.").expect("the root ends with profiles");
    let head = "[workspace]\nresolver = \"3\"\nmembers = [\"engine-api\"]\n";
    format!("{head}\n[workspace.package]{tables}")
}

/// The repository's lock is the seed, so that every variant is built of the same crates and without
/// the network. Cargo cuts it down; it is seeded again only when the repository's has changed.
fn seed_lock() {
    let lock = read(&root().join("Cargo.lock"));
    let seed = workspace().join("Cargo.lock.seed");
    if fs::read_to_string(&seed).is_ok_and(|seeded| seeded == lock) {
        return;
    }
    write(&workspace().join("Cargo.lock"), &lock);
    write(&seed, &lock);
}

/// Copies a crate and patches it on the way.
fn copy(from: &Path, to: &Path, patches: &[Patch<'_>]) {
    let files = files(from);
    for patch in patches {
        assert!(files.contains(&patch.file.into()), "{} has no {}", from.display(), patch.file);
    }
    for file in files {
        let patches = patches.iter().filter(|patch| Path::new(patch.file) == file);
        let source = read(&from.join(&file));
        write(&to.join(&file), &patches.fold(source, |source, patch| patch.apply(&source)));
    }
}

/// The files of a crate, below it.
fn files(of: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![of.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.iter().map(|path| path.strip_prefix(of).unwrap().to_owned()).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Leaves a file alone that already says this: cargo goes by its time and would build it again.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

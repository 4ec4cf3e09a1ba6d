//! Libraries that were built with the engine API as it was released: this host must still inspect,
//! load and run every one of them. They are never built again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_engine::inspect;
use ctxhost_tests::root;

/// The folders of the released minors, oldest first.
fn releases() -> Vec<PathBuf> {
    let found = fs::read_dir(root().join("tests/golden")).unwrap();
    let mut folders: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    assert!(!folders.is_empty(), "there is a release to stay compatible with");
    folders
}

/// The files of a release with the hashes that its README names.
fn table(release: &Path) -> BTreeMap<String, String> {
    let readme = fs::read_to_string(release.join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('`').map(str::to_owned);
        let (file, sha256) = (cells.next()?, cells.nth(1)?);
        Some((file, sha256)).filter(|(file, _)| file.ends_with(".so"))
    });
    rows.collect()
}

/// The libraries that stand in a release.
fn libraries(release: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(release).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "so")).collect();
    found.sort();
    found
}

fn runs_here() -> bool {
    let here = cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"));
    if !here {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("SKIPPED: the golden libraries are for x86_64 Linux; none was loaded");
        }
    }
    here
}

#[test]
fn golden_files_are_the_ones_that_were_released() {
    for release in releases() {
        let table = table(&release);
        let names: Vec<String> = libraries(&release)
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        let listed: Vec<String> = table.keys().cloned().collect();
        assert_eq!(names, listed, "{}: files and README differ", release.display());
        if !runs_here() {
            continue;
        }
        for path in libraries(&release) {
            let found = inspect(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy();
            let pinned = table.get(name.as_ref()).map(String::as_str);
            assert_eq!(Some(found.sha256.as_str()), pinned, "{name} was changed");
            let version = release.file_name().unwrap().to_string_lossy();
            assert_eq!(found.meta.api, version, "{name} was built with another API");
        }
    }
}

#[test]
fn golden_files_keep_the_contract() {
    if !runs_here() {
        return;
    }
    for library in releases().iter().flat_map(|release| libraries(release)) {
        super::check(super::loaded(&library));
    }
}

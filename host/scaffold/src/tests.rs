//! Tests of the written folders.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

fn scaffold(language: ScaffoldLanguage, engine_api: ApiSource) -> EngineScaffold {
    EngineScaffold { name: "keep-errors".parse().unwrap(), language, api_source: engine_api }
}

fn version() -> ApiSource {
    ApiSource::Version("1.0".into())
}

/// The texts of all files below a folder.
fn texts(folder: &Path, files: &[PathBuf]) -> Vec<(String, String)> {
    let text = |path: &PathBuf| fs::read_to_string(folder.join(path)).unwrap();
    files.iter().map(|path| (path.display().to_string(), text(path))).collect()
}

#[test]
fn all_placeholders_are_replaced() {
    for language in [ScaffoldLanguage::Rust, ScaffoldLanguage::C] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("deep/keep-errors");
        let files = scaffold(language, version()).write(&folder).unwrap();
        for (path, text) in texts(&folder, &files) {
            for place in ["@id@", "@lib@", "@name@", "@engine_api@", "@api_"] {
                assert!(!text.contains(place) && !path.contains(place), "{path}: {place}");
            }
            assert!(text.ends_with('\n'), "{path}");
        }
    }
}

#[test]
fn a_rust_engine_has_what_it_needs() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("keep-errors");
    let files = scaffold(ScaffoldLanguage::Rust, version()).write(&folder).unwrap();
    let names: BTreeSet<String> = files.iter().map(|path| path.display().to_string()).collect();
    let wanted = [
        ".github/workflows/engine.yml",
        ".gitignore",
        "Cargo.toml",
        "README.md",
        "rustfmt.toml",
        "src/choice.rs",
        "src/lib.rs",
        "tests/conformance.rs",
        "tests/properties.rs",
    ];
    assert_eq!(names, wanted.map(str::to_owned).into());
    let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
    let lib = read("src/lib.rs");
    assert!(lib.lines().count() < 80, "{}", lib.lines().count());
    assert!(lib.contains("#![forbid(unsafe_code)]"));
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    assert_eq!(manifest["package"]["name"].as_str(), Some("keep-errors"));
    assert_eq!(manifest["dependencies"]["ctxhost-engine-api"]["version"].as_str(), Some("1.0"));
    let workflow = read(".github/workflows/engine.yml");
    assert!(workflow.contains("target/release/libkeep_errors.so"), "{workflow}");
}

#[test]
fn the_readme_says_where_the_api_comes_from() {
    let git = ApiSource::Git("https://example.org/ctxhost.git".into());
    for (source, says, key) in [
        (version(), "comes from crates.io. If cargo does not find it", "version"),
        (git, "comes from a git repository", "git"),
        (ApiSource::Path("/src/engine-api".into()), "is a path on this machine", "path"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("keep-errors");
        scaffold(ScaffoldLanguage::Rust, source).write(&folder).unwrap();
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        assert!(read("README.md").contains(says), "{}", read("README.md"));
        assert!(read("Cargo.toml").contains(says), "{}", read("Cargo.toml"));
        let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
        for table in ["dependencies", "dev-dependencies"] {
            assert!(manifest[table]["ctxhost-engine-api"].get(key).is_some(), "{manifest}");
        }
    }
}

#[test]
fn an_engine_in_c_brings_its_header() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("keep-errors");
    let files = scaffold(ScaffoldLanguage::C, version()).write(&folder).unwrap();
    let names: BTreeSet<String> = files.iter().map(|path| path.display().to_string()).collect();
    let wanted = [
        ".github/workflows/engine.yml",
        ".gitignore",
        "Makefile",
        "README.md",
        "include/ctxhost_engine.h",
        "src/keep_errors.c",
    ];
    assert_eq!(names, wanted.map(str::to_owned).into());
    let header = fs::read_to_string(folder.join("include").join(HEADER)).unwrap();
    assert_eq!(header, C_HEADER);
}

#[test]
fn existing_paths_are_not_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("keep-errors");
    fs::create_dir(&folder).unwrap();
    let refused = scaffold(ScaffoldLanguage::Rust, version()).write(&folder);
    assert!(matches!(refused, Err(ScaffoldError::Exists { .. })));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let file = home.path().join("file");
    fs::write(&file, "mine").unwrap();
    let refused = scaffold(ScaffoldLanguage::Rust, version()).write(&file);
    assert!(matches!(refused, Err(ScaffoldError::Exists { .. })));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

/// A clone has the slot, the settings and the pin that the author has.
#[test]
fn the_config_and_the_pins_are_committed() {
    for language in [ScaffoldLanguage::Rust, ScaffoldLanguage::C] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("keep-errors");
        scaffold(language, version()).write(&folder).unwrap();
        let ignored = fs::read_to_string(folder.join(".gitignore")).unwrap();
        for kept in ["ctxhost.toml", "ctxhost.lock"] {
            assert!(!ignored.contains(kept), "{ignored}");
        }
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains("Commit `ctxhost.toml` and `ctxhost.lock`"), "{readme}");
    }
}

#[test]
fn a_folder_that_cannot_be_filled_does_not_refuse_the_next_attempt() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("keep-errors");
    fs::create_dir(&folder).unwrap();
    let full = || unwritable(&folder)(io::ErrorKind::StorageFull.into());
    let filled = remove_on_error(&folder, || {
        fs::write(folder.join("Makefile"), "").unwrap();
        Err::<(), _>(full())
    });
    assert!(filled.is_err() && !folder.exists());
    scaffold(ScaffoldLanguage::C, version()).write(&folder).unwrap();
}

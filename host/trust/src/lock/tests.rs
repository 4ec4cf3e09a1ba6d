//! Reading and writing the lock file; a damaged one is not an empty one.

use super::*;

fn pin(id: &str, sha256: &str) -> Pin {
    Pin {
        id: id.into(),
        version: "0.1.0".into(),
        file: ".ctxhost/engines/x.so".into(),
        source: Some("vendor/x.so".into()),
        sha256: sha256.repeat(32),
        size: 42,
        signer: None,
        installed_at: "2026-11-21T17:00:00Z".into(),
        conformance: None,
    }
}

#[test]
fn what_is_written_is_read_and_a_new_pin_replaces_the_old() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("ctxhost.toml");
    assert_eq!(LockFile::read(&config).unwrap(), None);
    let held = LockFile::acquire(&config).unwrap();
    let mut lock = held.load().unwrap().unwrap_or_default();
    assert_eq!(lock.put(pin("y", "aa")), None);
    assert_eq!(lock.put(Pin { signer: Some("E7".into()), ..pin("x", "bb") }), None);
    assert_eq!(lock.put(pin("y", "cc")), Some(pin("y", "aa")));
    held.write(&lock).unwrap();
    let read = LockFile::read(&config).unwrap().unwrap();
    assert_eq!(read.pins().cloned().collect::<Vec<_>>(), lock.pins().cloned().collect::<Vec<_>>());
    assert_eq!(read.pin("y").unwrap().sha256, "cc".repeat(32));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
}

#[test]
fn the_file_is_as_it_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("ctxhost.toml");
    let held = LockFile::acquire(&config).unwrap();
    let mut lock = EngineLock::default();
    lock.put(Pin { conformance: Some("conformant".into()), ..pin("x", "bb") });
    held.write(&lock).unwrap();
    let text = fs::read_to_string(held.path()).unwrap();
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/engines/trust.md");
    let document = fs::read_to_string(document).unwrap();
    for line in text.lines().filter_map(|line| line.split(" = ").next()) {
        assert!(document.contains(line), "docs/engines/trust.md does not show {line:?}");
    }
}

#[test]
fn a_damaged_or_newer_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("ctxhost.toml");
    fs::write(folder.path().join(LOCK_NAME), "version = 1\n[[engine]]\nid = 3\n").unwrap();
    let error = LockFile::read(&config).unwrap_err();
    assert!(matches!(error, LockError::Damaged { .. }), "{error}");
    fs::write(folder.path().join(LOCK_NAME), "version = 2\n").unwrap();
    let error = LockFile::read(&config).unwrap_err();
    assert!(matches!(error, LockError::Newer { version: 2, .. }), "{error}");
    // Ids and digests become parts of paths.
    let pinned = |id: &str, sha256: &str| {
        format!(
            "[[engine]]\nid = {id:?}\nversion = \"1\"\nfile = \"x\"\nsha256 = {sha256:?}\nsize = 1\ninstalled_at = \"\"\n"
        )
    };
    let sha256 = "ab".repeat(32);
    for (text, reason) in [
        (pinned("../x", &sha256), "\"../x\" is not an engine id"),
        (pinned("x", &"../a".repeat(16)), "sha256 of x is not 64 hexadecimal digits"),
        (pinned("x", &sha256) + &pinned("x", &sha256), "it pins x twice"),
    ] {
        fs::write(folder.path().join(LOCK_NAME), text).unwrap();
        let error = LockFile::read(&config).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    fs::write(folder.path().join(LOCK_NAME), pinned("x", &sha256)).unwrap();
    assert!(LockFile::read(&config).unwrap().is_some(), "as earlier versions wrote it");
    fs::write(folder.path().join(LOCK_NAME), "version = 1\nlater = true\n").unwrap();
    assert_eq!(LockFile::read(&config).unwrap().unwrap().pins().count(), 0);
}

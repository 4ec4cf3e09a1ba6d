//! What a lock file does in another checkout: engines are installed from their sources, or nothing is loaded.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use ctxhost_tests::{chaos_library, ctxhost};
use ctxhost_trust::InstallFolder;
use minisign::KeyPair;

use super::trust::{Place, sign};

impl Place {
    /// A checkout of this folder on another machine: what is committed, and a new state folder.
    fn checkout(&self) -> Place {
        let other = Place::with("");
        for name in ["ctxhost.toml", "ctxhost.lock", "vendor"] {
            copy(&self.at(name), &other.at(name));
        }
        other
    }

    fn lock(&self) -> String {
        fs::read_to_string(self.at("ctxhost.lock")).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name();
            copy(&from.join(&name), &to.join(&name));
        }
    } else {
        fs::copy(from, to).unwrap();
    }
}

/// A folder in which an engine was installed from `vendor`, with this config.
fn project(config: &str) -> Place {
    let place = Place::with(config);
    fs::create_dir(place.at("vendor")).unwrap();
    place.engine("vendor/libchaos.so", b"");
    place.done(&["install", "vendor/libchaos.so", "--yes"]);
    place
}

#[test]
fn a_colleague_syncs_and_replays_with_the_same_bytes() {
    let place = project("");
    place.done(&["use", "chaos"]);
    let lock = place.lock();
    assert!(lock.contains("source = \"vendor/libchaos.so\"\n"), "{lock}");
    assert!(lock.contains("file = \".ctxhost/engines/chaos-"), "{lock}");
    for text in [&lock, &place.config()] {
        for folder in [&place.folder, &place.state] {
            assert!(!text.contains(folder.path().to_str().unwrap()), "{text}");
        }
    }
    assert_eq!(fs::read_to_string(place.at(".ctxhost/.gitignore")).unwrap(), "*\n");

    let other = place.checkout();
    let (lock, config) = (other.lock(), other.config());
    let replay = ["--locked", "replay", "demo:mixed", "--engine", "chaos"];
    other.refused(&replay, "its file is missing; run `ctxhost sync`");
    let said = other.done(&["sync", "--locked"]);
    assert!(said.starts_with("chaos 0.1.0  sha256 "), "{said}");
    assert!(said.contains("installed from ") && said.contains("vendor/libchaos.so\n"), "{said}");
    let said = other.done(&["sync", "--locked"]);
    assert!(said.ends_with("  present\n"), "{said}");
    assert_eq!((other.lock(), other.config()), (lock, config), "nothing to commit");
    other.done(&replay);
    other.done(&["--locked", "use", "chaos"]);

    // A damaged file is installed again.
    fs::write(other.installed(), "damaged").unwrap();
    other.refused(&replay, "locked: chaos: ");
    let said = other.done(&["sync"]);
    assert!(said.contains("installed from "), "{said}");
    other.done(&replay);
}

#[test]
fn a_source_is_gone_has_other_bytes_or_is_a_url() {
    let shared = tempfile::tempdir().unwrap();
    let file = shared.path().join("lib chaos.so");
    fs::copy(chaos_library(), &file).unwrap();
    let url = format!("file://{}", shared.path().join("lib%20chaos.so").display());
    let place = Place::with("");
    fs::create_dir(place.at("vendor")).unwrap();
    // Not below the lock file: nobody else could read such a path.
    let said = place.done(&["install", file.to_str().unwrap(), "--yes"]);
    assert!(said.contains("no source recorded"), "{said}");
    assert!(!place.lock().contains("source"), "{}", place.lock());
    let (code, said) = place.checkout().run(&["sync"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("chaos: its file is missing, and ctxhost.lock names no source"),
        "{said}"
    );

    place.done(&["install", &url, "--yes"]);
    assert!(place.lock().contains("lib%20chaos.so\"\n"), "{}", place.lock());
    let other = place.checkout();
    other.done(&["sync", "--locked"]);
    fs::remove_file(other.installed()).unwrap();
    fs::write(&file, [fs::read(chaos_library()).unwrap(), b"x".into()].concat()).unwrap();
    let said = other.refused(&["sync"], " and ctxhost.lock pins ");
    assert!(said.contains("`ctxhost install "), "{said}");
    fs::remove_file(&file).unwrap();
    let (code, said) = other.run(&["sync"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("lib chaos.so does not exist"), "{said}");
    let (code, said) = other.run(&["install", "https://example.org/libx.so", "--yes"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("file:/// URL"), "{said}");
}

#[test]
fn the_lock_of_a_stranger_reads_and_writes_nothing_outside() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("libchaos.so");
    fs::copy(chaos_library(), &secret).unwrap();
    let honest = project("").checkout();
    let source = "source = \"vendor/libchaos.so\"";
    for bad in ["../../etc/passwd", secret.to_str().unwrap(), "vendor/../../x", "vendor/link.so"] {
        let place = honest.checkout();
        let _ = symlink(&secret, place.at("vendor/link.so"));
        let lock = place.lock().replace(source, &format!("source = {bad:?}"));
        fs::write(place.at("ctxhost.lock"), lock).unwrap();
        place.refused(&["sync"], "leads out of ");
        assert!(!place.at(".ctxhost").exists(), "{bad}");
    }
    for bad in ["https://example.org/x.so", "file://server/share/x.so"] {
        let place = honest.checkout();
        let lock = place.lock().replace(source, &format!("source = {bad:?}"));
        fs::write(place.at("ctxhost.lock"), lock).unwrap();
        place.refused(&["sync"], "is not read");
    }
    for (from, to) in [("id = \"chaos\"", "id = \"../../x\""), ("sha256 = \"", "sha256 = \"../../")]
    {
        let place = honest.checkout();
        fs::write(place.at("ctxhost.lock"), place.lock().replace(from, to)).unwrap();
        let (code, said) = place.run(&["sync"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("is damaged"), "{said}");
    }
    // The path of the installed file is computed, not read.
    let place = honest.checkout();
    let lock = place.lock().replace("file = \".ctxhost/engines/", "file = \"../../x/");
    fs::write(place.at("ctxhost.lock"), &lock).unwrap();
    place.refused(&["sync", "--locked"], "ctxhost.lock would change");
    place.done(&["sync"]);
    assert_eq!(place.lock(), honest.lock());

    // A link or a setting that leads the installed files elsewhere.
    let place = honest.checkout();
    symlink(outside.path(), place.at(".ctxhost")).unwrap();
    let (code, said) = place.run(&["sync"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("it is outside "), "{said}");
    let place = honest.checkout();
    let install_dir = outside.path().join("engines");
    let config = format!("[plugins]\ninstall_dir = {install_dir:?}\n{}", place.config());
    fs::write(place.at("ctxhost.toml"), config).unwrap();
    let (code, said) = place.run(&["sync"]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "the library alone");
}

#[test]
fn paths_of_earlier_versions_become_relative() {
    let place = project("");
    // As earlier versions left it: the file in the state folder, absolute paths, no source.
    let sha256 = place.listed()["sha256"].as_str().unwrap().to_owned();
    let former = InstallFolder::in_state(place.state.path(), &place.at("ctxhost.toml"));
    let file = former.file_path("chaos", &sha256);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::rename(place.installed(), &file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_dir_all(place.at(".ctxhost")).unwrap();
    fs::write(place.at("ctxhost.toml"), format!("[plugins.entries.chaos]\npath = {file:?}\n"))
        .unwrap();
    let lock: Vec<String> =
        place
            .lock()
            .lines()
            .filter(|line| !line.starts_with("source"))
            .map(|line| {
                if line.starts_with("file") { format!("file = {file:?}") } else { line.to_owned() }
            })
            .collect();
    fs::write(place.at("ctxhost.lock"), lock.join("\n")).unwrap();

    place.done(&["use", "chaos"]);
    place.refused(&["sync", "--locked"], "would change");
    let said = place.done(&["sync"]);
    assert!(said.contains("paths of earlier versions are now relative"), "{said}");
    assert!(place.lock().contains("file = \".ctxhost/engines/chaos-"), "{}", place.lock());
    assert!(place.config().contains("path = \".ctxhost/engines/chaos-"), "{}", place.config());
    assert!(!file.exists());
    place.done(&["--locked", "use", "chaos"]);
}

#[test]
fn a_checkout_without_a_lock_file_is_not_in_order() {
    for arguments in [&["sync"][..], &["sync", "--locked"]] {
        let (code, text) = Place::with("").run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains("ctxhost.lock does not exist"), "{text}");
        assert!(!text.contains("names no engines"), "{text}");
    }
}

#[test]
fn a_locked_command_loads_what_the_lock_pins_and_nothing_else() {
    let place = Place::with("[plugins.entries.chaos]\npath = \"libchaos.so\"\n");
    place.engine("libchaos.so", b"");
    place.done(&["replay", "demo:mixed", "--engine", "chaos"]);
    let unpinned = "locked: chaos: ctxhost.lock does not pin these bytes of chaos";
    place.refused(&["--locked", "replay", "demo:mixed"], unpinned);
    place.refused(&["sync", "--locked"], unpinned);
    let (code, said) = place.run(&["--locked", "install", "libchaos.so", "--yes"]);
    assert_eq!(code, Some(2), "{said}");
    let before = place.config();
    fs::write(place.at("ctxhost.toml"), format!("[plugins]\ntrust = \"locked\"\n{before}"))
        .unwrap();
    place.refused(&["replay", "demo:mixed"], unpinned);
    fs::write(place.at("ctxhost.toml"), before).unwrap();
    place.done(&["install", "libchaos.so", "--yes"]);
    place.done(&["--locked", "replay", "demo:mixed", "--engine", "chaos"]);
    place.done(&["--locked", "replay", "demo:mixed", "--engine", "./libchaos.so"]);
    place.engine("other.so", b"other");
    place.done(&["replay", "demo:mixed", "--engine", "./other.so"]);
    place.refused(&["--locked", "replay", "demo:mixed", "--engine", "./other.so"], "does not pin");
    let empty = tempfile::tempdir().unwrap();
    let file = place.at("libchaos.so").display().to_string();
    let mut command = ctxhost();
    command.current_dir(empty.path()).args(["--locked", "replay", "demo:mixed", "--engine", &file]);
    assert_eq!(
        command.output().unwrap().status.code(),
        Some(4),
        "without a config there is no pin"
    );
    // An engine without an entry would be replaced by the bundled one.
    let config = place.config().replace("[plugins.entries.chaos]", "[plugins.entries.x]");
    fs::write(place.at("ctxhost.toml"), format!("plugins.slots.context_engine = \"y\"\n{config}"))
        .unwrap();
    place.refused(&["--locked", "replay", "demo:mixed"], "locked: y: ");
}

#[test]
fn a_signature_comes_along_or_the_engine_is_refused() {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let demand = |required: bool| {
        format!(
            "[plugins]\ntrusted_keys = [{:?}]\nrequire_signature = {required}\n",
            pair.pk.to_base64()
        )
    };
    for required in [true, false] {
        let place = Place::with(&demand(required));
        fs::create_dir(place.at("vendor")).unwrap();
        sign(&pair, &place.engine("vendor/libchaos.so", b""));
        place.done(&["install", "vendor/libchaos.so", "--yes"]);
        place.checkout().done(&["sync", "--locked"]);
        fs::remove_file(place.at("vendor/libchaos.so.minisig")).unwrap();
        place.checkout().refused(&["sync"], "has no signature by ");
    }
}

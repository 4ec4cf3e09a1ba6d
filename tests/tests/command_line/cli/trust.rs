//! An engine from outside: installed, used, changed, refused, crashed, released.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use ctxhost_engine::{FailureLog, FailureRecord, HostClock, QuarantineRules};
use ctxhost_tests::{bundled_library, chaos_library, ctxhost, root};
use minisign::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with a config, and a state folder.
pub(super) struct Place {
    pub(super) folder: TempDir,
    pub(super) state: TempDir,
}

impl Place {
    pub(super) fn with(config: &str) -> Place {
        let place =
            Place { folder: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() };
        fs::write(place.at("ctxhost.toml"), config).unwrap();
        place
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A copy of the test engine, with something behind its last byte that makes it another build.
    pub(super) fn engine(&self, name: &str, more: &[u8]) -> PathBuf {
        let mut bytes = fs::read(chaos_library()).unwrap();
        bytes.extend(more);
        fs::write(self.at(name), bytes).unwrap();
        self.at(name)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = ctxhost();
        command.current_dir(self.folder.path()).args(arguments);
        command.env("CTXHOST_STATE_DIR", self.state.path()).output().unwrap()
    }

    /// Runs a command; its exit code and all that it said.
    pub(super) fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.output(arguments);
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), said.concat())
    }

    /// The same for a command that must end well.
    #[track_caller]
    pub(super) fn done(&self, arguments: &[&str]) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        said
    }

    /// The same for one that is refused because an engine must not be loaded.
    #[track_caller]
    pub(super) fn refused(&self, arguments: &[&str], says: &str) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, Some(4), "{arguments:?}: {said}");
        assert!(said.contains(says), "{said:?} does not say {says:?}");
        said
    }

    pub(super) fn config(&self) -> String {
        fs::read_to_string(self.at("ctxhost.toml")).unwrap()
    }

    fn list(&self) -> Value {
        serde_json::from_slice(&self.output(&["engines", "list", "--json"]).stdout).unwrap()
    }

    /// The line of the list for the test engine.
    pub(super) fn listed(&self) -> Value {
        let list = self.list();
        let engines = list["engines"].as_array().unwrap();
        engines.iter().find(|engine| engine["id"] == "chaos").unwrap().clone()
    }

    pub(super) fn installed(&self) -> PathBuf {
        self.at(self.done(&["engines", "path", "chaos"]).trim())
    }
}

#[test]
fn an_engine_is_installed_used_changed_refused_and_taken_away() {
    let place = Place::with("# mine\n[plugins.slots]\ncontext_engine = \"legacy\" # careful\n");
    place.engine("libchaos.so", b"");
    let before = place.config();
    let (code, said) = place.run(&["install", "libchaos.so"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the engine runs as native code in a sandboxed process"), "{said}");
    assert!(said.contains("cannot ask for confirmation"), "{said}");
    assert_eq!(place.config(), before, "who was not asked did not agree");
    assert!(!place.at("ctxhost.lock").exists());

    let said = place.done(&["install", "libchaos.so", "--yes"]);
    assert!(said.contains("\nchaos 0.1.0  sha256 "), "{said}");
    assert!(said.contains("  signer none  isolation process\n"), "{said}");
    assert!(said.contains("\nconformance none (ctxhost check libchaos.so)\n"), "{said}");
    assert!(said.contains("\npinned in ctxhost.lock\nctxhost.toml: [plugins"), "{said}");
    assert!(said.contains("\nnext: ctxhost use chaos; `ctxhost engines info chaos`"), "{said}");
    assert!(place.config().starts_with(&before), "{}", place.config());
    let installed = place.installed();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(installed.parent().unwrap()), mode(&installed)), (0o700, 0o600));
    assert_eq!(fs::read(&installed).unwrap(), fs::read(place.at("libchaos.so")).unwrap());

    let said = place.done(&["use", "chaos"]);
    assert!(said.contains("active engine: chaos 0.1.0 (pinned) - checked by loading it"), "{said}");
    assert_eq!(place.list()["slot"]["active"], "chaos");

    let mut bytes = fs::read(&installed).unwrap();
    bytes.push(b'x');
    fs::write(&installed, bytes).unwrap();
    let said = place.refused(&["use", "chaos"], "error: chaos: file hash ");
    assert!(said.contains(" does not match ctxhost.lock "), "{said}");
    assert!(said.contains("; not loaded; `ctxhost sync` "), "a way out: {said}");
    assert!(said.contains("\nthe active engine is still legacy\n"), "{said}");
    let list = place.list();
    assert_eq!(list["slot"]["configured"], "chaos");
    assert_eq!(list["slot"]["active"], "legacy");
    assert_eq!(place.listed()["trust"], "changed!");
    let said = place.done(&["engines", "list", "--check"]);
    assert!(said.contains("slot: configured chaos, active legacy (loaded)"), "{said}");

    let said = place.done(&["install", "libchaos.so", "--yes"]);
    assert!(!said.contains("next:"), "it is in the slot already: {said}");
    place.done(&["use", "chaos"]);
    let said = place.done(&["config", "check"]);
    assert!(said.contains("\nok  trust   pinned, 1 in ctxhost.lock\n"), "{said}");
    let said = place.done(&["uninstall", "chaos"]);
    assert!(said.contains("the slot still names it"), "{said}");
    assert!(!installed.exists());
    assert!(!place.config().contains("entries"), "{}", place.config());
    let (code, said) = place.run(&["uninstall", "chaos"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn another_build_replaces_the_pin_and_lifts_the_quarantine_of_the_old_one() {
    let place = Place::with("");
    place.engine("one.so", b"");
    place.engine("two.so", b"two");
    place.done(&["install", "one.so", "--yes"]);
    let old = place.installed();
    let said = place.done(&["install", "two.so", "--yes"]);
    assert!(said.contains(" → 0.1.0 "), "{said}");
    let new = place.installed();
    assert!(new != old && new.exists() && !old.exists(), "{} {}", old.display(), new.display());
    let lock = fs::read_to_string(place.at("ctxhost.lock")).unwrap();
    assert_eq!(lock.matches("[[engine]]").count(), 1, "{lock}");
    let said = place.done(&["install", "two.so", "--yes"]);
    assert!(said.contains("these bytes are already pinned"), "{said}");
    assert_eq!(place.installed(), new);

    // A digest by hand and a lock that says otherwise: somebody has to settle it.
    place.done(&["install", "one.so", "--yes"]);
    let two = place.at("two.so");
    let sha256 = place.done(&["engines", "info", two.to_str().unwrap()]);
    let sha256 = sha256.lines().find_map(|line| line.strip_prefix("sha256")).unwrap().trim();
    let text = format!("[plugins.entries.chaos]\npath = \"two.so\"\nsha256 = \"{sha256}\"\n");
    fs::write(place.at("ctxhost.toml"), text).unwrap();
    place.refused(&["use", "chaos"], "name different bytes");
    place.done(&["install", "two.so", "--yes"]);
    assert!(place.config().contains(sha256), "{}", place.config());
    place.done(&["use", "chaos"]);
}

#[test]
fn an_install_that_fails_leaves_nothing_behind() {
    // With a path the entry is one of a file, and those do not run inline.
    let place = Place::with("[plugins.entries.chaos]\nisolation = \"inline\"\n");
    place.engine("libchaos.so", b"");
    let before = place.config();
    let (code, said) = place.run(&["install", "libchaos.so", "--yes"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("only bundled engines run inline"), "{said}");
    assert_eq!(place.config(), before);
    assert!(!place.at("ctxhost.lock").exists(), "an empty lock asks for pins, and none does not");
    assert_eq!(libraries_below(&place.at(".ctxhost")), 0);
}

fn libraries_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: PathBuf| {
        if path.is_dir() {
            libraries_below(&path)
        } else {
            usize::from(path.extension().is_some_and(|end| end == "so"))
        }
    };
    entries.map(count).sum()
}

#[test]
fn a_crate_and_a_folder_are_installed_as_well() {
    let place = Place::with("");
    let crate_folder = place.at("keep-it");
    fs::create_dir_all(&crate_folder).unwrap();
    fs::write(crate_folder.join("Cargo.toml"), "[package]\nname = \"keep-it\"\n").unwrap();
    let (code, said) = place.run(&["install", "keep-it", "--yes"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("run `cargo build --release` there first"), "{said}");
    fs::create_dir_all(crate_folder.join("target/release")).unwrap();
    let library = place.engine("keep-it/target/release/libkeep_it.so", b"");
    place.done(&["install", "keep-it", "--yes"]);

    let folder = place.at("package");
    fs::create_dir(&folder).unwrap();
    let (code, said) = place.run(&["install", "package", "--yes"]);
    assert_eq!(code, Some(2), "{said}");
    fs::rename(&library, folder.join("libx.so")).unwrap();
    let sha256 = place.listed()["sha256"].as_str().unwrap().to_owned();
    let report = serde_json::json!({
        "engine": { "id": "chaos" }, "file": { "sha256": sha256 },
        "complete": true, "conformant": true, "checks": 7, "failed": 0,
    });
    // Where the check was asked for, or beside the library.
    fs::write(place.at("conformance.json"), report.to_string()).unwrap();
    let said = place.done(&["install", "package/libx.so", "--yes"]);
    assert!(said.contains("\nconformance conformant, 7 checks\n"), "{said}");
    fs::rename(place.at("conformance.json"), folder.join("conformance.json")).unwrap();
    fs::remove_file(place.at("ctxhost.toml")).unwrap();
    let said = place.done(&["install", "package", "--yes"]);
    assert!(said.contains("\nctxhost.toml (new): [plugins.entries.chaos] path\n"), "{said}");
    assert!(said.contains("\nconformance conformant, 7 checks\n"), "{said}");
    assert_eq!(place.listed()["conformance"], "conformant, 7 checks");
}

#[test]
fn a_folder_that_the_config_names_can_be_moved_with_it() {
    let place = Place::with("[plugins]\ninstall_dir = \"engines\"\n");
    place.engine("libchaos.so", b"");
    place.done(&["install", "libchaos.so", "--yes"]);
    assert!(place.config().contains("path = \"engines/chaos-"), "{}", place.config());
    let moved = place.at("moved");
    fs::create_dir(&moved).unwrap();
    for name in ["ctxhost.toml", "ctxhost.lock", "engines"] {
        fs::rename(place.at(name), moved.join(name)).unwrap();
    }
    let said = place.done(&["--config", "moved/ctxhost.toml", "use", "chaos"]);
    assert!(said.contains("(pinned)"), "{said}");
}

#[test]
fn an_unpinned_file_is_refused_once_there_is_a_lock() {
    let mask = bundled_library("mask");
    let by_hand = format!("[plugins.entries.mask]\npath = {mask:?}\n");
    let place = Place::with(&by_hand);
    place.done(&["use", "mask"]);
    place.done(&["use", "legacy"]);
    place.engine("libchaos.so", b"");
    place.done(&["install", "libchaos.so", "--yes"]);
    let command = format!("`ctxhost install {}` pins it", mask.display());
    place.refused(&["use", "mask"], &command);
    // The user's own word at the command line is enough.
    place.done(&["engines", "info", mask.to_str().unwrap()]);
    place.done(&["engines", "info", "./libchaos.so"]);

    let any = format!("[plugins]\ntrust = \"any\"\n{}", place.config());
    fs::write(place.at("ctxhost.toml"), any).unwrap();
    place.done(&["use", "mask"]);

    let strict = Place::with(&format!("[plugins]\ntrust = \"pinned\"\n{by_hand}"));
    strict.refused(&["use", "mask"], "the active engine is still legacy");
    let damaged = Place::with(&by_hand);
    fs::write(damaged.at("ctxhost.lock"), "this is no lock").unwrap();
    damaged.refused(&["use", "mask"], "is damaged");
    // Whatever else is trusted: the lock may hold a pin that says otherwise.
    let any = format!("[plugins]\ntrust = \"any\"\n{by_hand}");
    fs::write(damaged.at("ctxhost.toml"), any).unwrap();
    damaged.refused(&["use", "mask"], "is damaged");
    fs::remove_file(damaged.at("ctxhost.lock")).unwrap();
    damaged.done(&["use", "mask"]);
}

#[test]
fn an_id_that_is_a_path_is_not_installed() {
    let place = Place::with("[plugins]\ninstall_dir = \"deep/engines\"\n");
    let mut bytes = fs::read(chaos_library()).unwrap();
    let at = memchr::memmem::find(&bytes, b"\nid=chaos\n").unwrap();
    bytes.splice(at..at + 10, *b"\nid=../ab\n");
    fs::write(place.at("libchaos.so"), bytes).unwrap();
    let (code, said) = place.run(&["install", "libchaos.so", "--yes"]);
    assert!(code != Some(0) && said.contains("which is not a valid id"), "{said}");
    assert!(!place.at("deep").exists() && !place.at("ctxhost.lock").exists());
}

pub(super) fn sign(pair: &KeyPair, file: &Path) {
    let bytes = fs::read(file).unwrap();
    let signature = minisign::sign(None, &pair.sk, Cursor::new(bytes), None, None).unwrap();
    let mut name = file.as_os_str().to_owned();
    name.push(".minisig");
    fs::write(name, signature.into_string()).unwrap();
}

#[test]
fn a_signature_by_a_trusted_key_is_shown_and_can_be_required() {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let key = pair.pk.to_base64();
    let demands = |required: bool| {
        format!("[plugins]\ntrusted_keys = [\"{key}\"]\nrequire_signature = {required}\n")
    };
    let place = Place::with(&demands(true));
    let file = place.engine("libchaos.so", b"");
    place.refused(&["install", "libchaos.so", "--yes"], "plugins.require_signature");
    place.refused(&["engines", "info", "./libchaos.so"], "it is not signed");
    sign(&KeyPair::generate_unencrypted_keypair().unwrap(), &file);
    place.refused(&["install", "libchaos.so", "--yes"], "(not in trusted_keys, so not checked)");
    sign(&pair, &file);
    place.done(&["install", "libchaos.so", "--yes"]);
    place.done(&["use", "chaos"]);
    let printed = pair.pk.to_box().unwrap().to_string();
    let signer = place.listed()["signer"].as_str().unwrap().to_owned();
    assert!(printed.contains(&signer), "{printed}: {signer}");
    place.done(&["engines", "info", "./libchaos.so"]);

    // A signature of other bytes is worse than none, asked for or not.
    let lax = Place::with(&demands(false));
    let file = lax.engine("libchaos.so", b"");
    sign(&pair, &file);
    lax.engine("libchaos.so", b"more");
    lax.refused(&["install", "libchaos.so", "--yes"], "is not a signature of these bytes");
}

#[test]
fn who_may_write_beside_a_file_may_replace_it_and_links_are_followed() {
    let place = Place::with("");
    let open = place.at("open");
    fs::create_dir(&open).unwrap();
    place.engine("open/libchaos.so", b"");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let said = place.refused(&["install", "open/libchaos.so", "--yes"], "every user can write");
    assert!(said.contains("`chmod o-w` on that folder"), "{said}");
    symlink("open/libchaos.so", place.at("link.so")).unwrap();
    place.refused(&["engines", "info", "./link.so"], "every user can write");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    let said = place.done(&["install", "link.so", "--yes"]);
    let real = open.canonicalize().unwrap().join("libchaos.so");
    assert!(said.contains(&format!("\nfrom {}\n", real.display())), "{said}");
}

#[test]
fn an_engine_has_one_id_everywhere() {
    let place = Place::with("[plugins.entries.other]\npath = \"libchaos.so\"\n");
    place.engine("libchaos.so", b"");
    let (code, said) = place.run(&["use", "other"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("write [plugins.entries.chaos] and, in the slot, \"chaos\""), "{said}");
    let said = place.done(&["engines", "list"]);
    assert!(said.contains("the file contains the engine \"chaos\""), "{said}");
    let (code, said) = place.run(&["install", "no-such-file.so"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_replay_leaves_no_quarantine_behind() {
    let place = Place::with("[plugins.entries.chaos.config]\nmode = \"panic-assemble\"\n");
    place.engine("libchaos.so", b"");
    place.done(&["install", "libchaos.so", "--yes"]);
    let session = root().join("examples/sessions/coding.jsonl");
    let (code, said) = place.run(&["replay", session.to_str().unwrap(), "--engine", "chaos"]);
    assert_eq!(code, Some(1), "a failed engine has no figures: {said}");
    assert!(said.contains("chaos is in quarantine"), "{said}");
    assert_eq!(place.listed()["failures"], Value::Null);
    assert!(!place.state.path().join("engines/quarantine.json").exists());
}

#[test]
fn an_engine_that_crashes_its_hosts_is_held_until_it_is_released() {
    let place = Place::with(
        "[plugins.entries.chaos]\nisolation = \"thread\"\nconfig = { mode = \"abort-create\" }\n",
    );
    place.engine("libchaos.so", b"");
    let said = place.done(&["install", "libchaos.so", "--yes"]);
    assert!(said.contains("the engine runs as native code with your permissions"), "{said}");
    assert!(said.contains("  isolation thread\n"), "{said}");
    for crashes in 1..=2 {
        let (code, _) = place.run(&["engines", "info", "chaos"]);
        assert_eq!(code, None, "a signal ended it");
        assert_eq!(place.listed()["failures"]["crashes"], crashes);
    }
    assert_eq!(place.listed()["quarantined"], true);
    let before = place.config();
    let said = place.refused(&["use", "chaos"], "2 crashes of a host, last in create: signal 6");
    assert!(said.contains("the active engine is still legacy"), "{said}");
    let said = place.done(&["engines", "list"]);
    assert!(said.contains("quarantined since 20"), "{said}");
    assert!(said.contains("`ctxhost engines release chaos`"), "{said}");

    let said = place.done(&["engines", "release", "chaos"]);
    assert!(said.contains("released; it had 2 crashes of a host"), "{said}");
    assert_eq!(place.listed()["quarantined"], false);
    let said = place.done(&["engines", "unquarantine", "chaos"]);
    assert_eq!(said, "chaos is not in quarantine\n");
    let (code, said) = place.run(&["engines", "release", "choas"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no engine \"choas\"; did you mean \"chaos\"?"), "{said}");
    assert_eq!(place.run(&["use", "chaos"]).0, None, "and may crash again");
    assert_eq!(place.config(), before, "with nothing changed");

    // Other bytes begin anew.
    place.engine("libchaos.so", b"mended");
    let said = place.done(&["install", "libchaos.so", "--yes"]);
    assert!(said.contains("older builds are released from quarantine"), "{said}");
    assert_eq!(place.listed()["failures"], Value::Null);
}

#[test]
fn two_libraries_of_one_id_are_both_named_with_the_used_one() {
    let place = Place::with("[plugins]\nengine_dirs = [\"one\", \"two\"]\n");
    ["one", "two"].iter().for_each(|folder| fs::create_dir(place.at(folder)).unwrap());
    let (one, two) = ("one/libchaos.so", "two/libchaos.so");
    let _ = [(one, b"".as_slice()), (two, b"x")].map(|(path, more)| place.engine(path, more));
    for arguments in [&["use", "chaos"][..], &["slot", "status"], &["engines", "list"]] {
        let printed = place.done(arguments);
        let note = format!(
            "engine \"chaos\" is in 2 libraries of plugins.engine_dirs: {one} and {two}; used is {one}, the \
             first; "
        );
        assert!(printed.contains(&note), "{arguments:?}: {printed}");
    }
    // A path of its own is the user's choice.
    fs::write(
        place.at("ctxhost.toml"),
        place.config() + "[plugins.entries.chaos]\npath = \"two/libchaos.so\"\n",
    )
    .unwrap();
    assert!(!place.done(&["use", "chaos"]).contains("is in 2 libraries"));
}

#[test]
fn a_quarantine_that_is_over_is_shown_as_over() {
    let place = Place::with("");
    let log = FailureLog::new(place.state.path(), QuarantineRules::default(), HostClock::default());
    let bytes = format!("bundled {}", env!("CARGO_PKG_VERSION"));
    let record = FailureRecord {
        id: "window".into(),
        bytes: bytes.clone(),
        operation: "assemble".into(),
        reason: "it panicked".into(),
        failed_at_ms: 1_767_225_600_000,
        failures: 1,
        crashes: 0,
        held_until_ms: 1_767_226_200_000,
        held: false,
    };
    fs::create_dir_all(place.state.path().join("engines")).unwrap();
    let file = json!({ "version": 1, "records": [record] });
    fs::write(place.state.path().join("engines/quarantine.json"), file.to_string()).unwrap();
    assert!(log.find("window", &bytes).unwrap().is_some(), "the host reads it");
    for arguments in [&["use", "window"][..], &["slot", "status"], &["engines", "list"]] {
        let printed = place.done(arguments);
        let words = "window: its quarantine ended 2026-01-01 00:10 UTC (1 failure, last in assemble: it panicked)";
        assert!(printed.contains(words), "{arguments:?}: {printed}");
    }
}

//! What an engine can reach while `ctxhost check` runs it: its working folder and nothing else.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use ctxhost_check::CheckReport;
use ctxhost_tests::native::native_library;
use ctxhost_tests::{broken_library, ctxhost};
use tempfile::TempDir;

/// Calls that ask about a path and tell nothing of its contents.
const QUESTIONS: [&str; 3] = ["stat-key", "access-key", "readlink"];

/// A folder with a home and files that the engine must not reach.
struct Site {
    folder: TempDir,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [("home/.ssh/id_ed25519", "A SECRET KEY"), ("victims/file", "kept")] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Site { folder }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// Checks the hostile library with an attack, and returns the report.
    fn check(&self, attack: &str, port: u16) -> CheckReport {
        let library = native_library("tests/fixtures/c/hostile.c", &[]);
        let config = format!(
            "[plugins.entries.hostile.config]\nattack = {attack:?}\nconfesses = 1\nport = {port}\n\
             victims = {:?}\nhome = {:?}\nsocket = {:?}\n",
            self.path("victims"),
            self.path("home"),
            self.path("socket"),
        );
        fs::write(self.path("ctxhost.toml"), config).unwrap();
        let output =
            self.run(&library, &["--json", "--config", "ctxhost.toml", "--only", "contract"]);
        serde_json::from_str(&output.1).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    fn run(&self, library: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = ctxhost();
        command.arg("check").args(arguments).arg(library).current_dir(self.folder.path());
        command.env("HOME", self.path("home"));
        let output = command.output().unwrap();
        let texts = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), texts.concat())
    }

    /// All files below, with their contents.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut folders, mut files) = (vec![self.path("home"), self.path("victims")], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    files.push((entry.path(), fs::read(entry.path()).unwrap_or_default()));
                }
            }
        }
        files.sort();
        files
    }
}

/// What the engine states in the message of a failure: a call and whether it succeeded.
fn claims(report: &CheckReport) -> Vec<(String, bool)> {
    let failures = report.groups.iter().flat_map(|group| &group.failures);
    let text: String = failures.map(|failure| failure.message.as_str()).collect();
    let parse = |text: &str| {
        let mut words = text.split(';').next()?.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.next()?.parse::<i64>().ok()? >= 0))
    };
    text.split("CLAIM ").skip(1).filter_map(parse).collect()
}

/// Whether this kernel has what the tests are about; prints what is missing.
fn is_confined(report: &CheckReport) -> bool {
    for missing in &report.confinement.missing {
        println!("SKIPPED: this machine has no {missing}");
    }
    let all = report.confinement.applied.join("; ");
    all.contains("landlock") && all.contains("seccomp")
}

#[test]
fn files_secrets_the_network_and_processes_are_refused_and_the_check_survives() {
    let site = Site::new();
    let before = site.files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Each with a call that shows that the attack ran.
    let attacks = [
        ("files", "chmod"),
        ("secrets", "list-home"),
        ("network", "connect"),
        ("processes", "kill"),
    ];
    for (attack, call) in attacks {
        let report = site.check(attack, port);
        if !is_confined(&report) {
            return;
        }
        assert!(!report.conformant, "{attack}: the error of the engine is a failure");
        let claims = claims(&report);
        assert!(claims.iter().any(|(name, _)| name == call), "{attack}: {report:#?}");
        let forbidden =
            |(name, done): &&(String, bool)| *done && !QUESTIONS.contains(&name.as_str());
        let succeeded: Vec<_> = claims
            .iter()
            .filter(forbidden)
            .filter(|(name, _)| name != "assemble")
            .map(|(name, _)| name)
            .collect();
        assert!(succeeded.is_empty(), "{attack}: {succeeded:?}");
    }
    assert!(listener.accept().is_err(), "the engine connected");
    assert_eq!(site.files(), before);
}

#[test]
fn a_refused_call_is_named_by_the_error_of_the_engine_and_explained() {
    let site = Site::new();
    for (kind, says) in [
        ("reads", "cannot read /etc/passwd: Permission denied"),
        ("connects", "cannot connect: Operation not permitted"),
        ("starts", "cannot start true: Operation not permitted"),
    ] {
        let (code, text) =
            site.run(&broken_library(kind, site.folder.path()), &["--only", "contract"]);
        if code == Some(0) {
            println!("SKIPPED: this kernel refuses nothing: {text}");
            continue;
        }
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(says), "{kind}: {text}");
        assert!(text.contains("ctxhost check refuses engines files outside"), "{kind}: {text}");
    }
}

#[test]
fn a_folder_that_the_config_names_can_be_read() {
    let site = Site::new();
    let library = broken_library("reads", site.folder.path());
    let arguments = ["--only", "contract", "--config", "ctxhost.toml"];
    fs::write(site.path("ctxhost.toml"), "plugins.sandbox.readable = [\"/etc/passwd\"]\n").unwrap();
    let (code, text) = site.run(&library, &arguments);
    assert_eq!(code, Some(0), "{text}");
}

//! The place of one attack: a temporary home, its processes, and the results.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};
use tempfile::TempDir;

use crate::report::Breach;
use crate::run::Campaign;

/// What no process of ctxhost may take, so that an attack that works does not take the machine down.
const ADDRESS_SPACE: u64 = 12 << 30;
/// As many breaches of an attack are told; more say the same.
const MOST_BREACHES: usize = 8;

/// What is known of an attack so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) tried: u64,
    pub(crate) breaches: Vec<(Breach, String)>,
    pub(crate) skipped: Vec<String>,
}

/// A place for one attack.
#[derive(Debug)]
pub(crate) struct Stand {
    folder: PathBuf,
    _temporary: Option<TempDir>,
    binary: PathBuf,
    pub(crate) is_short: bool,
    pub(crate) is_long: bool,
    pub(crate) seed: u64,
    /// What stands in files and variables that no attacker may read.
    pub(crate) secret: String,
    record: Mutex<Record>,
    running: Mutex<Vec<u32>>,
    outputs: AtomicUsize,
    /// What is found from now on is the doing of the kit, which has ended the processes.
    is_over: AtomicBool,
}

/// A command that has ended, or was ended because its time was over.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) peak_mib: u64,
    pub(crate) is_late: bool,
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }
}

impl Stand {
    pub(crate) fn new(campaign: &Campaign, name: &str) -> Stand {
        let mut builder = tempfile::Builder::new();
        builder.prefix("redteam-");
        let (folder, temporary) = match &campaign.keep {
            Some(keep) => (keep.join(name), None),
            None => {
                let temporary = builder.tempdir().expect("a temporary folder");
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        for below in ["home/.ssh", "state", "work", "victims/folder"] {
            fs::create_dir_all(folder.join(below)).expect("folders of the stand");
        }
        let secret = format!("SECRET-{:016x}", fastrand::Rng::with_seed(campaign.seed).u64(..));
        let stand = Stand {
            folder,
            _temporary: temporary,
            binary: campaign.binary.clone(),
            is_short: campaign.is_short,
            is_long: campaign.is_long,
            seed: campaign.seed,
            secret,
            record: Mutex::default(),
            running: Mutex::default(),
            outputs: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        stand.put_victims();
        stand
    }

    fn put_victims(&self) {
        let private = |path: &str| {
            fs::write(self.path(path), format!("{}\n", self.secret)).expect("a victim");
            fs::set_permissions(self.path(path), fs::Permissions::from_mode(0o600))
                .expect("a mode");
        };
        private("home/.ssh/id_ed25519");
        private("victims/private.txt");
        private("victims/folder/inner.txt");
        std::os::unix::fs::symlink("private.txt", self.path("victims/link")).unwrap_or_default();
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// A number: the first in the short form, the second usually, the third in the long form.
    pub(crate) fn size(&self, short: u64, usual: u64, long: u64) -> u64 {
        match (self.is_short, self.is_long) {
            (true, _) => short,
            (_, true) => long,
            _ => usual,
        }
    }

    pub(crate) fn random(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }

    pub(crate) fn broke(&self, breach: Breach, what: impl Into<String>) {
        if self.is_over.load(Ordering::SeqCst) {
            return;
        }
        let what: String = what.into().chars().flat_map(visible).take(400).collect();
        let mut record = self.record.lock().unwrap();
        let new = (breach, what);
        if record.breaches.len() < MOST_BREACHES && !record.breaches.contains(&new) {
            record.breaches.push(new);
        }
    }

    /// Something must hold.
    pub(crate) fn must(&self, holds: bool, breach: Breach, what: impl FnOnce() -> String) {
        if !holds {
            self.broke(breach, what());
        }
    }

    pub(crate) fn tried(&self, times: u64) {
        self.record.lock().unwrap().tried += times;
    }

    pub(crate) fn skip(&self, why: impl Into<String>) {
        let why = why.into();
        eprintln!("SKIPPED: {why}");
        self.record.lock().unwrap().skipped.push(why);
    }

    pub(crate) fn record(&self) -> Record {
        self.record.lock().unwrap().clone()
    }

    /// ctxhost, in the work folder, with nothing of the environment of this process.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments);
        self.surround(&mut command);
        command
    }

    /// The program and what surrounds it, for commands that start it through another one.
    pub(crate) fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", self.path("home")).env("XDG_STATE_HOME", self.path("home/state"));
        command.env("XDG_CONFIG_HOME", self.path("home/config"));
        command.env("CTXHOST_STATE_DIR", self.path("state")).env("NO_COLOR", "1");
        command.env("REDTEAM_SECRET", &self.secret).current_dir(self.path("work"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Starts a process that ends with this attack at the latest.
    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        assert!(!self.is_over.load(Ordering::SeqCst), "the time of the attack is over");
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
        let pid = rustix::process::Pid::from_raw(child.id() as i32);
        let _ = prlimit(pid, Resource::As, limit);
        self.running.lock().unwrap().push(child.id());
        child
    }

    /// Waits for a process that `spawn` started; kills it when the time is over.
    pub(crate) fn wait(&self, child: &mut Child, limit: Duration) -> (Option<ExitStatus>, u64) {
        let begun = Instant::now();
        let mut peak = 0;
        let status = loop {
            if has_begun(child.id()) {
                peak = peak.max(peak_mib(child.id()));
            }
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if begun.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
        };
        self.running.lock().unwrap().retain(|pid| *pid != child.id());
        (status, peak)
    }

    /// Runs ctxhost to its end. A panic, a fatal signal and an end that does not come are breaches.
    pub(crate) fn ctxhost(&self, arguments: &[&str], limit: Duration) -> Ran {
        self.run(&mut self.command(arguments), &arguments.join(" "), limit)
    }

    pub(crate) fn run(&self, command: &mut Command, name: &str, limit: Duration) -> Ran {
        let (out, err) = (self.output(), self.output());
        command.stdout(File::create(&out).expect("a file for the output"));
        command.stderr(File::create(&err).expect("a file for the output"));
        let mut child = self.spawn(command);
        let (status, peak_mib) = self.wait(&mut child, limit);
        let read = |path: &Path| fs::read(path).unwrap_or_default();
        let ran = Ran {
            code: status.and_then(|status| status.code()),
            out: read(&out),
            err: read(&err),
            peak_mib,
            is_late: status.is_none(),
        };
        let name = name.replace(&self.folder.display().to_string(), "…");
        if ran.is_late {
            self.broke(
                Breach::Unbounded,
                format!("`{name}` does not end in {} s", limit.as_secs()),
            );
        }
        self.judge(&name, status, &ran.err);
        ran
    }

    /// A new file for what a process says.
    pub(crate) fn output(&self) -> PathBuf {
        let number = self.outputs.fetch_add(1, Ordering::SeqCst);
        self.path(&format!("output-{number}"))
    }

    /// Panics and fatal signals.
    pub(crate) fn judge(&self, name: &str, status: Option<ExitStatus>, said: &[u8]) {
        let said = String::from_utf8_lossy(said);
        let lines: Vec<&str> = said.lines().chain([""]).collect();
        for pair in lines.windows(2).filter(|pair| pair[0].contains("panicked at")) {
            // The engine whose attack a panic is says so.
            if !pair.concat().contains("chaos: ") {
                self.broke(Breach::Panic, format!("`{name}`: {} {}", pair[0], pair[1]));
            }
        }
        if let Some(signal) = status.and_then(|status| status.signal()) {
            self.broke(Breach::Panic, format!("`{name}` died of signal {signal}"));
        }
        if said.contains(&self.secret) {
            self.broke(Breach::Escaped, format!("`{name}` prints a secret"));
        }
    }

    /// Ends all that still runs.
    pub(crate) fn kill_all(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for pid in self.running.lock().unwrap().drain(..) {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
    }

    /// What stands in the victims' folders and in the home, with all that an attack could change of it.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        for below in ["victims", "home/.ssh"] {
            note(&self.path(below), &mut found);
        }
        found
    }

    /// What has changed since is an escape.
    pub(crate) fn must_be_as(&self, before: &BTreeMap<PathBuf, String>) {
        let now = self.snapshot();
        let paths = before.keys().chain(now.keys());
        let changed = paths.filter(|path| before.get(*path) != now.get(*path));
        for path in changed.collect::<std::collections::BTreeSet<_>>() {
            let name = path.strip_prefix(&self.folder).unwrap_or(path).display();
            let (was, is) = (before.get(path), now.get(path));
            self.broke(Breach::Escaped, format!("{name} was {was:?} and is {is:?}"));
        }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// A control character as its escape, everything else as it is.
fn visible(character: char) -> Vec<char> {
    if character.is_control() { character.escape_default().collect() } else { vec![character] }
}

fn note(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(about) = fs::symlink_metadata(path) else { return };
    let content = if about.is_file() {
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    } else {
        String::new()
    };
    // The time of the last access is not held: the kit itself reads.
    let reported = format!(
        "mode {:o} owner {}:{} links {} changed {} {content:?}",
        about.mode(),
        about.uid(),
        about.gid(),
        about.nlink(),
        about.ctime_nsec(),
    );
    found.insert(path.to_owned(), reported);
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if about.is_dir() {
            note(&entry.path(), found);
        }
    }
}

/// Whether a spawned process runs its own program. For an instant after `spawn` it still has the memory of this
/// one, which may be hundreds of megabytes.
fn has_begun(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).ok() != fs::read_link("/proc/self/exe").ok()
}

/// The most memory a process ever held, in MiB; 0 where it is gone.
pub(crate) fn peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

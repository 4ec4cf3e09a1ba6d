//! A running `ctxhost serve`, and what must hold after every attack.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::report::Breach;
use crate::stand::{Stand, peak_mib};

/// How long it may take to listen, and to end when it is told to and its config gives it a second.
const START: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(15);

/// A gateway on a free port.
#[derive(Debug)]
pub(crate) struct Gateway<'a> {
    stand: &'a Stand,
    child: Child,
    pub(crate) address: String,
    /// The path of its dashboard with the token that opens it.
    pub(crate) dashboard: String,
    log: PathBuf,
    /// Where its log begins, behind what it says of itself when it starts.
    log_begins: usize,
    has_ended: bool,
}

impl Stand {
    /// Starts one with this config and these upstreams.
    pub(crate) fn serve(&self, upstream: &str, config: &str) -> Gateway<'_> {
        self.serve_with(upstream, config, |_| {})
    }

    pub(crate) fn serve_with(
        &self,
        upstream: &str,
        config: &str,
        change: impl FnOnce(&mut Command),
    ) -> Gateway<'_> {
        let text = format!("gateway.drain_ms = 1000\n{config}");
        fs::write(self.path("work/ctxhost.toml"), text).expect("a config can be written");
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--upstream", upstream]);
        change(&mut command);
        self.serve_by(command).unwrap_or_else(|said| panic!("it does not serve: {said}"))
    }

    /// Starts one by this command; what it said where it does not listen.
    pub(crate) fn serve_by(&self, mut command: Command) -> Result<Gateway<'_>, String> {
        let log = self.output();
        command.stderr(File::create(&log).expect("a file for the log"));
        let mut child = self.spawn(&mut command);
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let find = |mark: &str| {
                let rest = said.split_once(mark)?.1;
                Some(rest.split_whitespace().next()?.to_owned())
            };
            // Without a state folder the greeting has no link.
            let no_link = || said.contains("no link to the dashboard").then(String::new);
            let dashboard = find("dashboard http://").or_else(no_link);
            if let (Some(address), Some(dashboard)) = (find("listening http://"), dashboard)
                && said.ends_with('\n')
            {
                let dashboard = dashboard.trim_start_matches(&address).to_owned();
                let (log_begins, has_ended) = (said.len(), false);
                return Ok(Gateway {
                    stand: self,
                    child,
                    address,
                    dashboard,
                    log,
                    log_begins,
                    has_ended,
                });
            }
            if child.try_wait().is_ok_and(|it| it.is_some()) || begun.elapsed() > START {
                let (status, _) = self.wait(&mut child, Duration::ZERO);
                self.judge("serve", status, said.as_bytes());
                return Err(said);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The files of the gateway's conversations.
    pub(crate) fn kept_sessions(&self) -> Vec<PathBuf> {
        let list = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        let keys = list(self.path("state/gateway/sessions"));
        let files = keys.flat_map(|key| list(key.path())).map(|file| file.path());
        files.filter(|path| path.extension().is_some_and(|it| it == "jsonl")).collect()
    }

    /// What stands in all conversations, as `ctxhost export` tells it. One that it cannot open is lost.
    pub(crate) fn reported_sessions(&self) -> Vec<String> {
        let reported = |path: PathBuf| {
            let name = path.display().to_string();
            let ran = self.ctxhost(&["export", &name], Duration::from_secs(30));
            let is_open = ran.code == Some(0);
            self.must(is_open, Breach::Lost, || format!("{name} does not open: {}", ran.said()));
            ran.text()
        };
        self.kept_sessions().into_iter().map(reported).collect()
    }

    /// Each of these texts stands in one of the sessions.
    pub(crate) fn must_be_kept<'a>(&self, texts: impl IntoIterator<Item = &'a String>) {
        let reported = self.reported_sessions();
        for text in texts {
            let is_kept = reported.iter().any(|session| session.contains(text.as_str()));
            self.must(is_kept, Breach::Lost, || {
                format!("{text:.60?} was acknowledged and is in no session")
            });
        }
    }

    /// The sessions are sound to the last line.
    pub(crate) fn must_be_sound(&self) {
        let folder = self.path("state/gateway/sessions").display().to_string();
        if !self.kept_sessions().is_empty() {
            let ran = self.ctxhost(&["fsck", &folder], Duration::from_secs(60));
            self.must(ran.code == Some(0), Breach::Lost, || format!("fsck: {}", ran.text()));
        }
    }
}

impl Gateway<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it has held so far, in MiB, without its workers.
    pub(crate) fn peak_mib(&self) -> u64 {
        peak_mib(self.child.id())
    }

    /// The processor's time of its process so far, in ticks of 10 ms.
    pub(crate) fn ticks(&self) -> u64 {
        ticks(&[self.child.id()])
    }

    pub(crate) fn must_take_at_most(&self, mib: u64, during: &str) {
        let peak = self.peak_mib();
        self.stand.must(peak <= mib, Breach::Unbounded, || {
            format!("{during}: {peak} MiB of memory; at most {mib} MiB are right")
        });
    }

    /// The processes of its engines.
    pub(crate) fn workers(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let children = tasks
            .into_iter()
            .flatten()
            .flatten()
            .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let pids = children.flat_map(|line| {
            let pids = line.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<u32>>()
        });
        pids.collect()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|it| it.is_none())
    }

    pub(crate) fn said(&self) -> Vec<u8> {
        fs::read(&self.log).unwrap_or_default()
    }

    pub(crate) fn said_text(&self) -> String {
        String::from_utf8_lossy(&self.said()).into_owned()
    }

    /// How much it has logged, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |about| about.len())
    }

    /// Whether these words come up in its log before long.
    pub(crate) fn says(&self, any_of: &[&str], patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let said = self.said();
            let said = said.get(self.log_begins..).unwrap_or_default();
            let said = String::from_utf8_lossy(said).to_lowercase();
            if any_of.iter().any(|words| said.contains(words)) {
                return true;
            }
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A decent client still gets an answer.
    pub(crate) fn must_answer(&self, when: &str) {
        let body =
            crate::bodies::chat(&[crate::bodies::user(&format!("Are you there? {when}"))], false);
        let answer = crate::http::ask(&self.address, "POST", crate::bodies::CHAT, &[], &body);
        let is_answered = answer.status == 200 && answer.is_whole;
        self.stand.must(is_answered, Breach::Wrong, || {
            format!("{when}: a decent client gets {} {:.200}", answer.status, answer.text())
        });
    }

    /// Kills it on the spot.
    pub(crate) fn kill(mut self) {
        self.has_ended = true;
        let _ = self.child.kill();
        let _ = self.stand.wait(&mut self.child, END);
        self.stand.judge("serve", None, &self.said());
    }

    /// Tells it to end, and holds its end and its log against what must hold of them.
    pub(crate) fn end(mut self) {
        self.has_ended = true;
        if !self.is_alive() {
            self.stand.broke(Breach::Panic, "`serve` ended by itself".to_owned());
        }
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let (status, _) = self.stand.wait(&mut self.child, END);
        if status.is_none() {
            let late = format!("`serve` is still there {} s after SIGTERM", END.as_secs());
            self.stand.broke(Breach::Unbounded, late);
        }
        let code = status.and_then(|status| status.code());
        if code.is_some_and(|code| code != 0) {
            self.stand.broke(Breach::Panic, format!("`serve` ended with {code:?}"));
        }
        let said = self.said();
        self.stand.judge("serve", status, &said);
        let raw = said.iter().position(|byte| is_control(*byte));
        if let Some(at) = raw {
            let around = &said[at.saturating_sub(60)..(at + 20).min(said.len())];
            let around = String::from_utf8_lossy(around).into_owned();
            self.stand
                .broke(Breach::Escaped, format!("a control character in the log: {around:?}"));
        }
    }
}

/// Whether a byte steers a terminal.
pub(crate) fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\n' && byte != b'\t') || byte == 0x7f
}

/// The time that these processes have computed so far, in ticks of 10 ms.
pub(crate) fn ticks(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default().to_owned();
        let number = |at| behind.split_whitespace().nth(at).and_then(|it| it.parse::<u64>().ok());
        number(11).unwrap_or(0) + number(12).unwrap_or(0)
    };
    pids.iter().map(of).sum()
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.child.kill();
            let _ = self.stand.wait(&mut self.child, END);
        }
    }
}

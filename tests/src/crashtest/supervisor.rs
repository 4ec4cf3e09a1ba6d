//! The supervisor of one session: starts a child, kills it, and inspects the session.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::campaign::Tally;
use super::inspect::{Known, Violation, whole_lines};
use super::kill::Way;
use super::promise::Promise;
use super::{CrashtestError, cannot};
use ctxhost_session::{CompactionRecovery, Session, pending_path};

/// A session that is longer begins anew, so that opening it costs no more than killing its writer.
const LONGEST_SESSION_BYTES: u64 = 1_000_000;

/// A child that should have died by itself by now is killed.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// The same for one that is to die in a compaction: where the program was not optimised and the machine is
/// busy, that takes seconds to come to.
const PATIENCE_FOR_COMPACTIONS: Duration = Duration::from_secs(10);

/// A child that has not opened its session by now is a failure of its own.
const LONGEST_OPENING: Duration = Duration::from_secs(30);

/// Share of kills after which the next child, not the supervisor, finishes what was cut short, of 4.
const LEFT_TO_CHILD_OF_4: u32 = 1;

/// How children are started.
#[derive(Clone, Debug)]
pub(super) struct ChildCommand {
    pub(super) program: PathBuf,
    pub(super) lies: bool,
}

/// One session, over many children.
#[derive(Debug)]
pub(super) struct Supervisor {
    folder: PathBuf,
    sessions: u32,
    known: Known,
}

impl Supervisor {
    /// Keeps a session in a folder of its own.
    pub(super) fn of(folder: PathBuf) -> Supervisor {
        Supervisor { folder, sessions: 0, known: Known::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("session-{}", self.sessions)).join("session.jsonl")
    }

    /// One child, one kill, one look.
    pub(super) fn round(
        &mut self,
        kill: u64,
        random: &mut fastrand::Rng,
        command: &ChildCommand,
        tally: &mut Tally,
    ) -> Result<(), CrashtestError> {
        self.begin_anew_where_long(tally)?;
        let way = Way::draw(random);
        let promised = self.let_live(random, command, way)?;
        promised.into_iter().for_each(|promise| self.known.promised(promise));
        tally.kills += 1;
        self.look(random, tally).map_err(|violation| {
            let (way, session) = (way.to_string(), self.path());
            CrashtestError::Violation { violation, kill, way, session }
        })?;
        tally.intact += 1;
        Ok(())
    }

    fn begin_anew_where_long(&mut self, tally: &mut Tally) -> Result<(), CrashtestError> {
        let length = self.path().metadata().map(|file| file.len()).unwrap_or_default();
        if self.sessions > 0 && length <= LONGEST_SESSION_BYTES {
            return Ok(());
        }
        self.close(tally);
        if self.sessions > 0 {
            let old = self.folder.join(format!("session-{}", self.sessions));
            std::fs::remove_dir_all(&old).map_err(cannot(format!("remove {}", old.display())))?;
        }
        self.sessions += 1;
        self.known = Known::default();
        let folder = self.folder.join(format!("session-{}", self.sessions));
        std::fs::create_dir_all(&folder).map_err(cannot(format!("make {}", folder.display())))
    }

    /// Counts what the session holds in the end.
    pub(super) fn close(&self, tally: &mut Tally) {
        if let Ok(session) = Session::read(&self.path()) {
            tally.closed(&session, self.known.promises());
        }
    }

    /// Lets a child work until it dies; all that it promised.
    fn let_live(
        &self,
        random: &mut fastrand::Rng,
        command: &ChildCommand,
        way: Way,
    ) -> Result<Vec<Promise>, CrashtestError> {
        let said = self.folder.join("child.stderr");
        let mut child = self.spawn(random, command, way, &said)?;
        let lines = child.stdout.take().map(listen);
        let mut promises = Vec::new();
        if let Some(lines) = &lines {
            wait_for(way, lines, &mut promises);
        }
        // It may be dead already, by its own hand.
        let _ = child.kill();
        let status = child.wait().map_err(cannot("wait for a child"))?;
        promises.extend(lines.into_iter().flatten());
        if was_killed(status) {
            Ok(promises)
        } else {
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            Err(CrashtestError::ChildEnded { status: status.to_string(), said })
        }
    }

    fn spawn(
        &self,
        random: &mut fastrand::Rng,
        command: &ChildCommand,
        way: Way,
        said: &Path,
    ) -> Result<Child, CrashtestError> {
        let said = File::create(said).map_err(cannot(format!("create {}", said.display())))?;
        let path = self.path();
        let mut started = Command::new(&command.program);
        started.args(["child", "--seed", &random.u64(..).to_string()]);
        started.arg("--session").arg(&path);
        match way {
            Way::Point(points) => drop(started.args(["--points", &points.to_string()])),
            Way::Compaction(points) => {
                started.args(["--compaction-points", &points.to_string()]);
            }
            Way::Write(more) => {
                let length = path.metadata().map(|file| file.len()).unwrap_or_default();
                started.args(["--file-bytes", &(length + more).to_string()]);
            }
            Way::Early(_) | Way::Late(_) => {}
        }
        if command.lies {
            started.arg("--lies");
        }
        started.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
        started.spawn().map_err(cannot(format!("start {}", command.program.display())))
    }

    /// Reads the session, opens it for writing, and finishes what was cut short.
    fn look(&mut self, random: &mut fastrand::Rng, tally: &mut Tally) -> Result<(), Violation> {
        let path = self.path();
        let closed = |error: std::io::Error| Violation::Closed(error.to_string());
        if !path.try_exists().map_err(closed)? {
            return match self.known.promises() {
                0 => Ok(()),
                promises => Err(Violation::Lost(format!("the session, with {promises} promises"))),
            };
        }
        let bytes = std::fs::read(&path).map_err(closed)?;
        self.known.inspect(&path, &bytes)?;
        tally.torn += u64::from(!bytes.ends_with(b"\n"));
        if random.u32(0..4) >= LEFT_TO_CHILD_OF_4 {
            self.recover(&path, &bytes, tally)?;
        }
        Ok(())
    }

    fn recover(&mut self, path: &Path, before: &[u8], tally: &mut Tally) -> Result<(), Violation> {
        let closed = |error: String| Violation::Closed(error);
        let result = pending_result(path);
        let mut session = Session::open(path).map_err(|error| closed(error.to_string()))?;
        let recovered = session.recover_compaction();
        drop(session);
        let after = std::fs::read(path).map_err(|error| closed(error.to_string()))?;
        match recovered {
            CompactionRecovery::Nothing if after == before => {}
            CompactionRecovery::Discarded { .. } if after == before => tally.discarded += 1,
            CompactionRecovery::Applied { id } => {
                let line = result.ok_or_else(|| Violation::Changed(format!("compaction {id}")))?;
                if after != [whole_lines(before), line.as_bytes(), b"\n"].concat() {
                    return Err(Violation::Changed(format!(
                        "compaction {id} was not redone as it was"
                    )));
                }
                tally.redone += 1;
            }
            CompactionRecovery::Postponed { reason: why } => return Err(Violation::Closed(why)),
            other => return Err(Violation::Changed(format!("the file, by {other:?}"))),
        }
        self.known.inspect(path, &after)
    }
}

/// The line of a compaction that was worked out and waits beside a session.
fn pending_result(path: &Path) -> Option<String> {
    let bytes = std::fs::read(pending_path(path)).ok()?;
    let pending: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    pending.get("record")?.as_str().map(str::to_owned)
}

/// Reads what a child promises until its end. Half a line is no promise.
fn listen(stdout: ChildStdout) -> Receiver<Promise> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(stdout);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let promise = line.strip_suffix('\n').and_then(|line| line.parse().ok());
            if promise.is_none_or(|promise| sender.send(promise).is_err()) {
                break;
            }
            line.clear();
        }
    });
    receiver
}

/// Waits until it is time to kill.
fn wait_for(way: Way, lines: &Receiver<Promise>, promises: &mut Vec<Promise>) {
    match way {
        Way::Early(after) => thread::sleep(after),
        Way::Late(after) => {
            hear(lines, promises, LONGEST_OPENING, |promise| *promise == Promise::Ready);
            thread::sleep(after);
        }
        Way::Point(_) | Way::Write(_) => hear(lines, promises, PATIENCE, |_| false),
        Way::Compaction(_) => hear(lines, promises, PATIENCE_FOR_COMPACTIONS, |_| false),
    }
}

/// Hears promises until one is the last that is waited for, the child ends, or it takes too long.
fn hear(
    lines: &Receiver<Promise>,
    promises: &mut Vec<Promise>,
    longest: Duration,
    is_last: impl Fn(&Promise) -> bool,
) {
    let until = Instant::now() + longest;
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(promise) => {
                let is_last = is_last(&promise);
                promises.push(promise);
                if is_last {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Whether a signal ended it; nothing else may.
fn was_killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status).is_some()
}

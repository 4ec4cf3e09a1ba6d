//! Runs a child process and collects its verdicts and the cause of its death.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ctxhost_engine::Confinement;
use ctxhost_platform::processes::{abort_signal, signal_name, signal_of};

use super::child::{CONFINEMENT_FILE, ChildJob, JOB_FILE, VERDICTS_FILE, WORK_DIR};
use super::fault::{CaseVerdict, CheckFault};
use super::settings::{CHILD_LIMIT, CHILD_START};
use super::trace::{TRACE_FILE, TraceRecord};
use super::{CheckError, ConformanceSuite, cannot};

/// The interval at which a child is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The variables of the environment that a child gets: no keys of the user, which are in other variables.
const INHERITED: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TZ", "SystemRoot"];

/// The standard error of a child.
const STDERR_FILE: &str = "stderr";

/// The signal that no process handles; the kernel sends it where memory runs out.
const KILLED: &str = "SIGKILL";

/// The most that is read of a file of a child, in bytes; verdicts of all cases have less than a megabyte.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The result of a child.
#[derive(Debug)]
pub(super) struct ChildExit {
    pub(super) verdicts: Vec<CaseVerdict>,
    /// The verdict for the case in which it died.
    pub(super) death: Option<CaseVerdict>,
    /// Its restrictions; `None` if it ended before.
    pub(super) confinement: Option<Confinement>,
}

/// Runs a child until it exits.
pub(super) fn run(suite: &ConformanceSuite, job: &ChildJob) -> Result<ChildExit, CheckError> {
    let folder = tempfile::Builder::new().prefix("ctxhost-check-").tempdir();
    let folder = folder.map_err(cannot("make the folder of a child"))?;
    // Opened before the library is: it could replace the files by others, such as pipes.
    let create = |name: &str| {
        let path = folder.path().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(path);
        file.map_err(cannot("make a file for a child"))
    };
    let (verdicts, trace) = (create(VERDICTS_FILE)?, create(TRACE_FILE)?);
    let (confinement, errors) = (create(CONFINEMENT_FILE)?, create(STDERR_FILE)?);
    let status = run_child(suite, job, folder.path())?;
    let text = read_start(&verdicts);
    let verdicts: Vec<CaseVerdict> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let death = match status {
        // The watchdog aborts a child, after it has written why.
        _ if has_ended_itself(&verdicts) => None,
        Some(status) if status.success() && verdicts.len() >= job.cases.len() => None,
        _ => {
            let record = TraceRecord::parse(&read_start(&trace));
            if record == TraceRecord::default() {
                // No code of the engine ran, so it cannot be the cause.
                let reason = describe_early_end(status, &read_start(&errors));
                return Err(CheckError::ChildDied { reason });
            }
            // One that had to be killed takes its time limit again in every case.
            let rule = if status.is_none() { CheckFault::HANG } else { CheckFault::DEATH };
            let fault = CheckFault::new(rule, describe_death(status, &record));
            Some(CaseVerdict { case: record.case, outcome: Err(fault) })
        }
    };
    let confinement = serde_json::from_str(&read_start(&confinement)).ok();
    Ok(ChildExit { verdicts, death, confinement })
}

/// The text of a file that a child wrote, up to a limit; empty where it is not text.
fn read_start(file: &File) -> String {
    let mut text = String::new();
    match file.take(MAX_FILE_BYTES).read_to_string(&mut text) {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

/// Whether a child ended itself and wrote why. An engine may also end the process, with any exit code.
fn has_ended_itself(verdicts: &[CaseVerdict]) -> bool {
    let faults = verdicts.iter().filter_map(|verdict| verdict.outcome.as_ref().err());
    faults.into_iter().any(CheckFault::ends_child)
}

/// Starts a child and waits for it; `None` if it was killed at its time limit.
fn run_child(
    suite: &ConformanceSuite,
    job: &ChildJob,
    folder: &Path,
) -> Result<Option<ExitStatus>, CheckError> {
    let text = serde_json::to_vec(job).unwrap_or_default();
    fs::write(folder.join(JOB_FILE), text).map_err(cannot("write the job of a child"))?;
    let yard = folder.join(WORK_DIR);
    fs::create_dir_all(&yard).map_err(cannot("make the folder of a child"))?;
    let errors = File::options().append(true).open(folder.join(STDERR_FILE));
    let errors = errors.map_err(cannot("open a file for a child"))?;
    let child = Command::new(&suite.program)
        .args(&suite.arguments)
        .arg(folder)
        .current_dir(&yard)
        .env_clear()
        .envs(INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))))
        // Engines that write to the home or temporary folder write into the working folder.
        .env("HOME", &yard)
        .env("TMPDIR", &yard)
        .env("CTXHOST_LOG", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // A file instead of a pipe: no one reads a pipe while the child runs, and a full one blocks
        // it.
        .stderr(errors)
        .spawn();
    wait(child.map_err(cannot("start a child"))?, suite.call_limit)
}

fn wait(mut child: Child, call_limit: Duration) -> Result<Option<ExitStatus>, CheckError> {
    let limit = CHILD_START + CHILD_LIMIT.max(call_limit * 4);
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(cannot("wait for a child"))? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill().map_err(cannot("end a child"))?;
            child.wait().map_err(cannot("wait for a child"))?;
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Describes how a child died and in which call.
fn describe_death(status: Option<ExitStatus>, record: &TraceRecord) -> String {
    let at = match record.call.as_str() {
        "" => "between two calls".to_owned(),
        call => format!("in {call}"),
    };
    let Some(status) = status else {
        return format!("the engine blocked its process {at} until it was killed; host unaffected");
    };
    let signal = signal_of(status);
    if signal.and_then(signal_name) == Some(KILLED) {
        // Not by the engine's own code: what sent it is not known here.
        return format!(
            "the process was killed {at} (signal {}), by the system for lack of memory or by another \
             process; host unaffected",
            signal.unwrap_or_default()
        );
    }
    // A signal has no exit code.
    match (signal, status.code()) {
        (Some(signal), _) => format!(
            "engine {} the process {at} (signal {signal}); host unaffected",
            if Some(signal) == abort_signal() { "aborted" } else { "crashed" }
        ),
        (None, Some(code)) => {
            format!("engine ended the process {at} (exit code {code}); host unaffected")
        }
        (None, None) => format!("the process died {at}; host unaffected"),
    }
}

/// Describes how a child ended before it began to load the library.
fn describe_early_end(status: Option<ExitStatus>, errors: &str) -> String {
    let how =
        status.map_or_else(|| "it was killed at its time limit".to_owned(), |s| s.to_string());
    match errors.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("{how}: {}", line.trim().trim_start_matches("error: ")),
        None => how,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_file_is_read_from_where_it_was_opened_and_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verdicts");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::write(&path, "first\n").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(read_start(&file), "first\n");
        let endless = File::open("/dev/zero").unwrap();
        assert_eq!(read_start(&endless).len() as u64, MAX_FILE_BYTES);
    }

    #[test]
    fn a_death_names_the_call_and_the_cause() {
        let record = TraceRecord { case: 3, call: "compact".into(), service: String::new() };
        let abort = Some(ExitStatus::from_raw(6));
        assert_eq!(
            describe_death(abort, &record),
            "engine aborted the process in compact (signal 6); host unaffected"
        );
        let crash = describe_death(Some(ExitStatus::from_raw(11)), &TraceRecord::default());
        assert_eq!(
            crash,
            "engine crashed the process between two calls (signal 11); host unaffected"
        );
        let killed = describe_death(Some(ExitStatus::from_raw(9)), &record);
        assert!(killed.starts_with("the process was killed in compact (signal 9), by"), "{killed}");
        let exit = describe_death(Some(ExitStatus::from_raw(7 << 8)), &record);
        assert!(exit.contains("ended the process in compact (exit code 7)"), "{exit}");
    }

    #[test]
    fn an_end_before_the_load_is_shown_with_the_child_s_own_words() {
        let failed = Some(ExitStatus::from_raw(1 << 8));
        assert_eq!(
            describe_early_end(failed, "\nerror: cannot write verdicts: no space\nmore\n"),
            "exit status: 1: cannot write verdicts: no space"
        );
        assert_eq!(describe_early_end(None, ""), "it was killed at its time limit");
    }
}

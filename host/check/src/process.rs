//! Runs a child process and collects its verdicts and the cause of its death.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ctxhost_engine::Confinement;
use ctxhost_platform::processes::{abort_signal, signal_of};

use super::child::{CONFINEMENT_FILE, ChildJob, JOB_FILE, VERDICTS_FILE, WORK_DIR};
use super::fault::{CaseVerdict, CheckFault};
use super::settings::{CHILD_LIMIT, CHILD_START};
use super::trace::{TRACE_FILE, TraceRecord};
use super::{CheckError, ConformanceSuite, cannot};

/// The interval at which a child is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The variables of the environment that a child gets: no keys of the user, which are in other variables.
const INHERITED: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TZ", "SystemRoot"];

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
    let [verdicts, trace, confinement] =
        [VERDICTS_FILE, TRACE_FILE, CONFINEMENT_FILE].map(|name| {
            File::options().read(true).write(true).create_new(true).open(folder.path().join(name))
        });
    let verdicts = verdicts.map_err(cannot("make a file for a child"))?;
    let trace = trace.map_err(cannot("make a file for a child"))?;
    let confinement = confinement.map_err(cannot("make a file for a child"))?;
    let status = run_child(suite, job, folder.path())?;
    let text = read_start(&verdicts);
    let verdicts: Vec<CaseVerdict> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let death = match status {
        Some(status) if status.success() && has_finished(&verdicts, job) => None,
        _ => {
            let record = TraceRecord::parse(&read_start(&trace));
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

/// Whether a child finished its job. An engine may also end the process with exit code 0.
fn has_finished(verdicts: &[CaseVerdict], job: &ChildJob) -> bool {
    let stopped = verdicts.iter().filter_map(|verdict| verdict.outcome.as_ref().err());
    let stopped = stopped
        .into_iter()
        .any(|fault| [CheckFault::HANG, CheckFault::LOAD].contains(&&*fault.rule));
    stopped || verdicts.len() >= job.cases.len()
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
    let errors = File::create(folder.join("stderr")).map_err(cannot("make a file for a child"))?;
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
    // A signal has no exit code.
    match (signal_of(status), status.code()) {
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
        let exit = describe_death(Some(ExitStatus::from_raw(7 << 8)), &record);
        assert!(exit.contains("ended the process in compact (exit code 7)"), "{exit}");
    }
}

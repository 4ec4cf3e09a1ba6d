//! One child from its start to its end: what it found, and how it ended where it did not end well.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::child::{ChildJob, JOB_FILE, VERDICTS_FILE, WORK_DIR};
use super::fault::{CaseVerdict, CheckFault};
use super::settings::{CHILD_LIMIT, CHILD_START};
use super::trace::TraceRecord;
use super::{CheckError, ConformanceSuite, cannot};

/// How often a child is looked after.
const GLANCE: Duration = Duration::from_millis(2);

/// The signal of a process that ends itself in despair.
const ABORT: i32 = nix::sys::signal::Signal::SIGABRT as i32;

/// What came of a child.
#[derive(Debug)]
pub(super) struct ChildExit {
    /// What it found, case by case.
    pub(super) verdicts: Vec<CaseVerdict>,
    /// The verdict over the case at which it died.
    pub(super) death: Option<CaseVerdict>,
}

/// Runs a child to its end.
pub(super) fn run(kit: &ConformanceSuite, job: &ChildJob) -> Result<ChildExit, CheckError> {
    let folder = tempfile::Builder::new().prefix("ctxhost-check-").tempdir();
    let folder = folder.map_err(cannot("make the folder of a child"))?;
    let status = run_child(kit, job, folder.path())?;
    let text = fs::read_to_string(folder.path().join(VERDICTS_FILE)).unwrap_or_default();
    let verdicts: Vec<CaseVerdict> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let death = match status {
        Some(status) if status.success() && has_finished(&verdicts, job) => None,
        ended => {
            let place = TraceRecord::read(folder.path());
            let fault = CheckFault::new(CheckFault::DEATH, describe_death(ended, &place));
            Some(CaseVerdict { case: place.case, outcome: Err(fault) })
        }
    };
    Ok(ChildExit { verdicts, death })
}

/// Whether a child ended because it was done. One whose engine ends the process with success was not.
fn has_finished(verdicts: &[CaseVerdict], job: &ChildJob) -> bool {
    let gave_up = verdicts.iter().filter_map(|verdict| verdict.outcome.as_ref().err());
    let gave_up = gave_up
        .into_iter()
        .any(|fault| [CheckFault::HANG, CheckFault::LOAD].contains(&&*fault.rule));
    gave_up || verdicts.len() >= job.cases.len()
}

/// Starts a child and waits for it; `None` where it had to be killed.
fn run_child(
    kit: &ConformanceSuite,
    job: &ChildJob,
    folder: &Path,
) -> Result<Option<ExitStatus>, CheckError> {
    let text = serde_json::to_vec(job).unwrap_or_default();
    fs::write(folder.join(JOB_FILE), text).map_err(cannot("write the job of a child"))?;
    let yard = folder.join(WORK_DIR);
    fs::create_dir_all(&yard).map_err(cannot("make the folder of a child"))?;
    let errors = File::create(folder.join("stderr")).map_err(cannot("make a file for a child"))?;
    let child = Command::new(&kit.program)
        .args(&kit.arguments)
        .arg(folder)
        .current_dir(&yard)
        .env("HOME", &yard)
        .env("TMPDIR", &yard)
        .env("CTXHOST_LOG", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn();
    wait(child.map_err(cannot("start a child"))?, kit.call_limit)
}

fn wait(mut child: Child, call_limit: Duration) -> Result<Option<ExitStatus>, CheckError> {
    let life = CHILD_START + CHILD_LIMIT.max(call_limit * 4);
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(cannot("wait for a child"))? {
            return Ok(Some(status));
        }
        if began.elapsed() > life {
            child.kill().map_err(cannot("end a child"))?;
            child.wait().map_err(cannot("wait for a child"))?;
            return Ok(None);
        }
        std::thread::sleep(GLANCE);
    }
}

/// How a child died, as a sentence that names the call.
fn describe_death(status: Option<ExitStatus>, place: &TraceRecord) -> String {
    let at = match place.call.as_str() {
        "" => "between two calls".to_owned(),
        call => format!("in {call}"),
    };
    let Some(status) = status else {
        return format!("the engine held its process {at} until it was killed; host unaffected");
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!(
            "engine {} the process {at} (signal {signal}); host unaffected",
            if signal == ABORT { "aborted" } else { "crashed" }
        ),
        (None, Some(code)) => {
            format!("engine ended the process {at} (exit code {code}); host unaffected")
        }
        (None, None) => format!("the process is gone {at}; host unaffected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_names_the_call_and_the_way() {
        let place = TraceRecord { case: 3, call: "compact".into(), service: String::new() };
        let abort = Some(ExitStatus::from_raw(6));
        assert_eq!(
            describe_death(abort, &place),
            "engine aborted the process in compact (signal 6); host unaffected"
        );
        let crash = describe_death(Some(ExitStatus::from_raw(11)), &TraceRecord::default());
        assert_eq!(
            crash,
            "engine crashed the process between two calls (signal 11); host unaffected"
        );
        let exit = describe_death(Some(ExitStatus::from_raw(7 << 8)), &place);
        assert!(exit.contains("ended the process in compact (exit code 7)"), "{exit}");
    }
}

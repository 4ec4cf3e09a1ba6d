//! The life of a child: it loads the library, runs its cases one after another, and writes a line for each.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault::{CaseVerdict, CheckFault};
use super::harness::CaseHarness;
use super::history::HistoryCut;
use super::settings::CHILD_BYTES;
use super::trace::{CallTrace, TraceRecord};
use super::{CheckError, CheckGroup, cannot};
use ctxhost_engine::inspect;

/// What a child is to do, in the kit's words.
pub(super) const JOB_FILE: &str = "job.json";
/// What it found, a line for each case.
pub(super) const VERDICTS_FILE: &str = "verdicts.jsonl";
/// The folder it stands in. It is deep, so that a path that climbs out is still caught.
pub(super) const WORK_DIR: &str = "yard/a/b/c/d/e/f";
/// The top of that folder.
pub(super) const WORK_DIR_TOP: &str = "yard";
/// Where the private copy of the library stands while it is loaded.
const COPIES: &str = "copies";

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ChildJob {
    pub(super) file: PathBuf,
    pub(super) sha256: String,
    pub(super) config: Value,
    pub(super) group: CheckGroup,
    pub(super) cases: Vec<u64>,
    pub(super) cut: HistoryCut,
    pub(super) call_limit_ms: u64,
}

/// Does the job in `folder`, as a child of the kit.
///
/// # Errors
///
/// [`CheckError`], where the job cannot be read or the verdicts cannot be written. Whatever the engine
/// does is a verdict, or the end of this process.
pub fn serve(folder: &Path) -> Result<(), CheckError> {
    let folder = folder.canonicalize().map_err(cannot("find the folder of a child"))?;
    let text = fs::read(folder.join(JOB_FILE)).map_err(cannot("read the job of a child"))?;
    let job: ChildJob = serde_json::from_slice(&text)
        .map_err(|error| CheckError::BadJob { reason: error.to_string() })?;
    limit_memory();
    let trace = CallTrace::create(&folder).map_err(cannot("trace a child"))?;
    let verdicts = OpenOptions::new().append(true).create(true).open(folder.join(VERDICTS_FILE));
    let verdicts = Arc::new(verdicts.map_err(cannot("write verdicts"))?);
    watch(&trace, &job, &verdicts)?;

    let loading = trace.start_call("the library's own start");
    let door = inspect(&job.file)
        .and_then(|inspected| inspected.expect_hash(Some(&job.sha256)))
        .and_then(|inspected| inspected.load(&folder.join(COPIES)));
    drop(loading);
    let door = match door {
        Ok(door) => door,
        Err(error) => {
            let outcome = Err(CheckFault::new(CheckFault::LOAD, error.to_string()));
            return write(&verdicts, &CaseVerdict { case: 0, outcome });
        }
    };
    for &case in &job.cases {
        trace.start_case(case);
        let bench = CaseHarness {
            factory: door,
            config: &job.config,
            trace: &trace,
            call_limit: Duration::from_millis(job.call_limit_ms),
            cut: &job.cut,
            file: &job.file,
            work_dir: &folder.join(WORK_DIR),
        };
        let outcome = job.group.run(case, &bench);
        write(&verdicts, &CaseVerdict { case, outcome })?;
    }
    Ok(())
}

/// A call that does not come back is the last thing this process does.
fn watch(trace: &Arc<CallTrace>, job: &ChildJob, verdicts: &Arc<File>) -> Result<(), CheckError> {
    let verdicts = verdicts.clone();
    let late = move |place: TraceRecord, limit: Duration| {
        let (TraceRecord { case, call, service }, limit_ms) = (place, limit.as_millis());
        let message = match service.as_str() {
            "" => format!("the engine did not come back from {call} within {limit_ms} ms"),
            service => format!(
                "the engine held its thread in {call} while the host had not answered {service}, for \
                 {limit_ms} ms: a call that waits like this cannot be cancelled"
            ),
        };
        let _ = write(
            &verdicts,
            &CaseVerdict { case, outcome: Err(CheckFault::new(CheckFault::HANG, message)) },
        );
        std::process::exit(0);
    };
    let limit = Duration::from_millis(job.call_limit_ms);
    trace.watch(limit, late, || std::process::exit(0)).map_err(cannot("watch a child"))
}

fn write(mut verdicts: &File, verdict: &CaseVerdict) -> Result<(), CheckError> {
    let mut line = serde_json::to_vec(verdict).unwrap_or_default();
    line.push(b'\n');
    verdicts.write_all(&line).map_err(cannot("write verdicts"))
}

/// An engine that eats memory ends this process, not the machine. A system that refuses to say how much
/// there may be gives what it gives.
fn limit_memory() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_AS) {
        let _ = setrlimit(Resource::RLIMIT_AS, CHILD_BYTES.min(most), most);
    }
    // A process that dies on purpose leaves no core behind.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

//! The child process: confines itself, loads the library, runs its cases in sequence, and writes a verdict for
//! each.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ctxhost_platform::processes::limit_memory;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault::{CaseVerdict, CheckFault};
use super::harness::CaseHarness;
use super::history::HistoryCut;
use super::session::CREATE;
use super::settings::{CHILD_BYTES, CHILD_FILE_BYTES};
use super::trace::{CallTrace, TraceRecord};
use super::{CheckError, CheckGroup, cannot};
use ctxhost_engine::{
    Confinement, ConfinementLimits, EngineFile, LibraryCopy, LoadError, SandboxSettings,
    WritableFolder, confine, detach_from_host, inspect_pinned,
};

/// The job of a child, written by the parent.
pub(super) const JOB_FILE: &str = "job.json";
/// The verdicts of a child, one line for each case.
pub(super) const VERDICTS_FILE: &str = "verdicts.jsonl";
/// The restrictions of a child.
pub(super) const CONFINEMENT_FILE: &str = "confinement.json";
/// The working folder. It is nested so that files written to `../..` are still found.
pub(super) const WORK_DIR: &str = "yard/a/b/c/d/e/f";
/// The root of the working folder, below which the engine may write.
pub(super) const WORK_DIR_TOP: &str = "yard";
/// The first call in the trace, in which the constructors of the library run.
pub(super) const LIBRARY_LOAD: &str = "the load of the library";
/// The folder of the private copies of the library.
const COPIES: &str = "copies";

/// The job of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ChildJob {
    pub(super) file: PathBuf,
    pub(super) sha256: String,
    pub(super) config: Value,
    pub(super) group: CheckGroup,
    pub(super) cases: Vec<u64>,
    pub(super) cut: HistoryCut,
    pub(super) call_limit_ms: u64,
    /// The process that started the child.
    pub(super) parent: u32,
    /// What the engine may read beside the system's libraries.
    pub(super) readable: Vec<PathBuf>,
}

/// Runs the job in `folder`, in a child process.
///
/// # Errors
///
/// [`CheckError`], if the job cannot be read or the verdicts cannot be written. Faults of the engine are
/// verdicts, or end this process.
pub fn serve(folder: &Path) -> Result<(), CheckError> {
    let folder = folder.canonicalize().map_err(cannot("find the folder of a child"))?;
    let text = fs::read(folder.join(JOB_FILE)).map_err(cannot("read the job of a child"))?;
    let job: ChildJob = serde_json::from_slice(&text)
        .map_err(|error| CheckError::BadJob { reason: error.to_string() })?;
    detach_from_host(job.parent).map_err(|reason| CheckError::BadJob { reason })?;
    // Before the library is loaded: its constructors may allocate. An engine that exhausts memory ends this process
    // and not the machine; cases that abort are expected and write no core files.
    limit_memory(CHILD_BYTES);
    let trace = CallTrace::create(&folder).map_err(cannot("trace a child"))?;
    let verdicts = open_output(&folder, VERDICTS_FILE)?;
    let confinement_file = open_output(&folder, CONFINEMENT_FILE)?;
    // Before the process confines itself: it cannot read the library or write a copy after that.
    let (library, copy, second_copy) = match read_library(&job, &folder.join(COPIES)) {
        Ok(read) => read,
        Err(error) => return write_unloaded(&verdicts, &error),
    };
    let confinement = confine(&limits(&job, &folder));
    write_confinement(&confinement_file, &confinement)?;
    drop(confinement_file);
    // Threads only now: they inherit the restrictions.
    let verdicts = Arc::new(verdicts);
    watch(&trace, &job, &verdicts)?;

    // The constructors of the library may hang or abort, too.
    let scope = trace.start_call(LIBRARY_LOAD);
    let factory = copy.load();
    drop(scope);
    let factory = match factory {
        Ok(factory) => factory,
        Err(error) => return write_unloaded(&verdicts, &error),
    };
    for &case in &job.cases {
        trace.start_case(case);
        let harness = CaseHarness {
            factory,
            config: &job.config,
            trace: &trace,
            call_limit: Duration::from_millis(job.call_limit_ms),
            cut: &job.cut,
            library: &library,
            second_copy: second_copy.as_ref(),
            work_dir: &folder.join(WORK_DIR),
        };
        let outcome = job.group.run(case, &harness);
        write(&verdicts, &CaseVerdict { case, outcome })?;
    }
    Ok(())
}

/// The library and a copy to load; a second one for the group that loads it twice.
fn read_library(
    job: &ChildJob,
    copies: &Path,
) -> Result<(EngineFile, LibraryCopy, Option<LibraryCopy>), LoadError> {
    let library = inspect_pinned(&job.file, Some(&job.sha256))?;
    let copy = library.copy(copies)?;
    let loads_twice = job.group == CheckGroup::Load;
    let second_copy = loads_twice.then(|| library.copy(copies)).transpose()?;
    Ok((library, copy, second_copy))
}

/// The restrictions of an installed engine, but for memory and a working folder.
fn limits(job: &ChildJob, folder: &Path) -> ConfinementLimits {
    let mut readable = job.readable.clone();
    readable.push(folder.join(COPIES));
    ConfinementLimits {
        memory_bytes: CHILD_BYTES,
        open_files: SandboxSettings::default().open_files,
        readable,
        // Engines must not write; the suite reports what it finds here.
        writable: Some(WritableFolder {
            folder: folder.join(WORK_DIR_TOP),
            file_bytes: CHILD_FILE_BYTES,
        }),
    }
}

fn open_output(folder: &Path, name: &str) -> Result<File, CheckError> {
    let file = OpenOptions::new().append(true).create(true).open(folder.join(name));
    file.map_err(cannot("write verdicts"))
}

fn write_confinement(mut file: &File, confinement: &Confinement) -> Result<(), CheckError> {
    let text = serde_json::to_vec(confinement).unwrap_or_default();
    file.write_all(&text).map_err(cannot("write the restrictions of a child"))
}

fn write_unloaded(verdicts: &File, error: &LoadError) -> Result<(), CheckError> {
    let outcome = Err(CheckFault::new(CheckFault::LOAD, error.to_string()));
    write(verdicts, &CaseVerdict { case: 0, outcome })
}

/// Ends the process with a verdict when a call exceeds its time limit.
fn watch(trace: &Arc<CallTrace>, job: &ChildJob, verdicts: &Arc<File>) -> Result<(), CheckError> {
    let verdicts = verdicts.clone();
    let late = move |record: TraceRecord, limit: Duration| {
        let case = record.case;
        let outcome = Err(describe_hang(&record, limit));
        let _ = write(&verdicts, &CaseVerdict { case, outcome });
        // The call cannot be stopped from outside, so the process ends. Not by `exit`: it runs the destructors of
        // libraries and waits for the lock of the loader, which a constructor that blocks holds.
        std::process::abort();
    };
    let limit = Duration::from_millis(job.call_limit_ms);
    trace.watch(limit, late, || std::process::abort()).map_err(cannot("watch a child"))
}

/// The fault of a call that exceeded its time limit.
fn describe_hang(record: &TraceRecord, limit: Duration) -> CheckFault {
    let (TraceRecord { case, call, service }, limit_ms) = (record, limit.as_millis());
    match (call.as_str(), service.as_str()) {
        // Before the first case: a library that cannot be loaded.
        (LIBRARY_LOAD, _) if *case == 0 => CheckFault::new(
            CheckFault::HANG,
            format!(
                "{LIBRARY_LOAD} did not end within {limit_ms} ms, the time limit of a call: a \
                 constructor of the library blocks"
            ),
        ),
        (CREATE, "") => CheckFault::new(
            CheckFault::CREATE_HANG,
            format!("the engine did not return from {CREATE} within {limit_ms} ms"),
        ),
        (call, "") => CheckFault::new(
            CheckFault::HANG,
            format!("the engine did not return from {call} within {limit_ms} ms"),
        ),
        (call, service) => CheckFault::new(
            CheckFault::HANG,
            format!(
                "the engine held its thread in {call} while the host had not answered {service}, for \
                 {limit_ms} ms: a call that blocks like this cannot be cancelled"
            ),
        ),
    }
}

fn write(mut verdicts: &File, verdict: &CaseVerdict) -> Result<(), CheckError> {
    // One write for each line: the process may die at any time, and the parent skips partial lines.
    let mut line = serde_json::to_vec(verdict).unwrap_or_default();
    line.push(b'\n');
    verdicts.write_all(&line).map_err(cannot("write verdicts"))
}

//! Runs the groups in parallel child processes, shrinks failures and creates the report.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ctxhost_engine_api::border::EngineMetadata;

use super::child::ChildJob;
use super::fault::{CaseStats, CaseVerdict, CheckFault};
use super::history::HistoryCut;
use super::report::{
    CheckFailure, CheckReport, FORMAT, GroupReport, ReportEngine, ReportHost, ReportLibrary,
};
use super::settings::FAILURES_MAX;
use super::{CheckError, CheckGroup, ConformanceSuite, process, shrink};
use ctxhost_engine::{Confinement, EngineFile, inspect};

/// The rule that is checked by comparing two processes.
const OTHER_PROCESS: &str = "other-process";

/// The message of a violation of that rule.
const DIFFERS: &str = "two processes returned different bytes for the same calls: a plan must not depend \
                       on chance, time, addresses or the order of a hash map";

/// Why the remaining groups do not run.
const STOPPED: &str = "the remaining groups did not run: every case creates the engine first, and create does \
                       not return";

/// What an engine may not do in the suite, as in the host.
const REFUSED: &str = "ctxhost check refuses engines files outside of their working folder, the network and \
                       other processes";

impl ConformanceSuite {
    /// Runs the suite and calls `done` after each group.
    ///
    /// # Errors
    ///
    /// [`CheckError`], if the library cannot be loaded or a system call fails. Failures of the engine
    /// are in the report.
    pub fn run(&self, done: &mut dyn FnMut(&GroupReport)) -> Result<CheckReport, CheckError> {
        let start = Instant::now();
        let groups = groups(&self.groups, self.case)?;
        let inspected = inspect(&self.file)?;
        let runner =
            SuiteRunner { suite: self, inspected: &inspected, confinement: OnceLock::new() };
        let mut reports = Vec::new();
        let mut figures = CaseStats::default();
        for group in groups {
            // With --case, groups that do not have the case are skipped.
            let Some(report) = runner.group(group, &mut figures)? else { continue };
            done(&report);
            let is_last = blocks_in_create(&report);
            reports.push(report);
            if is_last {
                let report = runner.report(reports, figures, start);
                return Ok(CheckReport { complete: false, stopped: STOPPED.to_owned(), ..report });
            }
        }
        Ok(runner.report(reports, figures, start))
    }
}

/// Whether an engine blocks in `create` on a host that answers: then each case would take the time limit of a call.
fn blocks_in_create(report: &GroupReport) -> bool {
    // In these groups the host is faulty, in all others it is correct.
    let is_host_correct = !matches!(report.name, CheckGroup::Services | CheckGroup::Cancellation);
    is_host_correct && report.failures.iter().any(|failure| failure.rule == CheckFault::CREATE_HANG)
}

/// The selected groups. At least one of them must have the selected case.
///
/// # Errors
///
/// [`CheckError::NoSuchCase`].
pub fn groups(only: &[CheckGroup], case: Option<u64>) -> Result<Vec<CheckGroup>, CheckError> {
    let is_wanted = |group: &CheckGroup| only.is_empty() || only.contains(group);
    let groups: Vec<CheckGroup> = CheckGroup::ALL.into_iter().filter(is_wanted).collect();
    let largest = groups.iter().map(|group| group.case_count()).max().unwrap_or(0);
    match case.filter(|case| !(1..=largest).contains(case)) {
        Some(case) => Err(CheckError::NoSuchCase { case, largest }),
        None => Ok(groups),
    }
}

struct SuiteRunner<'a> {
    suite: &'a ConformanceSuite,
    inspected: &'a EngineFile,
    /// The restrictions of the children, which are the same for all.
    confinement: OnceLock<Confinement>,
}

/// The results of a group's children so far.
#[derive(Default)]
struct GroupResults {
    passed: Vec<(u64, CaseStats)>,
    failed: Vec<(u64, CheckFault)>,
}

impl SuiteRunner<'_> {
    fn report(&self, groups: Vec<GroupReport>, figures: CaseStats, start: Instant) -> CheckReport {
        // A failure stands for all cases that broke the same rule.
        let failures = groups.iter().flat_map(|group| &group.failures);
        let failed = failures.map(|failure| 1 + failure.other_cases.len() as u64).sum();
        let meta = &self.inspected.meta;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        CheckReport {
            format: FORMAT,
            engine: ReportEngine {
                id: meta.id.clone(),
                version: meta.version.clone(),
                api: meta.api.clone(),
            },
            file: ReportLibrary {
                sha256: self.inspected.sha256.clone(),
                bytes: self.inspected.bytes,
            },
            host: ReportHost {
                version: env!("CARGO_PKG_VERSION").into(),
                api: EngineMetadata::current().api,
            },
            checked_at_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            config: self.suite.config.clone(),
            confinement: self.confinement.get().cloned().unwrap_or_default(),
            complete: self.suite.groups.is_empty() && self.suite.case.is_none(),
            conformant: failed == 0,
            checks: groups.iter().map(|group| group.checks).sum(),
            failed,
            seconds: start.elapsed().as_secs_f64(),
            groups,
            stopped: String::new(),
            methods: figures.times,
            peak_bytes: figures.peak_bytes,
        }
    }

    /// Runs one group; `None` if it does not have the selected case.
    fn group(
        &self,
        group: CheckGroup,
        figures: &mut CaseStats,
    ) -> Result<Option<GroupReport>, CheckError> {
        let start = Instant::now();
        let cases: Vec<u64> = match self.suite.case {
            Some(case) => vec![case],
            None => (1..=group.case_count()).collect(),
        };
        if cases.iter().any(|case| *case > group.case_count()) {
            return Ok(None);
        }
        let mut found = self.run_all(group, &cases)?;
        // After a failure the comparison would only report it again.
        if group.runs_twice() && found.failed.is_empty() {
            self.compare_with_another_run(group, &cases, &mut found)?;
        }
        found.passed.sort_by_key(|(case, _)| *case);
        found.failed.sort_by_key(|(case, _)| *case);
        found.failed.truncate(FAILURES_MAX);
        let mut failures: Vec<CheckFailure> = Vec::new();
        for (case, fault) in &found.failed {
            // Shrinking is slow, so only the first failure of each rule is shrunk; the others are listed by number.
            match failures.iter_mut().find(|known| known.rule == fault.rule) {
                Some(known) if known.case == *case => {}
                Some(known) => known.other_cases.push(*case),
                None => failures.push(self.failure(group, *case, fault)?),
            }
        }
        for (_, passed) in &found.passed {
            figures.times.extend(passed.times.iter().cloned());
            figures.peak_bytes = figures.peak_bytes.max(passed.peak_bytes);
        }
        let checks = found.passed.iter().map(|(_, passed)| passed.checks).sum::<u64>();
        let prefixes = found.passed.iter().map(|(_, passed)| passed.prefix);
        let (steps, moved) =
            prefixes.fold((0, 0), |(steps, moved), step| (steps + step.0, moved + step.1));
        let prefix = match steps {
            0 => String::new(),
            steps => format!("prefix moved in {moved} of {steps} steps"),
        };
        let floor_uses = found.passed.iter().map(|(_, passed)| passed.floor_use);
        let (compactions, below) = floor_uses
            .fold((0, 0), |(all, below), floor_use| (all + floor_use.0, below + floor_use.1));
        let floor_note = match compactions {
            0 => String::new(),
            all => format!("less than the floor in use after {below} of {all} compactions"),
        };
        let notes = found.passed.iter().map(|(_, passed)| passed.note.as_str());
        let notes = notes.chain([prefix.as_str(), floor_note.as_str()]);
        Ok(Some(GroupReport {
            name: group,
            ok: failures.is_empty(),
            seconds: start.elapsed().as_secs_f64(),
            covered: group.summary(notes.filter(|note| !note.is_empty())),
            checks: checks + found.failed.len() as u64,
            failures,
        }))
    }

    /// Runs cases in as many concurrent children as the machine has threads.
    fn run_all(&self, group: CheckGroup, cases: &[u64]) -> Result<GroupResults, CheckError> {
        // Concurrent children would distort the measured times.
        let parallel = if group.runs_alone() {
            1
        } else {
            std::thread::available_parallelism().map_or(1, usize::from)
        };
        let batches: Vec<&[u64]> = cases.chunks(group.cases_per_child()).collect();
        let next = Mutex::new(batches.into_iter());
        let found = Mutex::new(GroupResults::default());
        let enough = AtomicBool::new(false);
        let work = || {
            while !enough.load(Ordering::Relaxed) {
                let batch = lock(&next).next();
                let Some(batch) = batch else { break };
                self.run_batch(group, batch, &found, &enough)?;
            }
            Ok::<(), CheckError>(())
        };
        std::thread::scope(|threads| {
            let workers: Vec<_> = (0..parallel).map(|_| threads.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| {
                    Err(CheckError::BadJob { reason: "a worker thread panicked".into() })
                })
            })
        })?;
        Ok(found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Runs a batch in a child. If the child dies, the remaining cases run in the next one.
    fn run_batch(
        &self,
        group: CheckGroup,
        batch: &[u64],
        found: &Mutex<GroupResults>,
        enough: &AtomicBool,
    ) -> Result<(), CheckError> {
        let mut left: BTreeSet<u64> = batch.iter().copied().collect();
        while !left.is_empty() && !enough.load(Ordering::Relaxed) {
            let job = self.job(group, left.iter().copied().collect(), HistoryCut::default());
            let exit = process::run(self.suite, &job)?;
            if let Some(confinement) = exit.confinement {
                self.confinement.get_or_init(|| confinement);
            }
            let mut verdicts = exit.verdicts;
            // Last: the cases before it have their own verdicts.
            verdicts.extend(exit.death);
            if verdicts.is_empty() {
                return Err(CheckError::BadJob { reason: "it wrote no verdict".into() });
            }
            for CaseVerdict { case, outcome } in verdicts {
                match outcome {
                    Err(fault) if fault.rule == CheckFault::LOAD => {
                        return Err(CheckError::NotLoaded { reason: fault.message });
                    }
                    // Case 0 is the loading of the library: without it no case can run.
                    Err(fault) if case == 0 => {
                        return Err(CheckError::LoadDied { reason: fault.message });
                    }
                    Err(fault) => {
                        let mut found = lock(found);
                        let costly = fault.is_costly();
                        found.failed.push((case, fault));
                        // Other workers see the flag after their current batch.
                        if costly || found.failed.len() >= FAILURES_MAX {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                    Ok(passed) => lock(found).passed.push((case, passed)),
                }
                left.remove(&case);
            }
        }
        Ok(())
    }

    /// Runs the cases a second time in other processes and compares the digests.
    fn compare_with_another_run(
        &self,
        group: CheckGroup,
        cases: &[u64],
        found: &mut GroupResults,
    ) -> Result<(), CheckError> {
        let second_run = self.run_all(group, cases)?;
        found.failed.extend(second_run.failed);
        for (case, passed) in &second_run.passed {
            let first = found.passed.iter().find(|(number, _)| number == case);
            if first.is_some_and(|(_, first)| first.digest != passed.digest) {
                found.failed.push((*case, CheckFault::new(OTHER_PROCESS, DIFFERS)));
            }
        }
        Ok(())
    }

    fn job(&self, group: CheckGroup, cases: Vec<u64>, cut: HistoryCut) -> ChildJob {
        ChildJob {
            file: self.inspected.path.clone(),
            sha256: self.inspected.sha256.clone(),
            config: self.suite.config.clone(),
            group,
            cases,
            cut,
            call_limit_ms: u64::try_from(self.suite.call_limit.as_millis()).unwrap_or(u64::MAX),
            parent: std::process::id(),
            readable: self.suite.readable.clone(),
        }
    }

    /// The report of a failure with its shrunk history.
    fn failure(
        &self,
        group: CheckGroup,
        case: u64,
        fault: &CheckFault,
    ) -> Result<CheckFailure, CheckError> {
        let mut message = fault.message.clone();
        let mut lines = Vec::new();
        // A hanging call is not shrunk: every attempt would take as long as the time limit of the call.
        if let Some(whole) = group.history(case).filter(|_| !fault.is_costly()) {
            let mut broken = None;
            let fails = |cut: &HistoryCut| match self.breaks(group, case, cut, &fault.rule) {
                Ok(Some(text)) => {
                    message = text;
                    true
                }
                Ok(None) => false,
                Err(error) => {
                    broken = Some(error);
                    false
                }
            };
            let cut = shrink::shrink(whole.len(), |at| whole.is_long(at), fails);
            if let Some(error) = broken {
                return Err(error);
            }
            lines = whole.apply_cut(&cut).lines();
        }
        Ok(CheckFailure {
            case,
            other_cases: Vec::new(),
            scenario: group.describe_case(case),
            rule: fault.rule.clone(),
            message: explain_refusal(message),
            history: lines,
            rerun_command: format!("{} --only {group} --case {case}", self.suite.rerun_command),
        })
    }

    /// The message of the failure with a cut history, if the engine still breaks the same rule.
    fn breaks(
        &self,
        group: CheckGroup,
        case: u64,
        cut: &HistoryCut,
        rule: &str,
    ) -> Result<Option<String>, CheckError> {
        let run = || -> Result<_, CheckError> {
            let exit = process::run(self.suite, &self.job(group, vec![case], cut.clone()))?;
            Ok(exit.verdicts.into_iter().chain(exit.death).map(|verdict| verdict.outcome))
        };
        if rule == OTHER_PROCESS {
            let digests = || -> Result<_, CheckError> {
                Ok(run()?.filter_map(Result::ok).map(|passed| passed.digest).collect::<Vec<_>>())
            };
            // Two runs of the cut history, because this rule needs two processes.
            return Ok((digests()? != digests()?).then(|| DIFFERS.to_owned()));
        }
        let mut faults = run()?.filter_map(Result::err);
        Ok(faults.find(|fault| fault.rule == rule).map(|fault| fault.message))
    }
}

/// Adds who refused a system call, where the engine reports the error of one.
fn explain_refusal(message: String) -> String {
    // Landlock and the filter of system calls, in the words of the C library.
    if ["Permission denied", "Operation not permitted"].iter().any(|text| message.contains(text)) {
        message + "; " + REFUSED
    } else {
        message
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

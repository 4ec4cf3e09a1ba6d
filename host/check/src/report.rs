//! The report of the suite, which is valid for one library file.

use std::path::{Path, PathBuf};

use ctxhost_engine::Confinement;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::CheckGroup;

/// The file that a complete run writes to the current folder.
pub const REPORT_FILE: &str = "conformance.json";

/// The format version of that file.
pub(super) const FORMAT: u32 = 1;

/// The report of one library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The format version.
    pub format: u32,
    /// The engine.
    pub engine: ReportEngine,
    /// The checked bytes.
    pub file: ReportLibrary,
    /// The host that ran the suite.
    pub host: ReportHost,
    /// The time of the run, in milliseconds since 1970.
    pub checked_at_ms: i64,
    /// The config of the engine, as JSON.
    pub config: serde_json::Value,
    /// The restrictions of the processes in which the engine ran.
    #[serde(default)]
    pub confinement: Confinement,
    /// Whether all cases of all groups ran.
    pub complete: bool,
    /// Why the remaining groups did not run; empty if they did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stopped: String,
    /// Whether nothing failed.
    pub conformant: bool,
    /// The number of checks.
    pub checks: u64,
    /// The number of failures.
    pub failed: u64,
    /// The duration of the run, in seconds.
    pub seconds: f64,
    /// The groups, in the order they ran.
    pub groups: Vec<GroupReport>,
    /// The durations of calls.
    pub methods: Vec<MethodTime>,
    /// The peak memory of a child of the group `resources`, in bytes; 0 if it did not run.
    pub peak_bytes: u64,
}

/// The identity of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportEngine {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// The engine API it was built with.
    pub api: String,
}

/// The file of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLibrary {
    /// The SHA-256, in hex.
    pub sha256: String,
    /// The size.
    pub bytes: u64,
}

/// The host that ran the suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportHost {
    /// Its version.
    pub version: String,
    /// The engine API it was built with.
    pub api: String,
}

/// The result of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group.
    pub name: CheckGroup,
    /// Whether nothing failed in it.
    pub ok: bool,
    /// The duration, in seconds.
    pub seconds: f64,
    /// What was covered, as a fragment.
    pub covered: String,
    /// The number of checks.
    pub checks: u64,
    /// The failures; a group stops after a few.
    pub failures: Vec<CheckFailure>,
}

/// A rule that the engine broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFailure {
    /// The number of the case in its group.
    pub case: u64,
    /// Other cases in which the same rule was broken.
    #[serde(alias = "also")]
    pub other_cases: Vec<u64>,
    /// What the case tests.
    #[serde(alias = "tried")]
    pub scenario: String,
    /// The name of the rule.
    pub rule: String,
    /// What happened, as one sentence.
    pub message: String,
    /// The shrunk history, one line for each message; empty if the case has none.
    pub history: Vec<String>,
    /// The command that repeats it.
    #[serde(alias = "again")]
    pub rerun_command: String,
}

/// The duration of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MethodTime {
    /// The call.
    pub method: String,
    /// How often it was called.
    pub calls: u64,
    /// The median, in microseconds.
    pub median_us: u64,
    /// The maximum, in microseconds.
    pub longest_us: u64,
}

/// Why a report is not valid for a library.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not a report.
    #[error("{} is not a conformance report: {reason}", path.display())]
    NotAReport {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It was written by a newer version.
    #[error(
        "the report has format {format}, this host supports up to {FORMAT}; run `ctxhost check` again"
    )]
    OtherFormat {
        /// Its format.
        format: u32,
    },
    /// It is about another file.
    #[error(
        "the report is about sha256 {reported}, the file has {found}; run `ctxhost check` again"
    )]
    OtherFile {
        /// The digest in the report.
        reported: String,
        /// The digest of the file.
        found: String,
    },
    /// Not all groups ran.
    #[error(
        "the report covers a part of the suite only; run `ctxhost check` without --only and --case"
    )]
    Incomplete,
    /// The engine did not conform, or the report contradicts itself.
    #[error("the engine does not conform: {failed} of {checks} checks failed")]
    NotConformant {
        /// The number of failures.
        failed: u64,
        /// The number of checks.
        checks: u64,
    },
}

impl CheckReport {
    /// Reads a report.
    ///
    /// # Errors
    ///
    /// [`ReportError`], if it cannot be read or has another format.
    pub fn read(path: &Path) -> Result<CheckReport, ReportError> {
        let text = ctxhost_files::read(path, ctxhost_files::SMALL_FILE_BYTES)
            .map_err(|source| ReportError::Unreadable { path: path.into(), source })?;
        let invalid = |error: serde_json::Error| ReportError::NotAReport {
            path: path.into(),
            reason: error.to_string(),
        };
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(invalid)?;
        let format = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let format = u32::try_from(format).unwrap_or(u32::MAX);
        // Before the fields: a newer format may have other ones.
        if format > FORMAT {
            return Err(ReportError::OtherFormat { format });
        }
        serde_json::from_value(value).map_err(invalid)
    }

    /// Checks that the report shows a conformant library with this SHA-256, in hex.
    ///
    /// The report is not signed: anyone who can write the file can change its content.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn verify(&self, sha256: &str) -> Result<(), ReportError> {
        if !self.file.sha256.eq_ignore_ascii_case(sha256) {
            let (reported, found) = (self.file.sha256.clone(), sha256.to_owned());
            return Err(ReportError::OtherFile { reported, found });
        }
        // The flags alone could be edited or come from an older suite with fewer groups.
        let ran = |group: &CheckGroup| self.groups.iter().any(|report| report.name == *group);
        if !self.complete || !CheckGroup::ALL.iter().all(ran) {
            return Err(ReportError::Incomplete);
        }
        let is_sound = self.groups.iter().all(|group| group.ok && group.failures.is_empty());
        if self.conformant && self.failed == 0 && is_sound {
            Ok(())
        } else {
            Err(ReportError::NotConformant { failed: self.failed, checks: self.checks })
        }
    }

    /// [`verify`](Self::verify) against the bytes of a file.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn verify_file(&self, library: &Path) -> Result<(), ReportError> {
        let bytes = ctxhost_files::read(library, ctxhost_files::SESSION_FILE_BYTES)
            .map_err(|source| ReportError::Unreadable { path: library.into(), source })?;
        let hash = Sha256::digest(&bytes);
        self.verify(&hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn report(sha256: &str) -> CheckReport {
        let group = |name| GroupReport {
            name,
            ok: true,
            seconds: 0.1,
            covered: "all".into(),
            checks: 2,
            failures: Vec::new(),
        };
        CheckReport {
            format: FORMAT,
            engine: ReportEngine { id: "a".into(), version: "0.1.0".into(), api: "1.0.0".into() },
            file: ReportLibrary { sha256: sha256.into(), bytes: 3 },
            host: ReportHost { version: "0.1.0".into(), api: "1.0.0".into() },
            checked_at_ms: 0,
            config: serde_json::json!({}),
            confinement: Confinement::default(),
            complete: true,
            stopped: String::new(),
            conformant: true,
            checks: 24,
            failed: 0,
            seconds: 1.2,
            groups: CheckGroup::ALL.map(group).to_vec(),
            methods: Vec::new(),
            peak_bytes: 0,
        }
    }

    #[test]
    fn a_report_is_valid_for_its_file_only() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libengine.so");
        fs::write(&library, b"abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let path = folder.path().join(REPORT_FILE);
        fs::write(&path, report(abc).to_json()).unwrap();
        let read = CheckReport::read(&path).unwrap();
        assert_eq!(read, report(abc));
        read.verify_file(&library).unwrap();
        fs::write(&library, b"abd").unwrap();
        assert!(matches!(read.verify_file(&library), Err(ReportError::OtherFile { .. })));
    }

    #[test]
    fn partial_runs_and_failures_do_not_verify() {
        let mut part = report("00");
        part.groups.pop();
        assert!(matches!(part.verify("00"), Err(ReportError::Incomplete)));
        let mut failed = report("00");
        failed.groups[3].ok = false;
        // The total alone does not count.
        assert!(matches!(failed.verify("00"), Err(ReportError::NotConformant { .. })));
    }

    #[test]
    fn other_files_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(REPORT_FILE);
        assert!(matches!(CheckReport::read(&path), Err(ReportError::Unreadable { .. })));
        fs::write(&path, "{}").unwrap();
        assert!(matches!(CheckReport::read(&path), Err(ReportError::NotAReport { .. })));
        fs::write(&path, r#"{"format": 9}"#).unwrap();
        assert!(matches!(CheckReport::read(&path), Err(ReportError::OtherFormat { format: 9 })));
    }
}

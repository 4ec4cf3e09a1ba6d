//! What the kit found: a line for each group, and a file that is true of one library only.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::CheckGroup;

/// The file that a whole run leaves beside the current folder.
pub const REPORT_FILE: &str = "conformance.json";

/// The version of that file. A reader takes this one.
const FORMAT: u32 = 1;

/// What the kit found of one library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The version of this format.
    pub format: u32,
    /// What was checked.
    pub engine: ReportEngine,
    /// The very bytes that were checked.
    pub file: ReportLibrary,
    /// Who checked.
    pub host: ReportHost,
    /// When, in milliseconds since 1970.
    pub checked_at_ms: i64,
    /// The config that the engine was created with, as JSON.
    pub config: serde_json::Value,
    /// Whether all groups ran, with all their cases.
    pub complete: bool,
    /// Whether nothing failed.
    pub conformant: bool,
    /// Checks that were made.
    pub checks: u64,
    /// Failures that were found.
    pub failed: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The groups, in the order they ran.
    pub groups: Vec<GroupReport>,
    /// How long single calls of the engine took.
    pub methods: Vec<MethodTime>,
    /// The largest memory that a child of the group `resources` had, in bytes; 0 where it did not run.
    pub peak_bytes: u64,
}

/// What a library says it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportEngine {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// The engine API it was built with.
    pub api: String,
}

/// The bytes of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLibrary {
    /// Their SHA-256, in hex.
    pub sha256: String,
    /// How many.
    pub bytes: u64,
}

/// The host that checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportHost {
    /// Its version.
    pub version: String,
    /// The engine API it was built with.
    pub api: String,
}

/// What came of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group.
    pub name: CheckGroup,
    /// Whether nothing failed in it.
    pub ok: bool,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What was covered, as a fragment.
    pub covered: String,
    /// Checks that were made.
    pub checks: u64,
    /// What failed; a group stops after a few.
    pub failures: Vec<CheckFailure>,
}

/// A rule that the engine broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFailure {
    /// The number of the case in its group.
    pub case: u64,
    /// Other cases in which the same rule was broken.
    #[serde(rename = "also")]
    pub other_cases: Vec<u64>,
    /// What the case tried.
    #[serde(rename = "tried")]
    pub scenario: String,
    /// The rule, in a word.
    pub rule: String,
    /// What happened, as one sentence.
    pub message: String,
    /// The smallest history at which it happens, a line for each message; empty where none matters.
    pub history: Vec<String>,
    /// The command that repeats it.
    #[serde(rename = "again")]
    pub rerun_command: String,
}

/// How long a call took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MethodTime {
    /// The call.
    pub method: String,
    /// How often it was made.
    pub calls: u64,
    /// Half of the calls took no longer, in microseconds.
    pub median_us: u64,
    /// The longest, in microseconds.
    pub longest_us: u64,
}

/// Why a report does not speak for a library.
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
    /// It is no report.
    #[error("{} is no conformance report: {reason}", path.display())]
    NotAReport {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is of a newer kit.
    #[error(
        "the report has format {format}, this host reads {FORMAT}; check the engine again with it"
    )]
    OtherFormat {
        /// Its format.
        format: u32,
    },
    /// It speaks of other bytes.
    #[error("the report is about sha256 {reported}, the file has {found}; check it again")]
    OtherFile {
        /// What was checked.
        reported: String,
        /// What is there.
        found: String,
    },
    /// Not all of the kit ran.
    #[error(
        "the report is of a part of the kit only; run `ctxhost check` without --only and --case"
    )]
    Incomplete,
    /// The engine did not conform, or the report contradicts itself.
    #[error("the engine does not conform: {failed} of {checks} checks failed")]
    NotConformant {
        /// Failures.
        failed: u64,
        /// Checks.
        checks: u64,
    },
}

impl CheckReport {
    /// Reads a report.
    ///
    /// # Errors
    ///
    /// [`ReportError`], where it cannot be read or is of another format.
    pub fn read(path: &Path) -> Result<CheckReport, ReportError> {
        let text = ctxhost_files::read(path, ctxhost_files::SMALL_FILE_BYTES)
            .map_err(|source| ReportError::Unreadable { path: path.into(), source })?;
        let nonsense = |error: serde_json::Error| ReportError::NotAReport {
            path: path.into(),
            reason: error.to_string(),
        };
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(nonsense)?;
        let format = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let format = u32::try_from(format).unwrap_or(u32::MAX);
        if format > FORMAT {
            return Err(ReportError::OtherFormat { format });
        }
        serde_json::from_value(value).map_err(nonsense)
    }

    /// Whether the report says of these very bytes that they conform.
    ///
    /// `sha256` is that of the library, in hex. A report is a word and no signature: whoever can write
    /// the file can write what it says.
    ///
    /// # Errors
    ///
    /// [`ReportError`] with what is missing.
    pub fn verify(&self, sha256: &str) -> Result<(), ReportError> {
        if !self.file.sha256.eq_ignore_ascii_case(sha256) {
            let (reported, found) = (self.file.sha256.clone(), sha256.to_owned());
            return Err(ReportError::OtherFile { reported, found });
        }
        let ran = |group: &CheckGroup| self.groups.iter().any(|told| told.name == *group);
        if !self.complete || !CheckGroup::ALL.iter().all(ran) {
            return Err(ReportError::Incomplete);
        }
        let is_sound = self.groups.iter().all(|group| group.ok && group.failures.is_empty());
        match self.conformant && self.failed == 0 && is_sound {
            true => Ok(()),
            false => Err(ReportError::NotConformant { failed: self.failed, checks: self.checks }),
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

    /// The report as the text of its file.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    pub(super) const fn format() -> u32 {
        FORMAT
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
            complete: true,
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
    fn a_report_is_true_of_the_bytes_it_was_made_of() {
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
    fn half_a_kit_and_a_failure_speak_for_nobody() {
        let mut part = report("00");
        part.groups.pop();
        assert!(matches!(part.verify("00"), Err(ReportError::Incomplete)));
        let mut failed = report("00");
        failed.groups[3].ok = false;
        // The sum alone may say what it likes.
        assert!(matches!(failed.verify("00"), Err(ReportError::NotConformant { .. })));
    }

    #[test]
    fn other_files_are_no_reports() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(REPORT_FILE);
        assert!(matches!(CheckReport::read(&path), Err(ReportError::Unreadable { .. })));
        fs::write(&path, "{}").unwrap();
        assert!(matches!(CheckReport::read(&path), Err(ReportError::NotAReport { .. })));
        fs::write(&path, r#"{"format": 9}"#).unwrap();
        assert!(matches!(CheckReport::read(&path), Err(ReportError::OtherFormat { format: 9 })));
    }
}

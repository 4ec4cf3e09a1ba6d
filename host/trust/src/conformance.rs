//! Reads the report of `ctxhost check` for a file.

use std::path::Path;

use serde::Deserialize;

/// The file name of the report.
const REPORT_NAME: &str = "conformance.json";

/// Files in the folder that a library is built from.
const BUILD_FILES: [&str; 2] = ["Cargo.toml", "Makefile"];

/// The verdict on the bytes of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conformance {
    /// The verdict as text.
    pub verdict: String,
}

/// The parts of the report that are read. Missing fields count as not found.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PackagedReport {
    file: ReportFile,
    complete: bool,
    conformant: Option<bool>,
    checks: u64,
    failed: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReportFile {
    sha256: String,
}

impl Conformance {
    /// The verdict on the bytes of a file. Searched beside the file, in the folders above it up to
    /// the one it was built from, and in `folders`, since the check writes the report to the
    /// working directory. `None` where no report is about these bytes.
    pub fn find(file: &Path, sha256: &str, folders: &[&Path]) -> Option<Conformance> {
        let above: Vec<&Path> = file.ancestors().skip(1).collect();
        let is_home = |folder: &&Path| BUILD_FILES.iter().any(|name| folder.join(name).is_file());
        // Not above the build folder: a report in an unrelated folder is not about this file.
        let home = above.iter().position(is_home).unwrap_or(0);
        let own = above.into_iter().take(home + 1);
        own.chain(folders.iter().copied()).find_map(|folder| Conformance::in_folder(folder, sha256))
    }

    fn in_folder(folder: &Path, sha256: &str) -> Option<Conformance> {
        let text =
            ctxhost_files::read(&folder.join(REPORT_NAME), ctxhost_files::SMALL_FILE_BYTES).ok()?;
        let report: PackagedReport = serde_json::from_slice(&text).ok()?;
        let is_about_file = report.file.sha256.eq_ignore_ascii_case(sha256);
        let verdict = is_about_file.then(|| report.verdict())??;
        Some(Conformance { verdict })
    }
}

impl PackagedReport {
    fn verdict(&self) -> Option<String> {
        let checks = self.checks;
        Some(match (self.conformant?, self.complete) {
            (true, true) => format!("conformant, {checks} checks"),
            (true, false) => format!("conformant as far as it was checked, {checks} checks"),
            (false, _) => format!("not conformant, {} of {checks} checks failed", self.failed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_valid_for_its_bytes_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libx.so");
        let report = folder.path().join(REPORT_NAME);
        let verdict = |text: &str| {
            std::fs::write(&report, text).unwrap();
            Conformance::find(&file, "ab12", &[]).map(|report| report.verdict)
        };
        assert_eq!(Conformance::find(&file, "ab12", &[]), None, "without a report");
        let found = verdict(
            r#"{"file": {"sha256": "AB12", "bytes": 3}, "complete": true, "conformant": true, "checks": 9}"#,
        );
        assert_eq!(found.as_deref(), Some("conformant, 9 checks"));
        assert_eq!(verdict(r#"{"file": {"sha256": "ab13"}, "conformant": true}"#), None);
        let found = verdict(
            r#"{"file": {"sha256": "ab12"}, "conformant": false, "checks": 9, "failed": 2, "later": [1]}"#,
        );
        assert_eq!(found.as_deref(), Some("not conformant, 2 of 9 checks failed"));
        let found = verdict(r#"{"file": {"sha256": "ab12"}, "conformant": true, "checks": 4}"#);
        assert_eq!(found.as_deref(), Some("conformant as far as it was checked, 4 checks"));
        assert_eq!(verdict(r#"{"file": {"sha256": "ab12"}}"#), None);
        assert_eq!(verdict("no json"), None);
    }

    #[test]
    fn the_report_is_found_in_the_working_directory() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("crate/target/release")).unwrap();
        let file = at("crate/target/release/libx.so");
        let text = r#"{"file": {"sha256": "ab12"}, "complete": true, "conformant": true}"#;
        let here = folder.path();
        std::fs::write(at("conformance.json"), text).unwrap();
        assert_eq!(Conformance::find(&file, "ab12", &[]), None, "an unrelated folder above");
        assert!(Conformance::find(&file, "ab12", &[here]).is_some(), "the working directory");
        std::fs::rename(at("conformance.json"), at("crate/conformance.json")).unwrap();
        assert_eq!(Conformance::find(&file, "ab12", &[here]), None);
        std::fs::write(at("crate/Cargo.toml"), "").unwrap();
        assert!(Conformance::find(&file, "ab12", &[]).is_some(), "the crate's own");
        assert_eq!(Conformance::find(&file, "ab13", &[]), None, "of other bytes");
    }
}

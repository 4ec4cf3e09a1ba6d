//! What `ctxhost check` found out about a file, as it stands in the report beside it.

use std::path::Path;

use serde::Deserialize;

/// The report's name.
const REPORT_NAME: &str = "conformance.json";

/// What stands in the folder that a library was built from.
const HOME_NAMES: [&str; 2] = ["Cargo.toml", "Makefile"];

/// The verdict on the bytes of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conformance {
    /// In the words of the report.
    pub verdict: String,
}

/// The report, as far as it is read here. What it does not say counts as not found.
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
    /// The verdict on the bytes of a file. It is looked for beside the file, in the folders above it up
    /// to the one it was built from, and in `folders`: the check leaves it where it was asked for.
    /// `None` where there is none, or none that speaks of these bytes.
    pub fn find(file: &Path, sha256: &str, folders: &[&Path]) -> Option<Conformance> {
        let above: Vec<&Path> = file.ancestors().skip(1).collect();
        let is_home = |folder: &&Path| HOME_NAMES.iter().any(|name| folder.join(name).is_file());
        let home = above.iter().position(is_home).unwrap_or(0);
        let own = above.into_iter().take(home + 1);
        own.chain(folders.iter().copied()).find_map(|folder| Conformance::in_folder(folder, sha256))
    }

    fn in_folder(folder: &Path, sha256: &str) -> Option<Conformance> {
        let text =
            ctxhost_files::read(&folder.join(REPORT_NAME), ctxhost_files::SMALL_FILE_BYTES).ok()?;
        let report: PackagedReport = serde_json::from_slice(&text).ok()?;
        let speaks_of_it = report.file.sha256.eq_ignore_ascii_case(sha256);
        let verdict = speaks_of_it.then(|| report.verdict())??;
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
    fn a_verdict_counts_for_the_bytes_it_speaks_of() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libx.so");
        let report = folder.path().join(REPORT_NAME);
        let verdict = |text: &str| {
            std::fs::write(&report, text).unwrap();
            Conformance::find(&file, "ab12", &[]).map(|it| it.verdict)
        };
        assert_eq!(Conformance::find(&file, "ab12", &[]), None, "there is no report");
        let said = verdict(
            r#"{"file": {"sha256": "AB12", "bytes": 3}, "complete": true, "conformant": true, "checks": 9}"#,
        );
        assert_eq!(said.as_deref(), Some("conformant, 9 checks"));
        assert_eq!(verdict(r#"{"file": {"sha256": "ab13"}, "conformant": true}"#), None);
        let said = verdict(
            r#"{"file": {"sha256": "ab12"}, "conformant": false, "checks": 9, "failed": 2, "later": [1]}"#,
        );
        assert_eq!(said.as_deref(), Some("not conformant, 2 of 9 checks failed"));
        let said = verdict(r#"{"file": {"sha256": "ab12"}, "conformant": true, "checks": 4}"#);
        assert_eq!(said.as_deref(), Some("conformant as far as it was checked, 4 checks"));
        assert_eq!(verdict(r#"{"file": {"sha256": "ab12"}}"#), None);
        assert_eq!(verdict("no json"), None);
    }

    #[test]
    fn the_check_leaves_it_where_it_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("crate/target/release")).unwrap();
        let file = at("crate/target/release/libx.so");
        let text = r#"{"file": {"sha256": "ab12"}, "complete": true, "conformant": true}"#;
        let here = folder.path();
        std::fs::write(at("conformance.json"), text).unwrap();
        assert_eq!(Conformance::find(&file, "ab12", &[]), None, "anybody's folder above");
        assert!(Conformance::find(&file, "ab12", &[here]).is_some(), "where somebody works");
        std::fs::rename(at("conformance.json"), at("crate/conformance.json")).unwrap();
        assert_eq!(Conformance::find(&file, "ab12", &[here]), None);
        std::fs::write(at("crate/Cargo.toml"), "").unwrap();
        assert!(Conformance::find(&file, "ab12", &[]).is_some(), "the crate's own");
        assert_eq!(Conformance::find(&file, "ab13", &[]), None, "of other bytes");
    }
}

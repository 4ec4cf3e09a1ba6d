//! What `ctxhost check` found out about a file, as it stands in the report beside it.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// The report's name.
const REPORT_NAME: &str = "conformance.json";

/// The verdict on the bytes of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conformance {
    /// In the words of the report.
    pub verdict: String,
}

/// The report, as far as it is read here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    sha256: String,
    result: Value,
    conformant: Option<bool>,
}

impl Conformance {
    /// The verdict beside a file; `None` where there is none, or where it speaks of other bytes.
    pub fn beside(file: &Path, sha256: &str) -> Option<Conformance> {
        let text = std::fs::read(file.with_file_name(REPORT_NAME)).ok()?;
        let report: Report = serde_json::from_slice(&text).ok()?;
        let speaks_of_it = report.sha256.eq_ignore_ascii_case(sha256);
        let verdict = speaks_of_it.then(|| report.verdict())??;
        Some(Conformance { verdict })
    }
}

impl Report {
    fn verdict(&self) -> Option<String> {
        let of_flag = |conformant: bool| if conformant { "conformant" } else { "not conformant" };
        match &self.result {
            // One line, whatever stands there.
            Value::String(text) => Some(text.split_whitespace().collect::<Vec<_>>().join(" ")),
            Value::Bool(conformant) => Some(of_flag(*conformant).into()),
            _ => self.conformant.map(|conformant| of_flag(conformant).into()),
        }
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
            Conformance::beside(&file, "ab12").map(|it| it.verdict)
        };
        assert_eq!(Conformance::beside(&file, "ab12"), None, "there is no report");
        let said = verdict(r#"{"engine": "x", "sha256": "AB12", "result": "conformant"}"#);
        assert_eq!(said.as_deref(), Some("conformant"));
        assert_eq!(verdict(r#"{"sha256": "ab13", "result": "conformant"}"#), None);
        let said = verdict(r#"{"sha256": "ab12", "result": false, "later": [1]}"#);
        assert_eq!(said.as_deref(), Some("not conformant"));
        let said = verdict(r#"{"sha256": "ab12", "result": {"failed": 1}, "conformant": true}"#);
        assert_eq!(said.as_deref(), Some("conformant"));
        assert_eq!(verdict(r#"{"sha256": "ab12"}"#), None);
        assert_eq!(verdict("no json"), None);
    }
}

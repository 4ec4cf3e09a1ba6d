//! Reads compaction records of ctxhost and Pi.

use serde::Deserialize;
use serde_json::Value;

use super::lenient;
use super::record::{Record, RecordKind};

/// A recorded compaction. Some fields are empty for one by Pi.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedCompaction {
    /// The engine; empty for a compaction by Pi.
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// Its trigger; empty if unknown.
    pub trigger: String,
    /// Tokens of the live transcript before.
    pub tokens_before: u64,
    /// Tokens after, if known.
    pub tokens_after: Option<u64>,
    /// The summary of the older part.
    pub summary: String,
    /// Data of the host; `null` for none.
    pub host_details: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct WireCompactionSummary {
    #[serde(deserialize_with = "lenient::or_default")]
    summary: String,
    #[serde(deserialize_with = "lenient::count")]
    tokens_before: Option<u64>,
    /// OpenClaw writes it here.
    #[serde(deserialize_with = "lenient::count")]
    tokens_after: Option<u64>,
    #[serde(deserialize_with = "lenient::or_default")]
    details: WireCompactionDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCompactionDetails {
    #[serde(deserialize_with = "lenient::or_default")]
    ctxhost: WireCtxhost,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCtxhost {
    #[serde(deserialize_with = "lenient::or_default")]
    engine: String,
    #[serde(deserialize_with = "lenient::or_default")]
    engine_version: String,
    #[serde(deserialize_with = "lenient::or_default")]
    trigger: String,
    #[serde(deserialize_with = "lenient::count")]
    tokens_after: Option<u64>,
    host_details: Value,
}

impl Record {
    /// The compaction; `None` for any other record.
    pub fn compaction(&self) -> Option<RecordedCompaction> {
        let is_compaction = *self.kind() == RecordKind::Compaction;
        let wire: WireCompactionSummary = is_compaction.then(|| self.parse_fields()).flatten()?;
        let ours = wire.details.ctxhost;
        Some(RecordedCompaction {
            engine: ours.engine,
            engine_version: ours.engine_version,
            trigger: ours.trigger,
            tokens_before: wire.tokens_before.unwrap_or_default(),
            tokens_after: ours.tokens_after.or(wire.tokens_after),
            summary: wire.summary,
            host_details: ours.host_details,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rest: &str) -> Record {
        let head = r#""id":"c","parentId":"a","timestamp":"2026-01-01T00:00:00.000Z""#;
        Record::parse(&format!("{{{head},{rest}}}")).unwrap().record
    }

    #[test]
    fn compactions_of_ctxhost_have_all_fields_and_those_of_pi_some() {
        let ours = record(
            r#""type":"compaction","summary":"s","firstKeptEntryId":"c","tokensBefore":90,"details":{"ctxhost":{"version":1,"engine":"mask","engineVersion":"2.0","trigger":"manual","tokensAfter":40,"items":[],"hostDetails":{"survival":1}}}"#,
        );
        assert_eq!(
            ours.compaction(),
            Some(RecordedCompaction {
                engine: "mask".into(),
                engine_version: "2.0".into(),
                trigger: "manual".into(),
                tokens_before: 90,
                tokens_after: Some(40),
                summary: "s".into(),
                host_details: serde_json::json!({ "survival": 1 }),
            })
        );
        let of_pi = record(
            r#""type":"compaction","summary":"s","firstKeptEntryId":"a","tokensBefore":9,"details":{"readFiles":[]}"#,
        );
        let known = RecordedCompaction {
            summary: "s".into(),
            tokens_before: 9,
            ..RecordedCompaction::default()
        };
        assert_eq!(of_pi.compaction(), Some(known));
        assert_eq!(record(r#""type":"label","targetId":"a""#).compaction(), None);
    }

    #[test]
    fn a_field_of_another_type_costs_only_itself() {
        for (field, tokens_before) in [
            (r#""tokensBefore":-1"#, 0),
            (r#""tokensBefore":"x""#, 0),
            (r#""tokensBefore":1e30"#, 0),
            (r#""tokensBefore":9.0"#, 9),
            (r#""tokensBefore":9,"tokensAfter":[]"#, 9),
            (r#""tokensBefore":9,"details":"x""#, 9),
            (r#""tokensBefore":9,"details":{"ctxhost":{"tokensAfter":1e30,"engine":7}}"#, 9),
        ] {
            let line =
                format!(r#""type":"compaction","summary":"s","firstKeptEntryId":"a",{field}"#);
            let expected = RecordedCompaction {
                summary: "s".into(),
                tokens_before,
                ..RecordedCompaction::default()
            };
            assert_eq!(record(&line).compaction(), Some(expected), "{field}");
        }
        let without_text = record(r#""type":"compaction","summary":7,"tokensBefore":9"#);
        assert_eq!(without_text.compaction().map(|found| found.tokens_before), Some(9));
    }
}

//! Reads compaction records of ctxhost and Pi.

use serde::Deserialize;
use serde_json::Value;

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
    summary: String,
    tokens_before: u64,
    /// OpenClaw writes it here.
    tokens_after: Option<u64>,
    details: Option<WireCompactionDetails>,
}

#[derive(Deserialize)]
struct WireCompactionDetails {
    ctxhost: Option<WireCtxhost>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCtxhost {
    engine: String,
    engine_version: String,
    trigger: String,
    tokens_after: Option<u64>,
    host_details: Value,
}

impl Record {
    /// The compaction; `None` for any other record.
    pub fn compaction(&self) -> Option<RecordedCompaction> {
        let is_compaction = *self.kind() == RecordKind::Compaction;
        let wire: WireCompactionSummary = is_compaction.then(|| self.parse_fields()).flatten()?;
        let ours = wire.details.and_then(|details| details.ctxhost).unwrap_or_default();
        Some(RecordedCompaction {
            engine: ours.engine,
            engine_version: ours.engine_version,
            trigger: ours.trigger,
            tokens_before: wire.tokens_before,
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
}

//! A compaction taken back: the branch goes on from before it, with all that was said since.

use serde_json::json;

use super::body::RecordBody;
use super::error::SessionError;
use super::record::{Record, RecordKind};
use super::together::Together;
use super::{Session, clock};

/// The custom type of the record that says that a compaction was taken back.
pub const UNDO: &str = "ctxhost.undo";

impl Session {
    /// Takes the newest compaction of the branch back and answers its id; `None` where there is none.
    ///
    /// Nothing is removed: the records since are written again behind what came before the compaction,
    /// as a branch of their own, and the old branch stays. Call [`live`](Self::live) afterwards.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); the session stands where it stood then.
    pub fn undo_compaction(&mut self) -> Result<Option<String>, SessionError> {
        let branch: Vec<Record> = self.branch().into_iter().cloned().collect();
        let newest = branch.iter().rposition(|record| *record.kind() == RecordKind::Compaction);
        let Some((at, compaction)) = newest.and_then(|at| Some((at, branch.get(at)?))) else {
            return Ok(None);
        };
        let stood_at = self.leaf().map(|leaf| leaf.id().to_owned());
        let since = branch.get(at + 1..).unwrap_or_default();
        let done = self.go_on_before(compaction, since, stood_at.as_deref());
        if let (Err(_), Some(leaf)) = (&done, stood_at) {
            self.set_leaf(&leaf)?;
        }
        done.map(|()| Some(compaction.id().to_owned()))
    }

    fn go_on_before(
        &mut self,
        compaction: &Record,
        since: &[Record],
        stood_at: Option<&str>,
    ) -> Result<(), SessionError> {
        if let Some(parent) = compaction.parent_id() {
            self.set_leaf(parent)?;
        }
        let told =
            json!({ "compaction": compaction.id(), "since": since.len(), "stoodAt": stood_at });
        // One write, and a count: half of the records would hide the other half.
        let mut again = Together::default();
        again.add(self, RecordBody::custom(UNDO, &told), clock::now_ms())?;
        for record in since {
            again.add(self, RecordBody::of_record(record)?, record.timestamp_ms())?;
        }
        self.append_together(again)
    }
}

//! Tracks what an engine has ingested of a session, so that it gets each entry once.

use std::time::Duration;

use ctxhost_engine_api::{BootstrapRequest, IngestRequest, SessionRef, Transcript};

use ctxhost_engine::{ActiveEngine, EngineSet, SlotError};

/// What an engine has ingested of a session.
#[derive(Clone, Debug, Default)]
pub struct IngestProgress {
    /// The engine; `None` before the first call.
    serving: Option<EngineSet>,
    /// The branch that it was bootstrapped with.
    branch: u64,
    epoch: u64,
    /// The ingested entries of that epoch.
    entries: u64,
}

impl IngestProgress {
    /// Bootstraps an engine that does not know the session and ingests new entries; returns the time inside the
    /// engine. `branch` counts the changes of the session's branch.
    pub async fn catch_up(
        &mut self,
        engine: &ActiveEngine,
        session: &SessionRef,
        branch: u64,
        transcript: &Transcript,
    ) -> Result<Duration, SlotError> {
        // The engine may have been replaced or rolled back since the last call.
        if self.serving.as_ref() != Some(&engine.serving()) || self.branch != branch {
            let request =
                BootstrapRequest { session: session.clone(), ..BootstrapRequest::default() };
            engine.bootstrap(transcript, request).await?;
            *self = IngestProgress { branch, ..IngestProgress::default() };
            // Read again: a failure in `bootstrap` may have activated the fallback engine.
            self.serving = Some(engine.serving());
        }
        // After a compaction the positions of entries have changed.
        if self.epoch != transcript.epoch() {
            (self.epoch, self.entries) = (transcript.epoch(), 0);
        }
        let entries = self.entries..transcript.len() as u64;
        if entries.is_empty() {
            return Ok(Duration::ZERO);
        }
        let end = entries.end;
        let session = session.clone();
        let request = IngestRequest { session, entries, ..IngestRequest::default() };
        let answer = engine.ingest(transcript, request).await?;
        self.entries = end;
        Ok(answer.elapsed)
    }
}

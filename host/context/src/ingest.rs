//! What an engine has seen of a session, so that it is given each entry once.

use std::time::Duration;

use ctxhost_engine_api::{BootstrapRequest, IngestRequest, SessionRef, Transcript};

use ctxhost_engine::{ActiveEngine, EngineSet, SlotError};

/// What an engine has seen of a session.
#[derive(Clone, Debug, Default)]
pub struct IngestProgress {
    /// Which engine that is; `None` before the first call.
    serving: Option<EngineSet>,
    /// The branch of the session that it was told of.
    branch: u64,
    epoch: u64,
    /// Entries of that epoch that it has seen.
    entries: u64,
}

impl IngestProgress {
    /// Tells an engine of a session that is new to it, and of the entries that it has not seen; answers the
    /// time inside the engine. `branch` counts how often the session left the branch it stood on.
    ///
    /// # Errors
    ///
    /// [`SlotError`] of the engine.
    pub async fn catch_up(
        &mut self,
        engine: &ActiveEngine,
        session: &SessionRef,
        branch: u64,
        transcript: &Transcript,
    ) -> Result<Duration, SlotError> {
        if self.serving.as_ref() != Some(&engine.serving()) || self.branch != branch {
            let request =
                BootstrapRequest { session: session.clone(), ..BootstrapRequest::default() };
            engine.bootstrap(transcript, request).await?;
            *self = IngestProgress { branch, ..IngestProgress::default() };
            // Bootstrapping may have put another engine in the place of the one that failed.
            self.serving = Some(engine.serving());
        }
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
        let served = engine.ingest(transcript, request).await?;
        self.entries = end;
        Ok(served.elapsed)
    }
}

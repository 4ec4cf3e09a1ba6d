//! What was live earlier: the transcript as it was when a record was, or was about to be, the newest.

use ctxhost_engine_api::transcript::log::TranscriptLog;

use super::digest::transcript_digest;
use super::error::SessionError;
use super::record::Record;
use super::{Session, live_transcript};

impl Session {
    /// The records from the root to this one.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn branch_to(&self, id: &str) -> Result<Vec<&Record>, SessionError> {
        Ok(self.records_at(self.contents.tree.path_to(Some(self.position(id)?))))
    }

    /// The live transcript as it was when this record was the newest.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn live_at(&self, id: &str) -> Result<TranscriptLog, SessionError> {
        let position = self.position(id)?;
        Ok(self.live_on_path(&self.contents.tree.path_to(Some(position))))
    }

    /// The live transcript as it was just before this record was written.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn live_before(&self, id: &str) -> Result<TranscriptLog, SessionError> {
        let mut path = self.contents.tree.path_to(Some(self.position(id)?));
        path.pop();
        Ok(self.live_on_path(&path))
    }

    /// The digest of the live transcript: see [`transcript_digest`](super::digest()).
    pub fn digest(&self) -> String {
        transcript_digest(&self.live(0).snapshot())
    }

    /// The line of the file that a record stands on, counted from 1; of a session of another agent the
    /// line that it would have in a file of its own.
    pub fn line_of(&self, id: &str) -> Option<usize> {
        self.contents.line_of(self.contents.tree.position(id)?)
    }

    fn live_on_path(&self, path: &[usize]) -> TranscriptLog {
        live_transcript::build_path_log(&self.contents, self.contents.first_task_on(path), path, 0)
    }
}

//! The live transcript at earlier records.

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

    /// The live transcript when this record was the newest.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn live_at(&self, id: &str) -> Result<TranscriptLog, SessionError> {
        let position = self.position(id)?;
        Ok(self.live_on_path(&self.contents.tree.path_to(Some(position))))
    }

    /// The live transcript just before this record was appended.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn live_before(&self, id: &str) -> Result<TranscriptLog, SessionError> {
        let mut path = self.contents.tree.path_to(Some(self.position(id)?));
        path.pop();
        Ok(self.live_on_path(&path))
    }

    /// The [digest](transcript_digest) of the live transcript.
    pub fn digest(&self) -> String {
        transcript_digest(&self.live(0).snapshot())
    }

    /// The line of a record in the file, from 1. For an imported session, the line that it would have in a
    /// session file.
    pub fn line_of(&self, id: &str) -> Option<usize> {
        self.contents.line_of(self.contents.tree.position(id)?)
    }

    fn live_on_path(&self, path: &[usize]) -> TranscriptLog {
        live_transcript::build_path_log(&self.contents, self.contents.first_task_on(path), path, 0)
    }
}

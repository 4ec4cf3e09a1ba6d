//! The live transcript at earlier records.

use ctxhost_engine_api::transcript::log::TranscriptLog;

use super::digest::transcript_digest;
use super::error::SessionError;
use super::record::Record;
use super::{Session, live_transcript, projection_items};

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
        Ok(self.live_on_path(&self.contents.tree.path_to(Some(position)), &[]))
    }

    /// The live transcript just before this record was appended; before a compaction, what it was made from.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn live_before(&self, id: &str) -> Result<TranscriptLog, SessionError> {
        let mut path = self.contents.tree.path_to(Some(self.position(id)?));
        path.pop();
        let projection = self.record(id).and_then(projection_items::read_projection);
        let ignored = projection.map(|projection| projection.ignored_compactions);
        Ok(self.live_on_path(&path, &ignored.unwrap_or_default()))
    }

    /// The live transcript of the branch without these compactions, which are its newest.
    ///
    /// This reads the whole session.
    pub fn live_without(&self, compactions: &[String], epoch: u64) -> TranscriptLog {
        let (contents, path) = (&self.contents, self.contents.tree.path());
        live_transcript::build_path_log(contents, contents.first_task, &path, compactions, epoch)
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

    fn live_on_path(&self, path: &[usize], ignored: &[String]) -> TranscriptLog {
        let first_task = self.contents.first_task_on(path);
        live_transcript::build_path_log(&self.contents, first_task, path, ignored, 0)
    }
}

//! Session contents that load the rest of the file on demand.
//!
//! Dereferencing loads everything. Code that needs the next turn's records only uses
//! [`loaded`](LazyContents::loaded), which gives the same results or is known to be insufficient.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::contents::SessionContents;
use super::error::SessionError;
use super::live_transcript::LiveTranscript;
use super::record::{Record, RecordKind};
use super::{journal, orphan_results, parse, projection_items};

/// The contents of a session, partially or completely loaded.
#[derive(Debug)]
pub(super) struct LazyContents {
    loaded: SessionContents,
    /// The file, if `loaded` is partial.
    file: Option<PathBuf>,
    /// The complete contents, once they were needed.
    whole: OnceLock<SessionContents>,
}

impl LazyContents {
    /// Complete contents.
    pub(super) fn new(contents: SessionContents) -> LazyContents {
        LazyContents { loaded: contents, file: None, whole: OnceLock::new() }
    }

    /// Partial contents of this file.
    pub(super) fn from_partial(contents: SessionContents, file: PathBuf) -> LazyContents {
        LazyContents { file: Some(file), ..LazyContents::new(contents) }
    }

    /// Whether records of the file are not loaded.
    pub(super) fn is_partial(&self) -> bool {
        self.file.is_some()
    }

    /// The loaded contents, which suffice for the next turn.
    pub(super) fn loaded(&self) -> &SessionContents {
        &self.loaded
    }

    /// The loaded contents for appending.
    pub(super) fn loaded_mut(&mut self) -> &mut SessionContents {
        // Otherwise the complete contents would miss the appended record.
        if let Some(whole) = self.whole.take() {
            self.loaded = whole;
            self.file = None;
        }
        &mut self.loaded
    }

    /// Loads the rest of the file and returns the complete contents.
    ///
    /// # Errors
    ///
    /// If the rest cannot be read.
    pub(super) fn load_all(&mut self) -> Result<&mut SessionContents, SessionError> {
        if self.whole.get().is_none()
            && let Some(whole) = self.read_whole().transpose()?
        {
            self.loaded = whole;
            self.file = None;
        }
        Ok(self.loaded_mut())
    }

    /// Loads the rest of the file if the interpretation of a record about to be appended depends on it.
    ///
    /// # Errors
    ///
    /// If the rest cannot be read.
    pub(super) fn load_for_append(&mut self, record: &Record) -> Result<(), SessionError> {
        if self.is_partial() && !can_append(&self.loaded, record) {
            self.load_all()?;
        }
        Ok(())
    }

    /// Contents that suffice to interpret one record: the loaded ones if possible.
    pub(super) fn contents_for(&self, id: &str) -> &SessionContents {
        let is_sufficient = !self.is_partial()
            || self
                .loaded
                .record(id)
                .is_some_and(|record| orphan_results::is_resolvable(&self.loaded, record));
        if is_sufficient { &self.loaded } else { self }
    }

    fn read_whole(&self) -> Option<Result<SessionContents, SessionError>> {
        let path = self.file.as_ref()?;
        tracing::debug!(file = %path.display(), "loading the rest of a session");
        // Up to the known length: another process may be appending.
        Some(
            journal::read_prefix(path, self.loaded.length_bytes())
                .and_then(|lines| parse::parse_lines(&path.display().to_string(), &lines)),
        )
    }
}

/// Whether partial contents suffice to interpret a record that follows the leaf.
fn can_append(contents: &SessionContents, record: &Record) -> bool {
    let is_projected = || {
        let projection = projection_items::read_projection(record);
        let live = LiveTranscript::from_branch(contents, contents.first_task, &[]);
        projection.is_some_and(|projection| {
            projection.ignored_compactions.is_empty()
                && live.project(contents.records.len(), &projection.items).is_some()
        })
    };
    orphan_results::context_records(contents, record, contents.tree.leaf()).is_some()
        && (*record.kind() != RecordKind::Compaction || is_projected())
}

/// The complete contents, loaded on first use.
impl Deref for LazyContents {
    type Target = SessionContents;

    fn deref(&self) -> &SessionContents {
        if let Some(whole) = self.whole.get() {
            return whole;
        }
        match self.read_whole() {
            None => &self.loaded,
            Some(Ok(whole)) => self.whole.get_or_init(|| whole),
            Some(Err(error)) => {
                // Read access has no error to return, and partial contents are better than none.
                // Callers that change or copy the session use `load_all`, which fails.
                tracing::error!(%error, "cannot load the rest of a session; using the loaded part only");
                &self.loaded
            }
        }
    }
}

//! What has been read of a session: all of it, or an excerpt of which the rest is read when somebody asks.
//!
//! Whoever takes the contents as they are has all of them; whoever is content with what the next turn needs
//! says so and takes what is [at hand](Reading::at_hand). An excerpt answers the same as the whole, or
//! says that it cannot.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::contents::SessionContents;
use super::error::SessionError;
use super::record::Record;
use super::{journal, orphan_results, parse};

/// The contents of a session, as far as they were needed.
#[derive(Debug)]
pub(super) struct LazyContents {
    at_hand: SessionContents,
    /// The file that `loaded` is an excerpt of.
    file: Option<PathBuf>,
    /// All of it, once somebody asked.
    whole: OnceLock<SessionContents>,
}

impl LazyContents {
    /// All of a session.
    pub(super) fn new(contents: SessionContents) -> LazyContents {
        LazyContents { at_hand: contents, file: None, whole: OnceLock::new() }
    }

    /// What the next turn needs of this file.
    pub(super) fn from_excerpt(contents: SessionContents, file: PathBuf) -> LazyContents {
        LazyContents { file: Some(file), ..LazyContents::new(contents) }
    }

    /// Whether there is more in the file.
    pub(super) fn is_excerpt(&self) -> bool {
        self.file.is_some()
    }

    /// What the next turn needs.
    pub(super) fn loaded(&self) -> &SessionContents {
        &self.at_hand
    }

    /// The same to add to it. If all was read meanwhile, that is at hand from now on.
    pub(super) fn loaded_mut(&mut self) -> &mut SessionContents {
        if let Some(whole) = self.whole.take() {
            self.at_hand = whole;
            self.file = None;
        }
        &mut self.at_hand
    }

    /// All of the session, to change it.
    ///
    /// # Errors
    ///
    /// Where the rest cannot be read.
    pub(super) fn load_all(&mut self) -> Result<&mut SessionContents, SessionError> {
        if self.whole.get().is_none()
            && let Some(whole) = self.read_whole().transpose()?
        {
            self.at_hand = whole;
            self.file = None;
        }
        Ok(self.loaded_mut())
    }

    /// Reads the rest where a record that is about to be appended can be told right with it alone.
    ///
    /// # Errors
    ///
    /// Where the rest cannot be read.
    pub(super) fn load_for_append(&mut self, record: &Record) -> Result<(), SessionError> {
        if self.is_excerpt() && !self.at_hand.can_append(record) {
            self.load_all()?;
        }
        Ok(())
    }

    /// The contents that tell all of one record: what is at hand, if it is.
    pub(super) fn contents_for(&self, id: &str) -> &SessionContents {
        let at_hand = &self.at_hand;
        if !self.is_excerpt() {
            return at_hand;
        }
        let is_told = at_hand.record(id).is_some_and(|record| {
            orphan_results::call_records(at_hand, record, at_hand.parent_of(record)).is_some()
        });
        if is_told { at_hand } else { self }
    }

    fn read_whole(&self) -> Option<Result<SessionContents, SessionError>> {
        let path = self.file.as_ref()?;
        tracing::debug!(file = %path.display(), "the older part of a session is read");
        Some(
            journal::read_prefix(path, self.at_hand.length_bytes())
                .and_then(|lines| parse::parse_lines(&path.display().to_string(), &lines)),
        )
    }
}

/// All of the session.
impl Deref for LazyContents {
    type Target = SessionContents;

    fn deref(&self) -> &SessionContents {
        if let Some(whole) = self.whole.get() {
            return whole;
        }
        match self.read_whole() {
            None => &self.at_hand,
            Some(Ok(whole)) => self.whole.get_or_init(|| whole),
            Some(Err(error)) => {
                // Looking at a session cannot fail, and what is there is better than nothing. Whatever
                // changes or copies one asks for all of it and is refused.
                tracing::error!(%error, "the older part of a session cannot be read and is left out");
                &self.at_hand
            }
        }
    }
}

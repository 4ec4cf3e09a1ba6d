//! Where letters are kept: in a file beside a session, where the store keeps the session, or nowhere.

use std::sync::Arc;

use super::file::LetterFile;
use super::{InboxError, Letter};
use ctxhost_session::Session;
use ctxhost_session::keeper::{KeptLetter, LetterBox};

/// Where letters of one session are kept.
#[derive(Debug)]
pub(super) enum Letters {
    /// The session is in memory alone.
    Nowhere,
    /// In a file beside it.
    File(LetterFile),
    /// Where the session is kept.
    Box(Arc<dyn LetterBox>),
}

impl Letters {
    /// The place that belongs to a session.
    pub(super) fn of(session: &Session) -> Letters {
        let beside = || session.path().map(LetterFile::beside).map(Letters::File);
        let with_it = session.letters().map(Letters::Box);
        with_it.or_else(beside).unwrap_or(Letters::Nowhere)
    }

    /// The letters that are there when a session is opened, oldest first.
    pub(super) fn found(&self) -> Result<Vec<Letter>, InboxError> {
        match self {
            Letters::Nowhere => Ok(Vec::new()),
            Letters::File(file) => file.read(),
            Letters::Box(letters) => {
                let kept = letters.take_over().map_err(InboxError::Store)?;
                Ok(kept.iter().filter_map(letter).collect())
            }
        }
    }

    /// The letters that may have come in from elsewhere since. Nobody else writes to a file.
    pub(super) fn found_again(&self) -> Result<Vec<Letter>, InboxError> {
        match self {
            Letters::Nowhere | Letters::File(_) => Ok(Vec::new()),
            Letters::Box(_) => self.found(),
        }
    }

    /// Keeps a letter for good.
    pub(super) fn keep(&self, letter: &Letter) -> Result<(), InboxError> {
        match self {
            Letters::Nowhere => Ok(()),
            Letters::File(file) => file.append(letter),
            Letters::Box(letters) => {
                let kept =
                    KeptLetter { id: letter.id.clone(), message: letter.message.to_string() };
                letters.keep(&kept).map_err(InboxError::Store)
            }
        }
    }

    /// Forgets letters that are delivered; a file goes once none waits.
    pub(super) fn forget(&self, delivered: &[String], is_empty: bool) -> Result<(), InboxError> {
        match self {
            Letters::File(file) if is_empty => file.clear(),
            Letters::Box(letters) if !delivered.is_empty() => {
                letters.forget(delivered).map_err(InboxError::Store)
            }
            Letters::Nowhere | Letters::File(_) | Letters::Box(_) => Ok(()),
        }
    }
}

fn letter(kept: &KeptLetter) -> Option<Letter> {
    let message = serde_json::from_str(&kept.message).ok()?;
    Some(Letter { id: kept.id.clone(), message })
}

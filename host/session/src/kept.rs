//! A session that a keeper holds, and sessions on their way from one place to another.

use std::sync::Arc;

use super::contents::Contents;
use super::error::SessionError;
use super::keeper::{Founding, Keeper, LetterBox, SharedLane};
use super::{Session, Store, parse};

impl Session {
    /// The session that a keeper has opened, from all of its bytes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn of_keeper(
        name: &str,
        bytes: &[u8],
        keeper: Box<dyn Keeper>,
    ) -> Result<Session, SessionError> {
        let session = Session::of(parse::contents(name, bytes)?, Store::Kept(keeper));
        session.check_writable()?;
        Ok(session)
    }

    /// The same session in memory: nothing done to it reaches its file.
    #[must_use]
    pub fn in_memory_alone(self) -> Session {
        Session { store: Store::Memory, ..self }
    }

    /// The same session for reading alone: appending is refused.
    #[must_use]
    pub fn read_only(self) -> Session {
        Session { store: Store::ReadOnly, ..self }
    }

    /// The same session where `found` keeps it. What a file lacked is put right: an older version is
    /// migrated, and a last line that was cut short stays behind.
    ///
    /// # Errors
    ///
    /// Those of `found`.
    pub fn kept_by(
        mut self,
        found: impl FnOnce(&Founding<'_>) -> Result<Box<dyn Keeper>, SessionError>,
    ) -> Result<Session, SessionError> {
        let contents = self.contents.complete()?;
        contents.settle();
        let (id, cwd) = (contents.header.id(), contents.header.cwd());
        let keeper = found(&Founding { id, cwd, bytes: &contents.to_bytes() })?;
        Ok(Session { store: Store::Kept(keeper), ..self })
    }

    /// All of it as another place would keep it: see [`kept_by`](Self::kept_by).
    pub fn settled_bytes(&self) -> Vec<u8> {
        let mut contents = Contents::clone(&self.contents);
        contents.settle();
        contents.to_bytes()
    }

    /// The same session beside another one, where that is kept by a keeper; otherwise as it is.
    ///
    /// # Errors
    ///
    /// As [`Keeper::found`].
    pub fn kept_beside(self, other: &Session) -> Result<Session, SessionError> {
        match &other.store {
            Store::Kept(keeper) => self.kept_by(|founding| keeper.found(founding)),
            Store::Memory | Store::ReadOnly | Store::File(_) => Ok(self),
        }
    }

    /// Takes in what other machines have added; whether there was anything. Call [`live`](Self::live)
    /// afterwards.
    ///
    /// # Errors
    ///
    /// As [`Keeper::refresh`]; the session is as it was.
    pub fn refresh(&mut self) -> Result<bool, SessionError> {
        let Store::Kept(keeper) = &mut self.store else { return Ok(false) };
        let contents = self.contents.complete()?;
        let bytes = keeper.refresh()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        parse::more(contents, &bytes);
        Ok(true)
    }

    /// The lane that all machines share; `None` for a session that only this one can have.
    pub fn shared_lane(&self) -> Option<Arc<dyn SharedLane>> {
        self.keeper().map(Keeper::lane)
    }

    /// Where words wait for this session, if not in a file beside it.
    pub fn letters(&self) -> Option<Arc<dyn LetterBox>> {
        self.keeper().map(Keeper::letters)
    }

    fn keeper(&self) -> Option<&dyn Keeper> {
        match &self.store {
            Store::Kept(keeper) => Some(&**keeper),
            Store::Memory | Store::ReadOnly | Store::File(_) => None,
        }
    }
}

//! An answer, and which engines gave it.

use std::time::Duration;

use ctxhost_law::Repair;

/// An answer and who gave it.
#[derive(Clone, Debug)]
pub struct Served<T> {
    /// The answer.
    pub value: T,
    /// The id of the engine that gave it; of several, their ids as one word.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Which engines those are: an id may be that of two.
    pub serving: Option<Serving>,
    /// Why it was not the configured engine.
    pub fallback: Option<String>,
    /// What the law mended between the engines of a chain, in positions of the session.
    pub repairs: Vec<Repair>,
    /// Plans that the law refused on the way.
    pub refused: u64,
    /// Time inside engines.
    pub took: Duration,
}

impl<T> Served<T> {
    /// An answer that came from no engine.
    pub fn by(name: &str, value: T) -> Self {
        Served {
            value,
            engine: name.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            serving: None,
            fallback: None,
            repairs: Vec::new(),
            refused: 0,
            took: Duration::ZERO,
        }
    }

    /// The same with something else made of the answer.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn try_map<U, E>(self, make: impl FnOnce(T) -> Result<U, E>) -> Result<Served<U>, E> {
        let Served { value, engine, version, serving, fallback, repairs, refused, took } = self;
        let value = make(value)?;
        Ok(Served { value, engine, version, serving, fallback, repairs, refused, took })
    }
}

/// Which engines serve: those of one chain, or the bundled one behind it. Told by where they are and not by
/// their ids, since a library may bear the name of a bundled engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Which chain of this process.
    pub(super) chain: u64,
    /// The links of it that serve, a bit for each; 0 for the bundled engine.
    pub(super) links: u8,
}

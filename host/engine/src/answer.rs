//! An answer, and which engines gave it.

use std::time::Duration;

use ctxhost_invariants::Repair;

/// An answer and who gave it.
#[derive(Clone, Debug)]
pub struct EngineAnswer<T> {
    /// The answer.
    pub value: T,
    /// The id of the engine that gave it; of several, their ids as one word.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Which engines those are: an id may be that of two.
    pub serving: Option<EngineSet>,
    /// Why it was not the configured engine.
    pub fallback: Option<String>,
    /// What the law mended between the engines of a chain, in positions of the session.
    pub repairs: Vec<Repair>,
    /// Plans that the law refused on the way.
    pub refused_plans: u64,
    /// Time inside engines.
    pub elapsed: Duration,
}

impl<T> EngineAnswer<T> {
    /// An answer that came from no engine.
    pub fn from_host(name: &str, value: T) -> Self {
        EngineAnswer {
            value,
            engine: name.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            serving: None,
            fallback: None,
            repairs: Vec::new(),
            refused_plans: 0,
            elapsed: Duration::ZERO,
        }
    }

    /// The same with something else made of the answer.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn try_map<U, E>(self, make: impl FnOnce(T) -> Result<U, E>) -> Result<EngineAnswer<U>, E> {
        let EngineAnswer {
            value,
            engine,
            version,
            serving,
            fallback,
            repairs,
            refused_plans: refused,
            elapsed: took,
        } = self;
        let value = make(value)?;
        Ok(EngineAnswer {
            value,
            engine,
            version,
            serving,
            fallback,
            repairs,
            refused_plans: refused,
            elapsed: took,
        })
    }
}

/// Which engines serve: those of one chain, or the bundled one behind it. Told by where they are and not by
/// their ids, since a library may bear the name of a bundled engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSet {
    /// Which chain of this process.
    pub(super) chain: u64,
    /// The links of it that serve, a bit for each; 0 for the bundled engine.
    pub(super) links: u8,
}

//! An answer with the engines that gave it.

use std::time::Duration;

use ctxhost_invariants::Repair;

/// An answer with its provenance.
#[derive(Clone, Debug)]
pub struct EngineAnswer<T> {
    /// The answer.
    pub value: T,
    /// The id of the engine that gave it; several ids joined.
    pub engine: String,
    /// Its version; several, each with its id.
    pub version: String,
    /// The engines; an id alone may be that of two.
    pub serving: Option<EngineSet>,
    /// Why it was not the configured engines.
    pub fallback: Option<String>,
    /// Repairs of plans between the engines of a chain, in positions of the session.
    pub repairs: Vec<Repair>,
    /// Plans that were refused before this answer.
    pub refused_plans: u64,
    /// Time spent in engines.
    pub elapsed: Duration,
}

impl<T> EngineAnswer<T> {
    /// An answer of the host itself.
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

    /// The same provenance with a value made of the old one.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn try_map<U, E>(self, make: impl FnOnce(T) -> Result<U, E>) -> Result<EngineAnswer<U>, E> {
        Ok(EngineAnswer {
            value: make(self.value)?,
            engine: self.engine,
            version: self.version,
            serving: self.serving,
            fallback: self.fallback,
            repairs: self.repairs,
            refused_plans: self.refused_plans,
            elapsed: self.elapsed,
        })
    }
}

/// A set of engines: links of one chain, or the bundled engine behind it. Not a set of ids, since a
/// library may have the id of a bundled engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSet {
    /// The number of the chain in this process.
    pub(super) chain: u64,
    /// The links, a bit for each; 0 for the bundled engine.
    pub(super) links: u8,
}

//! An answer of a slot, and which engine of which slot gave it.

use std::time::Duration;

use super::Slot;
use crate::live::LiveEngine;
use crate::quarantine::QuarantineRecord;

/// An answer and who gave it.
#[derive(Clone, Debug)]
pub struct Served<T> {
    /// The answer.
    pub value: T,
    /// The id of the engine that gave it.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Which engine of which slot that is: an id may be that of two.
    pub serving: Option<Serving>,
    /// Why it was not the configured engine.
    pub fallback: Option<String>,
    /// Time inside engines.
    pub took: Duration,
}

impl<T> Served<T> {
    /// An answer that came from no engine.
    pub fn by(name: &str, value: T) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (engine, took) = (name.into(), Duration::ZERO);
        Served { value, engine, version, serving: None, fallback: None, took }
    }

    /// The same with something else made of the answer.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Served<U> {
        let Served { value, engine, version, serving, fallback, took } = self;
        Served { value: make(value), engine, version, serving, fallback, took }
    }
}

/// One engine in one slot, or a row of them. Told by where it stands and not by its id, since a library may bear the name of
/// a bundled engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    pub(super) slot: u64,
    pub(super) is_bundled: bool,
    /// Where several engines stand in a row beside it, those that serve, a bit for each; 0 for its own.
    pub(super) stages: u8,
}

impl Serving {
    /// The same place, served by engines in a row beside it.
    pub fn by(self, stages: u8) -> Serving {
        Serving { is_bundled: false, stages, ..self }
    }

    /// The engines in a row that serve, a bit for each; 0 where a slot serves by itself.
    pub fn stages(self) -> u8 {
        self.stages
    }

    /// Whether both stand in one place, whoever serves there.
    pub fn is_beside(self, other: Serving) -> bool {
        self.slot == other.slot
    }
}

impl Slot {
    /// An answer, signed.
    pub(super) fn served<T>(&self, engine: &LiveEngine, value: T, took: Duration) -> Served<T> {
        let info = engine.info();
        Served {
            value,
            engine: info.id.clone(),
            version: info.version.clone(),
            serving: Some(self.mark(engine)),
            fallback: self.why_not_configured(engine),
            took,
        }
    }

    /// Why it is not the configured engine that answers.
    fn why_not_configured(&self, engine: &LiveEngine) -> Option<String> {
        let is_stand_in =
            self.is_bundled(engine) && (self.chosen.is_some() || self.quarantined().is_some());
        let failed = self.quarantined().filter(|_| is_stand_in);
        let let_go = || {
            let is_let_go = is_stand_in && self.is_retired();
            is_let_go
                .then(|| format!("{} was let go: another engine is in the slot", self.configured))
        };
        let told =
            |it: QuarantineRecord| format!("{} failed in {}: {}", it.id, it.operation, it.reason);
        failed.map(told).or_else(let_go)
    }
}

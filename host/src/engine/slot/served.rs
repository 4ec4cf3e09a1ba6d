//! An answer of a slot, and which engine of which slot gave it.

use std::sync::PoisonError;
use std::time::Duration;

use super::Slot;
use crate::engine::live::LiveEngine;
use crate::engine::quarantine::QuarantineRecord;

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
}

/// One engine in one slot. Told by where it stands and not by its id, since a library may bear the name of
/// a bundled engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    pub(super) slot: u64,
    pub(super) is_bundled: bool,
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
        let instead_of = self.instead_of.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_stand_in =
            self.is_bundled(engine) && (self.chosen.is_some() || self.quarantined().is_some());
        let failed = self.quarantined().filter(|_| is_stand_in).or(instead_of);
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

//! The seat of the canary beside the slot's own engine: who sits there, for whom, and how that goes.

use std::sync::Arc;

use super::{Followed, Slots, SwapError, Wanted};
use crate::agent::Shared;
use crate::canary::figures::TurnFigures;
use crate::canary::{Canary, CanaryError, CanaryHome, Family};
use crate::event::What;
use ctxhost_config::Config;
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::FailureCounts;

/// A canary and its engine.
#[derive(Debug)]
pub(super) struct Seat {
    canary: Arc<Canary>,
    slot: Arc<ActiveEngine>,
    home: CanaryHome,
}

impl Seat {
    /// The canary's engine and the one that stands in.
    pub(super) fn slot(&self) -> Arc<ActiveEngine> {
        self.slot.clone()
    }
}

/// A canary that is on: it compares the turns that it serves with those that it does not.
#[derive(Clone, Debug)]
pub(crate) struct CanaryWatch {
    canary: Arc<Canary>,
    home: CanaryHome,
    /// Whether it is the canary that serves the turn.
    is_canary: bool,
}

impl Slots {
    /// The engine for a turn of a session, and the canary that wants to know how it goes.
    pub(crate) fn engine_for(&self, family: &Family) -> (Arc<ActiveEngine>, Option<CanaryWatch>) {
        let slot = self.current();
        let seats = self.read();
        let Some(seat) = &seats.canary else { return (slot, None) };
        let is_canary = seat.canary.takes(family);
        let watch = CanaryWatch { canary: seat.canary.clone(), home: seat.home.clone(), is_canary };
        let slot = if is_canary { seat.slot.clone() } else { slot };
        (slot, Some(watch))
    }

    /// Takes in what a turn measured; rolls the canary back where it broke a guard.
    pub(crate) fn measured(&self, watch: &CanaryWatch, slot: &ActiveEngine, mut turn: TurnFigures) {
        let FailureCounts { illegal, failures } = slot.take_failures();
        turn.run.clone_from(&watch.canary.run);
        turn.illegal += illegal;
        turn.failures += failures;
        if turn.says_nothing() {
            return;
        }
        let at_ms = turn.at_ms;
        let CanaryWatch { canary, home, is_canary } = watch;
        let engine = if *is_canary { canary.engine.clone() } else { slot.configured() };
        let engine = engine.as_str();
        if let Err(error) = home.note(engine, &turn) {
            tracing::warn!(%error, engine, "what a turn measured is lost");
        }
        if !is_canary {
            return;
        }
        let figures = home.figures(engine, &canary.run);
        if let Some(why) = canary.broken(&figures, self.inner.settings.guard_requests) {
            self.roll_back(canary, home, &why, at_ms);
        }
    }

    /// Ends a canary everywhere, loudly.
    fn roll_back(&self, canary: &Canary, home: &CanaryHome, why: &str, at_ms: i64) {
        let ended = home.change(|state| Ok(state.end(&canary.run, false, why, at_ms)));
        if let Err(error) = ended {
            tracing::error!(%error, engine = canary.engine, "other hosts do not hear of this rollback");
        }
        self.unseat(&canary.run, why);
    }

    /// Nobody sits beside the slot's own engine any more, where it is still this one.
    fn unseat(&self, run: &str, why: &str) {
        let seat = self.write().canary.take_if(|seat| seat.canary.run == run);
        let Some(seat) = seat else { return };
        let engine = seat.canary.engine.clone();
        tracing::warn!(engine, why, "the canary has ended");
        self.tell(What::CanaryEnded { engine, why: why.to_owned() });
        self.drain(seat.slot);
    }

    fn seated(&self) -> Option<Arc<Canary>> {
        self.read().canary.as_ref().map(|seat| seat.canary.clone())
    }
}

impl Shared {
    /// Seats the canary that the state of the slot tells of, or none.
    pub(super) async fn follow_canary(&self, followed: &Followed) -> Result<(), SwapError> {
        let state = followed.home.read()?;
        let seated = self.slots.seated();
        if seated.as_ref().map(|it| &it.run) == state.canary.as_ref().map(|it| &it.run) {
            return Ok(());
        }
        if let Some(seated) = seated {
            let ended = state.ended.filter(|ended| ended.run == seated.run);
            let why = ended.map_or_else(|| "another canary is on".to_owned(), |ended| ended.why);
            self.slots.unseat(&seated.run, &why);
        }
        let Some(canary) = state.canary else { return Ok(()) };
        match self.open_canary(&canary, followed).await {
            Ok(slot) => {
                let (engine, share) = (canary.engine.clone(), canary.share.to_string());
                let (slot, home) = (Arc::new(slot), followed.home.clone());
                // What the slot's own engine did before is no part of the comparison.
                let _ = self.slots.current().take_failures();
                self.slots.write().canary = Some(Seat { canary: Arc::new(canary), slot, home });
                self.slots.tell(What::CanaryBegan { engine, share });
                Ok(())
            }
            Err(error) => {
                // An engine that does not even open has broken every guard.
                let why = format!("it does not open: {error}");
                let at_ms = self.clock().now_ms();
                let ended =
                    followed.home.change(|state| Ok(state.end(&canary.run, false, &why, at_ms)));
                ended.map_err(CanaryError::into).and(Err(error))
            }
        }
    }

    async fn open_canary(
        &self,
        canary: &Canary,
        followed: &Followed,
    ) -> Result<ActiveEngine, SwapError> {
        let config = Config::load(followed.path())?;
        let wanted = Wanted::of(&config, self.rules.as_ref())?;
        let engines = super::engines_of(&config, &canary.engine, self.rules.as_ref())?;
        self.open_successor(engines, wanted.options(&self.engine_options)).await
    }
}

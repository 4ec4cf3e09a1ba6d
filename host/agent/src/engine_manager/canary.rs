//! The seat of the canary beside the slot's own engine: who sits there, for whom, and how that goes.

use std::sync::Arc;

use super::{ConfigWatch, EngineManager, EngineSelection, ReloadError};
use crate::canary::metrics::TurnMetrics;
use crate::canary::{Canary, CanaryError, CanaryFolder, SessionLineage};
use crate::event::EventKind;
use crate::runtime::RuntimeState;
use ctxhost_config::Config;
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::FailureCounts;

/// A canary and its engine.
#[derive(Debug)]
pub(super) struct ActiveCanary {
    canary: Arc<Canary>,
    engine: Arc<ActiveEngine>,
    folder: CanaryFolder,
}

impl ActiveCanary {
    /// The canary's engine and the one that stands in.
    pub(super) fn engine(&self) -> Arc<ActiveEngine> {
        self.engine.clone()
    }
}

/// A canary that is on: it compares the turns that it serves with those that it does not.
#[derive(Clone, Debug)]
pub(crate) struct CanaryRecorder {
    canary: Arc<Canary>,
    folder: CanaryFolder,
    /// Whether it is the canary that serves the turn.
    is_canary: bool,
}

impl EngineManager {
    /// The engine for a turn of a session, and the canary that wants to know how it goes.
    pub(crate) fn engine_for(
        &self,
        family: &SessionLineage,
    ) -> (Arc<ActiveEngine>, Option<CanaryRecorder>) {
        let slot = self.current();
        let seats = self.read();
        let Some(seat) = &seats.canary else { return (slot, None) };
        let is_canary = seat.canary.includes(family);
        let watch =
            CanaryRecorder { canary: seat.canary.clone(), folder: seat.folder.clone(), is_canary };
        let slot = if is_canary { seat.engine.clone() } else { slot };
        (slot, Some(watch))
    }

    /// Takes in what a turn measured; rolls the canary back where it broke a guard.
    pub(crate) fn record_turn(
        &self,
        watch: &CanaryRecorder,
        slot: &ActiveEngine,
        mut turn: TurnMetrics,
    ) {
        let FailureCounts { violations: illegal, failures } = slot.take_failures();
        turn.run.clone_from(&watch.canary.run);
        turn.illegal += illegal;
        turn.failures += failures;
        if turn.is_empty() {
            return;
        }
        let at_ms = turn.at_ms;
        let CanaryRecorder { canary, folder: home, is_canary } = watch;
        let engine = if *is_canary { canary.engine.clone() } else { slot.configured_id() };
        let engine = engine.as_str();
        if let Err(error) = home.append_metrics(engine, &turn) {
            tracing::warn!(%error, engine, "what a turn measured is lost");
        }
        if !is_canary {
            return;
        }
        let figures = home.read_metrics(engine, &canary.run);
        if let Some(why) = canary.broken_guard(&figures, self.state.settings.guard_requests) {
            self.roll_back(canary, home, &why, at_ms);
        }
    }

    /// Ends a canary everywhere, loudly.
    fn roll_back(&self, canary: &Canary, home: &CanaryFolder, why: &str, at_ms: i64) {
        let ended = home.update(|state| Ok(state.end(&canary.run, false, why, at_ms)));
        if let Err(error) = ended {
            tracing::error!(%error, engine = canary.engine, "other hosts do not hear of this rollback");
        }
        self.remove_canary(&canary.run, why);
    }

    /// Nobody sits beside the slot's own engine any more, where it is still this one.
    fn remove_canary(&self, run: &str, why: &str) {
        let seat = self.write().canary.take_if(|seat| seat.canary.run == run);
        let Some(seat) = seat else { return };
        let engine = seat.canary.engine.clone();
        tracing::warn!(engine, why, "the canary has ended");
        self.emit(EventKind::CanaryEnded { engine, why: why.to_owned() });
        self.drain(seat.engine);
    }

    fn active_canary(&self) -> Option<Arc<Canary>> {
        self.read().canary.as_ref().map(|seat| seat.canary.clone())
    }
}

impl RuntimeState {
    /// Seats the canary that the state of the slot tells of, or none.
    pub(super) async fn reload_canary(&self, followed: &ConfigWatch) -> Result<(), ReloadError> {
        let state = followed.canary_folder.read()?;
        let seated = self.engines.active_canary();
        if seated.as_ref().map(|it| &it.run) == state.canary.as_ref().map(|it| &it.run) {
            return Ok(());
        }
        if let Some(seated) = seated {
            let ended = state.ended.filter(|ended| ended.run == seated.run);
            let why = ended.map_or_else(|| "another canary is on".to_owned(), |ended| ended.why);
            self.engines.remove_canary(&seated.run, &why);
        }
        let Some(canary) = state.canary else { return Ok(()) };
        match self.open_canary(&canary, followed).await {
            Ok(slot) => {
                let (engine, share) = (canary.engine.clone(), canary.share.to_string());
                let (slot, home) = (Arc::new(slot), followed.canary_folder.clone());
                // What the slot's own engine did before is no part of the comparison.
                let _ = self.engines.current().take_failures();
                self.engines.write().canary =
                    Some(ActiveCanary { canary: Arc::new(canary), engine: slot, folder: home });
                self.engines.emit(EventKind::CanaryStarted { engine, share });
                Ok(())
            }
            Err(error) => {
                // An engine that does not even open has broken every guard.
                let why = format!("it does not open: {error}");
                let at_ms = self.clock().now_ms();
                let ended = followed
                    .canary_folder
                    .update(|state| Ok(state.end(&canary.run, false, &why, at_ms)));
                ended.map_err(CanaryError::into).and(Err(error))
            }
        }
    }

    async fn open_canary(
        &self,
        canary: &Canary,
        followed: &ConfigWatch,
    ) -> Result<ActiveEngine, ReloadError> {
        let config = Config::load(followed.path())?;
        let wanted = EngineSelection::from_config(&config, self.workspace_rules.as_ref())?;
        let engines = super::engine_chain(&config, &canary.engine, self.workspace_rules.as_ref())?;
        self.open_successor(engines, wanted.options(&self.engine_options)).await
    }
}

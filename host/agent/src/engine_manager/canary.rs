//! The canary of an engine manager: which sessions it serves, and the metrics that may roll it back.

use std::sync::Arc;

use super::EngineManager;
use crate::canary::metrics::TurnMetrics;
use crate::canary::{Canary, CanaryFolder, SessionLineage};
use crate::event::EventKind;
use ctxhost_engine::{ActiveEngine, FailureCounts};

/// A canary and its open engine.
#[derive(Debug)]
pub(super) struct ActiveCanary {
    canary: Arc<Canary>,
    engine: Arc<ActiveEngine>,
    folder: CanaryFolder,
}

impl ActiveCanary {
    pub(super) fn engine(&self) -> Arc<ActiveEngine> {
        self.engine.clone()
    }
}

/// Records the metrics of one turn while a canary is active. Turns of the current engine are recorded for comparison.
#[derive(Clone, Debug)]
pub(crate) struct CanaryRecorder {
    canary: Arc<Canary>,
    folder: CanaryFolder,
    /// Whether the canary serves the turn.
    is_canary: bool,
}

impl EngineManager {
    /// The engine for a session's turn, and the recorder of its metrics if a canary is active.
    pub(crate) fn engine_for(
        &self,
        lineage: &SessionLineage,
    ) -> (Arc<ActiveEngine>, Option<CanaryRecorder>) {
        let current = self.current();
        let slots = self.state.slots.read();
        let Some(active) = &slots.canary else { return (current, None) };
        let is_canary = active.canary.includes(lineage);
        // The recorder holds the run, which may end before the turn does.
        let (canary, folder) = (active.canary.clone(), active.folder.clone());
        let engine = if is_canary { active.engine() } else { current };
        (engine, Some(CanaryRecorder { canary, folder, is_canary }))
    }

    /// Appends the metrics of a turn; rolls the canary back if it broke a guard.
    pub(crate) fn record_turn(
        &self,
        recorder: &CanaryRecorder,
        engine: &ActiveEngine,
        mut turn: TurnMetrics,
    ) {
        let FailureCounts { violations, failures } = engine.take_failures();
        turn.run.clone_from(&recorder.canary.run);
        turn.violations += violations;
        turn.failures += failures;
        if turn.is_empty() {
            return;
        }
        let at_ms = turn.at_ms;
        let CanaryRecorder { canary, folder, is_canary } = recorder;
        let engine = if *is_canary { canary.engine.clone() } else { engine.configured_id() };
        if let Err(error) = folder.append_metrics(&engine, &turn) {
            tracing::warn!(%error, engine, "the metrics of a turn were not recorded");
        }
        // Only the canary has guards; the current engine is measured for comparison.
        if !is_canary {
            return;
        }
        let totals = folder.read_metrics(&engine, &canary.run);
        if let Some(why) = canary.broken_guard(&totals, self.state.settings.guard_requests) {
            let ended = folder.update(|state| Ok(state.end(&canary.run, false, &why, at_ms)));
            if let Err(error) = ended {
                // Other hosts keep serving the canary until the state file is written.
                tracing::error!(%error, engine, "cannot record the rollback of a canary for other hosts");
            }
            self.remove_canary(&canary.run, &why);
        }
    }

    /// Activates a canary in this process.
    pub(crate) fn set_canary(&self, canary: Canary, engine: ActiveEngine, folder: CanaryFolder) {
        let (id, share) = (canary.engine.clone(), canary.share.to_string());
        // Resets the counts: earlier failures of the current engine do not belong to the comparison.
        let _ = self.current().take_failures();
        let (canary, engine) = (Arc::new(canary), Arc::new(engine));
        self.state.slots.write().canary = Some(ActiveCanary { canary, engine, folder });
        self.emit(EventKind::CanaryStarted { engine: id, share });
    }

    /// Deactivates the canary in this process, if it is still this run.
    pub(crate) fn remove_canary(&self, run: &str, why: &str) {
        let active = self.state.slots.write().canary.take_if(|active| active.canary.run == run);
        let Some(active) = active else { return };
        let engine = active.canary.engine.clone();
        tracing::warn!(engine, why, "canary ended");
        self.emit(EventKind::CanaryEnded { engine, why: why.to_owned() });
        self.drain(active.engine);
    }

    pub(crate) fn active_canary(&self) -> Option<Arc<Canary>> {
        self.state.slots.read().canary.as_ref().map(|active| active.canary.clone())
    }
}

//! The engine that a slot really uses, and why it differs from the configured one.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{EngineLine, engine_lines};
use crate::engine_open;
use crate::error::CliError;
use crate::output::Output;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_config::Config;
use ctxhost_engine::{LEGACY, OnEngineError, join_ids, split_ids, state_folder};

/// Shown if no engine serves.
const NO_ENGINE: &str = "none";

/// The engine that the slot of a config uses.
#[derive(Serialize)]
pub(crate) struct EffectiveEngine {
    configured: String,
    /// `None` if no engine serves: plugins.on_engine_error is `fail`, or the slot names an unknown
    /// engine.
    active: Option<String>,
    /// Why it differs from the configured engine.
    reason: Option<String>,
    /// `reading` or `loading`.
    found_by: &'static str,
}

impl EffectiveEngine {
    /// The engine of a new process, found by reading only.
    pub(crate) fn from_config(config: &Config) -> EffectiveEngine {
        EffectiveEngine::resolve(config, &read_engine_lines(config), false)
    }

    /// The same for engines that were read already; `by_loading` loads those of the slot.
    pub(super) fn resolve(
        config: &Config,
        engines: &[EngineLine],
        by_loading: bool,
    ) -> EffectiveEngine {
        let slot = config.slot();
        let row = split_ids(&slot.engine);
        let why_not = |id: &str| {
            if by_loading {
                engine_open::open_engine(config, id).err().map(CliError::into_message)
            } else {
                unavailable_reason(id, engines)
            }
        };
        let (mut serving, mut reasons) = (Vec::new(), Vec::new());
        for id in &row {
            match why_not(id) {
                None => serving.push(*id),
                // In a chain the reader needs to know which engine is meant.
                Some(why) if row.len() > 1 => reasons.push(format!("{id}: {why}")),
                Some(why) => reasons.push(why),
            }
        }
        // Unknown differs from unavailable: no host starts with an unknown name.
        let is_known = |id: &&str| engines.iter().any(|engine| engine.id == **id);
        let active = match config.plugins.on_engine_error {
            // An unknown name is a config error, which has no fallback.
            _ if !row.iter().all(is_known) => None,
            OnEngineError::Fail if !reasons.is_empty() => None,
            // A chain continues without its unavailable engines.
            _ if serving.is_empty() => Some(LEGACY.to_owned()),
            _ => Some(join_ids(serving)),
        };
        EffectiveEngine {
            active,
            configured: slot.configured,
            // The reason in the config comes first: it holds whatever state the engines are in.
            reason: slot.reason.or_else(|| (!reasons.is_empty()).then(|| reasons.join("; "))),
            found_by: if by_loading { "loading" } else { "reading" },
        }
    }

    /// The engine; `none` without one.
    pub(crate) fn active(&self) -> &str {
        self.active.as_deref().unwrap_or(NO_ENGINE)
    }

    /// Whether no engine serves.
    pub(crate) fn is_none(&self) -> bool {
        self.active.is_none()
    }

    /// Prints a note if the engine differs from the configured one.
    pub(crate) fn note_reason(&self, output: &mut Output) {
        if let Some(reason) = &self.reason {
            output.note(&format!("the slot names {:?}, but {reason}", self.configured));
        }
    }

    /// Whether an engine is active.
    pub(super) fn serves(&self, id: &str) -> bool {
        self.active.as_deref().is_some_and(|serving| split_ids(serving).contains(&id))
    }

    pub(super) fn to_line(&self) -> String {
        let how = match self.found_by {
            "reading" => "read only; --check loads it",
            _ => "loaded",
        };
        let (configured, active) = (&self.configured, self.active());
        format!("slot: configured {configured}, active {active} ({how})\n")
    }
}

/// Why an engine, or one of a chain, is unavailable, as far as reading shows; `None` if all are
/// available.
pub(crate) fn chain_unavailable_reason(config: &Config, name: &str) -> Option<String> {
    let engines = read_engine_lines(config);
    let reasons: Vec<String> =
        split_ids(name).into_iter().filter_map(|id| unavailable_reason(id, &engines)).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Why an engine is unavailable, as far as reading shows.
pub(super) fn unavailable_reason(id: &str, engines: &[EngineLine]) -> Option<String> {
    let Some(engine) = engines.iter().find(|engine| engine.id == id) else {
        return Some(format!("engine {id:?} does not exist, so no host starts"));
    };
    let held = engine.failures.as_ref().filter(|_| engine.quarantined);
    held.map(|record| format!("it is in quarantine: {}", record.summary()))
        .or_else(|| engine.problem.clone())
}

/// One line for each engine of a chain whose quarantine has ended by time.
pub(crate) fn ended_quarantines(config: &Config, name: &str) -> Vec<String> {
    let engines = read_engine_lines(config);
    let of_chain = |id: &str| engines.iter().find(|engine| engine.id == id);
    // Two chains that share an engine may be asked about together.
    let ids: BTreeSet<&str> = split_ids(name).into_iter().collect();
    let lines = ids.into_iter().filter_map(of_chain);
    lines.filter_map(EngineLine::ended_quarantine).collect()
}

fn read_engine_lines(config: &Config) -> Vec<EngineLine> {
    let book = failure_log(config, &state_folder());
    engine_lines(config, &book, &book.records().unwrap_or_default())
}

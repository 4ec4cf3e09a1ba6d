//! Who serves where an engine is configured, and why another one does.

use serde::Serialize;

use super::{EngineLine, engine_lines};
use crate::engine_open;
use crate::error::CliError;
use crate::output::Output;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_config::Config;
use ctxhost_engine::{LEGACY, OnEngineError, join_ids, split_ids, state_folder};

/// What stands where no engine serves.
const NO_ENGINE: &str = "none";

/// Who serves in the slot of a config.
#[derive(Serialize)]
pub(crate) struct EffectiveEngine {
    configured: String,
    /// `None` where no engine serves: the operator wants failures, or the slot names one that is not there.
    effective: Option<String>,
    /// Why another one than the configured.
    reason: Option<String>,
    /// `reading` or `loading`.
    found_by: &'static str,
}

impl EffectiveEngine {
    /// Who serves a new process, by reading.
    pub(crate) fn from_config(config: &Config) -> EffectiveEngine {
        EffectiveEngine::resolve(config, &read_engine_lines(config), false)
    }

    /// The same among engines that were read, or by loading those of the slot.
    pub(super) fn resolve(
        config: &Config,
        engines: &[EngineLine],
        by_loading: bool,
    ) -> EffectiveEngine {
        let slot = config.slot();
        let row = split_ids(&slot.engine);
        let why_not = |id: &str| match by_loading {
            true => engine_open::open_engine(config, id).err().map(CliError::into_message),
            false => unavailable_reason(id, engines),
        };
        let (mut serving, mut reasons) = (Vec::new(), Vec::new());
        for id in &row {
            match why_not(id) {
                None => serving.push(*id),
                Some(why) if row.len() > 1 => reasons.push(format!("{id}: {why}")),
                Some(why) => reasons.push(why),
            }
        }
        let is_known = |id: &&str| engines.iter().any(|engine| engine.id == **id);
        let effective = match config.plugins.on_engine_error {
            // A name that leads nowhere is a mistake: nobody stands in for it.
            _ if !row.iter().all(is_known) => None,
            OnEngineError::Fail if !reasons.is_empty() => None,
            // Where a stage of several is missing, the others go on without it.
            _ if serving.is_empty() => Some(LEGACY.to_owned()),
            _ => Some(join_ids(serving)),
        };
        EffectiveEngine {
            effective,
            configured: slot.configured,
            reason: slot.reason.or_else(|| (!reasons.is_empty()).then(|| reasons.join("; "))),
            found_by: if by_loading { "loading" } else { "reading" },
        }
    }

    /// Who serves; `none` where nobody does.
    pub(crate) fn effective(&self) -> &str {
        self.effective.as_deref().unwrap_or(NO_ENGINE)
    }

    /// Whether nobody does.
    pub(crate) fn is_none(&self) -> bool {
        self.effective.is_none()
    }

    /// Says beside the output why another one serves than the config names, where that is so.
    pub(crate) fn note_reason(&self, output: &mut Output) {
        if let Some(reason) = &self.reason {
            output.note(&format!("the slot says {:?}, but {reason}", self.configured));
        }
    }

    /// Whether an engine serves.
    pub(super) fn serves(&self, id: &str) -> bool {
        self.effective.as_deref().is_some_and(|serving| split_ids(serving).contains(&id))
    }

    pub(super) fn to_line(&self) -> String {
        let how = match self.found_by {
            "reading" => "by reading; --check loads it",
            _ => "by loading it",
        };
        let (configured, effective) = (&self.configured, self.effective());
        format!("slot: configured {configured}, effective {effective} ({how})\n")
    }
}

/// Why an engine, or one of a row, does not serve, as far as reading tells; `None` where all do.
pub(crate) fn chain_unavailable_reason(config: &Config, name: &str) -> Option<String> {
    let engines = read_engine_lines(config);
    let reasons: Vec<String> =
        split_ids(name).into_iter().filter_map(|id| unavailable_reason(id, &engines)).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Why an engine does not serve, as far as reading tells.
pub(super) fn unavailable_reason(id: &str, engines: &[EngineLine]) -> Option<String> {
    let Some(engine) = engines.iter().find(|engine| engine.id == id) else {
        return Some(format!("there is no engine {id:?}, so no host starts"));
    };
    let held = engine.failures.as_ref().filter(|_| engine.quarantined);
    held.map(|record| format!("it is in quarantine: {}", record.summary()))
        .or_else(|| engine.problem.clone())
}

fn read_engine_lines(config: &Config) -> Vec<EngineLine> {
    let book = failure_log(config, &state_folder());
    engine_lines(config, &book, &book.records().unwrap_or_default())
}

//! The engines in the shadow, as the config names them.

use std::sync::Arc;

use super::{BuildError, RuntimeBuilder};
use crate::engine_options::EngineOptions;
use crate::reload::engine_chain;
use crate::shadow::log::{self, ShadowLog};
use crate::shadow::{ShadowEngines, ShadowServices};
use crate::workspace::WorkspaceRules;
use ctxhost_config::ShadowSettings;
use ctxhost_context::SessionDirectory;
use ctxhost_engine::state_folder;

impl RuntimeBuilder {
    /// Who runs beside the slot's own engine.
    pub(super) fn shadows(
        &self,
        options: &EngineOptions,
        known: &Arc<SessionDirectory>,
        rules: Option<&WorkspaceRules>,
    ) -> Result<Option<ShadowEngines>, BuildError> {
        let names = self.config.shadows();
        if names.is_empty() {
            return Ok(None);
        }
        let rows: Result<Vec<_>, _> =
            names.iter().map(|name| engine_chain(&self.config, name, rules)).collect();
        let ShadowSettings { complete: may_complete, log_bytes } = self.config.shadow;
        let serving = options.host_services(&self.clock, known.clone());
        let surroundings = ShadowServices { active: serving, may_complete };
        let path = || state_folder().join(log::FILE_NAME);
        let path = self.shadow_log.clone().unwrap_or_else(path);
        let ledger = ShadowLog::new(path, log_bytes).for_config(&self.config);
        let law = &self.config.invariants;
        let shadows = ShadowEngines::open(&rows?, &options.legacy, &surroundings, law, ledger);
        Ok(Some(shadows.map_err(|source| BuildError::Shadows { source })?))
    }
}

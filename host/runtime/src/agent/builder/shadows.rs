//! The engines in the shadow, as the config names them.

use std::sync::Arc;

use super::{BuildError, RuntimeBuilder};
use crate::engine_options::EngineOptions;
use crate::shadow::ledger::{self, Ledger};
use crate::shadow::{Shadows, Surroundings};
use crate::swap::engines_of;
use crate::workspace::WorkspaceRules;
use ctxhost_config::ShadowSettings;
use ctxhost_context::KnownSessions;
use ctxhost_engine::state_folder;

impl RuntimeBuilder {
    /// Who runs beside the slot's own engine.
    pub(super) fn shadows(
        &self,
        options: &EngineOptions,
        known: &Arc<KnownSessions>,
        rules: Option<&WorkspaceRules>,
    ) -> Result<Option<Shadows>, BuildError> {
        let names = self.config.shadows();
        if names.is_empty() {
            return Ok(None);
        }
        let rows: Result<Vec<_>, _> =
            names.iter().map(|name| engines_of(&self.config, name, rules)).collect();
        let ShadowSettings { complete: may_complete, log_bytes } = self.config.shadow;
        let serving = options.environment(&self.clock, known.clone());
        let surroundings = Surroundings { serving, may_complete };
        let path = || state_folder().join(ledger::FILE_NAME);
        let path = self.shadow_ledger.clone().unwrap_or_else(path);
        let ledger = Ledger::new(path, log_bytes).of_config(&self.config);
        let law = &self.config.law;
        let shadows = Shadows::open(&rows?, &options.legacy, &surroundings, law, ledger);
        Ok(Some(shadows.map_err(|source| BuildError::Shadows { source })?))
    }
}

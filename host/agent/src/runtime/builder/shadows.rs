//! Opens the shadow engines that the config names.

use std::sync::Arc;

use super::{BuildError, RuntimeBuilder};
use crate::engine_options::EngineOptions;
use crate::reload::engine_selection::engine_chain;
use crate::shadow::log::{self, ShadowLog};
use crate::shadow::{ShadowEngines, ShadowServices};
use crate::workspace::WorkspaceRules;
use ctxhost_config::ShadowSettings;
use ctxhost_context::SessionDirectory;
use ctxhost_engine::state_folder;

impl RuntimeBuilder {
    pub(super) fn shadows(
        &self,
        options: &EngineOptions,
        sessions: &Arc<SessionDirectory>,
        rules: Option<&WorkspaceRules>,
    ) -> Result<Option<ShadowEngines>, BuildError> {
        let names = self.config.shadows();
        if names.is_empty() {
            return Ok(None);
        }
        let chains: Result<Vec<_>, _> =
            names.iter().map(|name| engine_chain(&self.config, name, rules)).collect();
        let ShadowSettings { complete: may_complete, log_bytes } = self.config.shadow;
        let active = options.host_services(&self.clock, sessions.clone());
        let services = ShadowServices { active, may_complete };
        let default_path = || state_folder().join(log::FILE_NAME);
        let path = self.shadow_log.clone().unwrap_or_else(default_path);
        let log = ShadowLog::new(path, log_bytes).for_config(&self.config);
        let invariants = &self.config.invariants;
        let shadows = ShadowEngines::open(&chains?, &options.legacy, &services, invariants, log);
        Ok(Some(shadows.map_err(|source| BuildError::Shadows { source })?))
    }
}

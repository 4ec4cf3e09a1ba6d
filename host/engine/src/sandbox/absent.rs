//! Systems without sandboxes: an engine with `isolation = "process"` does not open.

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineCall, EngineReply};
use ctxhost_engine_api::*;

use super::error::SandboxError;
use super::info::SandboxInfo;
use crate::calls::{CallGuard, CallTable};
use crate::environment::EngineEnvironment;
use crate::error::EngineOpenError;
use crate::library::EngineFile;
use crate::spec::EngineSpec;

/// Does nothing: no program is started as a sandbox.
pub fn sandbox_main() {}

/// An engine in a sandbox, of which there is none.
pub(crate) enum SandboxSupervisor {}

impl SandboxSupervisor {
    /// Refuses the engine.
    pub(crate) fn open(
        spec: &EngineSpec,
        _file: EngineFile,
        _environment: &EngineEnvironment,
        _calls: &Arc<CallTable>,
    ) -> Result<(EngineInfo, SandboxSupervisor), EngineOpenError> {
        let source = SandboxError::Absent { system: std::env::consts::OS };
        Err(EngineOpenError::Sandbox { id: spec.id.clone(), source })
    }

    #[allow(clippy::unused_async)]
    pub(crate) async fn call(
        &self,
        _guard: &CallGuard,
        _view: Transcript,
        _call: EngineCall,
    ) -> Result<EngineReply> {
        match *self {}
    }

    pub(crate) fn info(&self) -> SandboxInfo {
        match *self {}
    }

    pub(crate) fn can_restart(&self) -> bool {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }
}

//! Systems without sandboxes: an engine with `isolation = "process"` does not open.

use std::sync::Arc;

use ctxhost_engine_api::border::EngineCall;
use ctxhost_engine_api::*;

use super::error::SandboxError;
use crate::backend::{EngineBackend, ReplyFuture};
use crate::calls::{CallGuard, CallTable};
use crate::environment::EngineEnvironment;
use crate::error::EngineOpenError;
use crate::library::EngineFile;
use crate::spec::EngineSpec;

/// Does nothing: no program is started as a sandbox.
pub fn sandbox_main() {}

/// Does nothing: no descriptor is inherited unless a program passes it on.
///
/// # Errors
///
/// None.
pub fn detach_from_host(_host: u32) -> Result<(), String> {
    Ok(())
}

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
}

impl EngineBackend for SandboxSupervisor {
    fn call<'a>(
        &'a self,
        _guard: &'a CallGuard,
        _view: Transcript,
        _call: EngineCall,
    ) -> ReplyFuture<'a> {
        match *self {}
    }

    fn revoke(&self) {
        match *self {}
    }
}

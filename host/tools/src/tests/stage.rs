//! A temporary folder for each test, and tool calls as the runtime makes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::{CallContext, ToolOutput, ToolRegistry, ToolSettings};

pub(super) struct Stage {
    pub(super) registry: ToolRegistry,
    pub(super) folder: TempDir,
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage::with(ToolSettings::default())
    }

    pub(super) fn with(settings: ToolSettings) -> Stage {
        Stage { registry: ToolRegistry::with_builtins(settings), folder: TempDir::new().unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(super) fn text_of(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value) -> ToolOutput {
        self.registry.call(tool, &arguments, &context(self.folder.path())).await
    }

    /// The text of a call that must succeed.
    pub(super) async fn call_ok(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(!output.is_error, "{output:?}");
        output.joined_text()
    }

    /// The text of a call that must fail.
    pub(super) async fn call_error(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(output.is_error, "{output:?}");
        output.joined_text()
    }
}

pub(super) fn context(cwd: &Path) -> CallContext {
    CallContext {
        cwd: cwd.to_owned(),
        session_id: "session".into(),
        call_id: "call".into(),
        timeout: Duration::from_secs(20),
    }
}

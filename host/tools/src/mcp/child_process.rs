//! Runs an MCP server as a child process with a clean environment, in its own process group.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, Command};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::pipes::PipeTransport;
use super::settings::SecretValues;
use crate::error::ToolError;
use crate::process::ProcessGroup;

/// The environment variables that a server inherits: programs, home and language, but no keys.
const SAFE_VARIABLES: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// How long a server may take to exit after its input was closed.
const LEAVE: Duration = Duration::from_secs(2);

/// How long a last response may take after the server has exited.
const DRAIN: Duration = Duration::from_millis(200);

/// The largest message of a server, in bytes: far more than a result that a model can read.
const MESSAGE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of a server's log that are copied at a time.
const LOG_CHUNK_BYTES: usize = 8 * 1024;

/// The process of a server. Dropping it kills the process group.
#[derive(Debug)]
pub(super) struct ServerProcess(Mutex<ProcessGroup>);

impl ServerProcess {
    /// Starts a server.
    pub(super) fn start(
        server: &str,
        command: &str,
        args: &[String],
        env: &SecretValues,
        cwd: Option<&Path>,
    ) -> Result<(ServerProcess, PipeTransport<ChildStdin>), ToolError> {
        let mut process = Command::new(command);
        // A server is foreign code: it gets no keys of the host.
        process.args(args).env_clear();
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in SAFE_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                process.env(name, value);
            }
        }
        process.envs(env.expand(server)?);
        if let Some(cwd) = cwd {
            process.current_dir(cwd);
        }
        let bad = |complaint: String| ToolError::BadServer { server: server.to_owned(), complaint };
        let mut group = ProcessGroup::spawn(process)
            .map_err(|cause| bad(format!("cannot start `{command}`: {cause}")))?;
        let child = group.child();
        let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(bad(format!("`{command}` has no stdin or stdout pipe")));
        };
        // An unread pipe would block the server once it is full.
        if let Some(log) = child.stderr.take() {
            tokio::spawn(log_lines(server.to_owned(), log));
        }
        let transport = PipeTransport::new(server, output, input, MESSAGE_MAX_BYTES);
        Ok((ServerProcess(Mutex::new(group)), transport))
    }

    /// Whether the process has ended. The pipes do not show it: a child of the server may keep them open.
    pub(super) fn has_ended(&self) -> bool {
        // If the lock is taken, another task waits for the process, so it still runs.
        self.0.try_lock().is_ok_and(|mut group| group.has_ended())
    }

    /// Waits until the process has ended, and a moment for its last response.
    pub(super) async fn wait_for_exit(&self) {
        // An error means that there is no process to wait for.
        let _ = self.0.lock().await.wait().await;
        sleep(DRAIN).await;
    }

    /// Waits briefly for the process to exit, then kills it.
    pub(super) async fn shut_down(&self) {
        // Kill the group in any case: children may remain.
        let _ = timeout(LEAVE, async { self.0.lock().await.wait().await }).await;
        if let Ok(mut group) = self.0.try_lock() {
            group.kill();
        }
    }
}

/// Copies the server's stderr to the log.
async fn log_lines(server: String, mut log: impl AsyncRead + Unpin) {
    let mut chunk = vec![0; LOG_CHUNK_BYTES];
    loop {
        let count = match log.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        let text = String::from_utf8_lossy(chunk.get(..count).unwrap_or_default());
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            tracing::info!(%server, "{line}");
        }
    }
}

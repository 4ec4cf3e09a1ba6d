//! A server as a child process: a clean environment, a group of its own, its log in ours.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::settings::SecretValues;
use crate::error::ToolError;
use crate::process::ProcessGroup;

/// What a server gets of our environment: enough to find programs, a home and the language, and no
/// keys. Everything else stands in its `env`.
const SAFE_VARIABLES: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// How long a server may take to end after its input was closed.
const LEAVE: Duration = Duration::from_secs(2);

/// How long an answer may be on its way when the server has ended.
const DRAIN: Duration = Duration::from_millis(200);

/// Bytes of a server's log that are read, and written to ours, at once.
const LOG_CHUNK_BYTES: usize = 8 * 1024;

/// The process of a server. It ends, with all that it started, when this is dropped.
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
    ) -> Result<(ServerProcess, (ChildStdout, ChildStdin)), ToolError> {
        let mut process = Command::new(command);
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
            .map_err(|cause| bad(format!("could not start `{command}`: {cause}")))?;
        let child = group.child();
        let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(bad(format!("`{command}` was started without pipes")));
        };
        if let Some(log) = child.stderr.take() {
            tokio::spawn(log_lines(server.to_owned(), log));
        }
        Ok((ServerProcess(Mutex::new(group)), (output, input)))
    }

    /// Whether the process has ended. A child of its own may still hold the pipes open, so that they
    /// do not tell.
    pub(super) fn has_ended(&self) -> bool {
        // Whoever holds it waits for that very end.
        self.0.try_lock().is_ok_and(|mut group| group.has_ended())
    }

    /// Waits until the process has ended, and a moment for what it said last.
    pub(super) async fn wait_for_exit(&self) {
        // An error says that there is nobody to wait for.
        let _ = self.0.lock().await.wait().await;
        sleep(DRAIN).await;
    }

    /// Waits for a moment until the process has ended; then it is killed.
    pub(super) async fn shut_down(&self) {
        // Whether it ended by itself or not: nothing of it stays.
        let _ = timeout(LEAVE, async { self.0.lock().await.wait().await }).await;
        if let Ok(mut group) = self.0.try_lock() {
            group.kill();
        }
    }
}

/// Writes what a server says of itself into our log, until it ends.
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

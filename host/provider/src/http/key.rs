//! API keys: constant, or printed by a program when first needed.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

/// Timeout of a key command: it may ask the user for a password.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that a key command may print. Keys have a few hundred; a program that prints more is the wrong one.
const MAX_OUTPUT_BYTES: u64 = 65_536;

/// The source of a provider's key.
#[derive(Debug)]
pub struct ApiKey {
    /// The program and its arguments; empty for a constant key.
    command: Vec<String>,
    /// The environment variable of a constant key, if it is from one.
    variable: Option<String>,
    /// The key, once secret.
    secret: Mutex<Option<SecretString>>,
}

/// A key command failed. Never holds the program's output.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    /// The program cannot be started.
    #[error("the key command `{program}` cannot be started ({cause}); check api_key_command")]
    NotStarted {
        /// The program.
        program: String,
        /// The cause.
        cause: std::io::ErrorKind,
    },
    /// The program failed.
    #[error("the key command `{program}` ended with {status}; run it by hand to see why")]
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
    },
    /// The program printed no key.
    #[error("the key command `{program}` printed nothing; run it by hand to see why")]
    Empty {
        /// The program.
        program: String,
    },
    /// The program printed more than any key has.
    #[error(
        "the key command `{program}` printed more than {MAX_OUTPUT_BYTES} bytes; it must print the key on its first line"
    )]
    TooLong {
        /// The program.
        program: String,
    },
    /// The program exceeded its timeout.
    #[error("the key command `{program}` exceeded its timeout of {} s", COMMAND_TIMEOUT.as_secs())]
    TimedOut {
        /// The program.
        program: String,
    },
}

impl ApiKey {
    /// No key.
    pub fn none() -> ApiKey {
        ApiKey { command: Vec::new(), variable: None, secret: Mutex::new(None) }
    }

    /// A constant key.
    pub fn from_secret(key: SecretString) -> ApiKey {
        ApiKey { command: Vec::new(), variable: None, secret: Mutex::new(Some(key)) }
    }

    /// A constant key from this environment variable.
    pub fn from_variable(key: SecretString, variable: &str) -> ApiKey {
        ApiKey { variable: Some(variable.to_owned()), ..ApiKey::from_secret(key) }
    }

    /// A key that a program prints on its first line. It runs without a shell.
    pub fn from_command(command: Vec<String>) -> ApiKey {
        ApiKey { command, variable: None, secret: Mutex::new(None) }
    }

    /// Where a user finds the key: the variable or the command that it is from.
    pub(super) fn source(&self) -> Option<String> {
        match (&self.variable, self.command.first()) {
            (Some(variable), _) => Some(format!("the variable {variable}")),
            (None, Some(program)) => Some(format!("the command `{program}` (api_key_command)")),
            (None, None) => None,
        }
    }

    /// The key, if the server needs one. The program runs once for all callers.
    ///
    /// # Errors
    ///
    /// [`ApiKeyError`].
    pub async fn read(&self) -> Result<Option<SecretString>, ApiKeyError> {
        let mut secret = self.secret.lock().await;
        if secret.is_none() && !self.command.is_empty() {
            *secret = Some(run_command(&self.command).await?);
        }
        Ok(secret.clone())
    }

    /// Forgets a refused key. Returns whether a new one can be had.
    pub async fn forget(&self, refused: Option<&SecretString>) -> bool {
        if self.command.is_empty() {
            return false;
        }
        let mut secret = self.secret.lock().await;
        // Another refused request may have fetched a new key already; that one stays.
        let exposed = |key: &SecretString| key.expose_secret().to_owned();
        if secret.as_ref().map(exposed) == refused.map(exposed) {
            *secret = None;
        }
        true
    }
}

async fn run_command(command: &[String]) -> Result<SecretString, ApiKeyError> {
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.clone(), arguments),
        None => (String::new(), command),
    };
    let mut process = Command::new(&program);
    // Its errors are not shown, since they may contain the key.
    process.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |error: std::io::Error| ApiKeyError::NotStarted {
        program: program.clone(),
        cause: error.kind(),
    };
    let child = process.kill_on_drop(true).spawn().map_err(&failed)?;
    let (output, status) = match tokio::time::timeout(COMMAND_TIMEOUT, read_output(child)).await {
        Ok(Ok(Some(ended))) => ended,
        Ok(Ok(None)) => return Err(ApiKeyError::TooLong { program }),
        Ok(Err(error)) => return Err(failed(error)),
        Err(_) => return Err(ApiKeyError::TimedOut { program }),
    };
    if !status.success() {
        return Err(ApiKeyError::Failed { program, status });
    }
    // Programs may print notices after the key.
    let printed = SecretString::from(String::from_utf8_lossy(&output).into_owned());
    match printed.expose_secret().lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(key) => Ok(SecretString::from(key)),
        None => Err(ApiKeyError::Empty { program }),
    }
}

/// What a program prints, and its status; `None` above [`MAX_OUTPUT_BYTES`], which ends the program.
async fn read_output(mut child: Child) -> std::io::Result<Option<(Vec<u8>, ExitStatus)>> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut output).await?;
    }
    if output.len() as u64 > MAX_OUTPUT_BYTES {
        child.kill().await?;
        return Ok(None);
    }
    Ok(Some((output, child.wait().await?)))
}

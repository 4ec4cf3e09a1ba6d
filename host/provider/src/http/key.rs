//! The key: held, or printed by a program when it is first needed, and never shown.

use std::process::Stdio;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::process::Command;
use tokio::sync::Mutex;

/// A key command may ask the person for a password, so it gets a minute.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the key of a provider comes from.
#[derive(Debug)]
pub struct ApiKey {
    /// The program and its arguments; empty for a key that is held.
    command: Vec<String>,
    /// The key, as far as it is known.
    secret: Mutex<Option<SecretString>>,
}

/// A key that did not come. Says nothing of what the program printed.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    /// The program could not be started.
    #[error("the key command `{program}` cannot be started ({cause}); check api_key_command")]
    NotStarted {
        /// The program.
        program: String,
        /// Why not.
        cause: std::io::ErrorKind,
    },
    /// The program failed.
    #[error("the key command `{program}` ended with {status}; run it by hand to see why")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// The program printed no key.
    #[error("the key command `{program}` printed nothing; run it by hand to see why")]
    Empty {
        /// The program.
        program: String,
    },
    /// The program took too long.
    #[error("the key command `{program}` took more than {} s", COMMAND_TIMEOUT.as_secs())]
    TimedOut {
        /// The program.
        program: String,
    },
}

impl ApiKey {
    /// For a server that wants none.
    pub fn none() -> ApiKey {
        ApiKey { command: Vec::new(), secret: Mutex::new(None) }
    }

    /// One that is known.
    pub fn from_secret(key: SecretString) -> ApiKey {
        ApiKey { command: Vec::new(), secret: Mutex::new(Some(key)) }
    }

    /// One that a program prints on its first line. It is run without a shell.
    pub fn from_command(command: Vec<String>) -> ApiKey {
        ApiKey { command, secret: Mutex::new(None) }
    }

    /// The key; `None` for a server that wants none. The program runs once, however many ask.
    ///
    /// # Errors
    ///
    /// [`ApiKeyError`].
    pub async fn read(&self) -> Result<Option<SecretString>, ApiKeyError> {
        let mut known = self.secret.lock().await;
        if known.is_none() && !self.command.is_empty() {
            *known = Some(run_command(&self.command).await?);
        }
        Ok(known.clone())
    }

    /// Forgets a key that was refused. Whether another one may come.
    pub async fn forget(&self, refused: Option<&SecretString>) -> bool {
        if self.command.is_empty() {
            return false;
        }
        let mut known = self.secret.lock().await;
        // Another request may have been refused too and got a new key since: that one stays.
        let exposed = |key: &SecretString| key.expose_secret().to_owned();
        if known.as_ref().map(exposed) == refused.map(exposed) {
            *known = None;
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
    process.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = process.kill_on_drop(true).output();
    let output = match tokio::time::timeout(COMMAND_TIMEOUT, output).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(ApiKeyError::NotStarted { program, cause: error.kind() }),
        Err(_) => return Err(ApiKeyError::TimedOut { program }),
    };
    if !output.status.success() {
        return Err(ApiKeyError::Failed { program, status: output.status });
    }
    let printed = SecretString::from(String::from_utf8_lossy(&output.stdout).into_owned());
    match printed.expose_secret().lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(key) => Ok(SecretString::from(key)),
        None => Err(ApiKeyError::Empty { program }),
    }
}

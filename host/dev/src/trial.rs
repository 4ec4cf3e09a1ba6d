//! A trial: a generation and the bundled engine over one session, in a process that may die of it.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use super::{DevError, EngineGeneration};
use ctxhost_agent::replay::report::ReplayReport;
use ctxhost_engine::LEGACY;

/// What to replay, and with what.
#[derive(Clone, Debug)]
pub struct ReplayTrial {
    /// This program.
    pub program: PathBuf,
    /// The session, as `replay` takes it.
    pub session: String,
    /// The window, as `replay` takes it; `None` leaves it to `replay`.
    pub window: Option<u64>,
    /// The config; `None` leaves it to `replay`.
    pub config: Option<PathBuf>,
}

impl ReplayTrial {
    /// Replays the session through a generation, then through the bundled engine. The first run of the
    /// report is the generation's. What engines log goes to standard error.
    ///
    /// # Errors
    ///
    /// [`DevError::TrialCrashed`] where a signal ended the process, [`DevError::NoReport`] where it gave up.
    pub fn run(&self, generation: &EngineGeneration) -> Result<ReplayReport, DevError> {
        let mut command = Command::new(&self.program);
        command.arg("replay").arg(&self.session).arg("--json");
        command.arg("--engines").arg(format!("{},{LEGACY}", generation.library.display()));
        command.args(self.window.iter().map(|window| format!("--window={window}")));
        command.args(self.config.iter().flat_map(|path| ["--config".as_ref(), path.as_os_str()]));
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let program = self.program.display().to_string();
        let output = command.output().map_err(|source| DevError::NoTool { program, source })?;
        // A broken law makes it end badly, too, but not without its report.
        let report = serde_json::from_slice(&output.stdout);
        report.map_err(|_| ended(output.status))
    }
}

/// Why there is no report.
fn ended(status: ExitStatus) -> DevError {
    use std::os::unix::process::ExitStatusExt as _;
    match status.signal() {
        Some(number) => {
            let signal = nix::sys::signal::Signal::try_from(number);
            let name = signal.map_or("", |signal| signal.as_str());
            DevError::TrialCrashed { how: format!("signal {number} {name}").trim_end().to_owned() }
        }
        None => DevError::NoReport { status: status.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_death_is_told_by_its_name() {
        let died = ended(ExitStatus::from_raw(6)).to_string();
        assert_eq!(died, "the engine took its process down: signal 6 SIGABRT");
        let gave_up = ended(ExitStatus::from_raw(2 << 8)).to_string();
        assert_eq!(gave_up, "the replay came to no end: exit status: 2");
    }
}

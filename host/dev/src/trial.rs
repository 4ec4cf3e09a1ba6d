//! Replays a session through a build and the bundled engine in a separate process.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use ctxhost_platform::processes::{signal_name, signal_of};

use super::output::read_output;
use super::{DevError, EngineGeneration};
use ctxhost_agent::replay::report::ReplayReport;
use ctxhost_engine::LEGACY;

/// The parameters of the replay.
#[derive(Clone, Debug)]
pub struct ReplayTrial {
    /// This program.
    pub program: PathBuf,
    /// The session argument of `replay`.
    pub session: String,
    /// The window argument of `replay`; `None` for its default.
    pub window: Option<u64>,
    /// The config argument of `replay`; `None` for its default.
    pub config: Option<PathBuf>,
}

impl ReplayTrial {
    /// Replays the session through a build, which is the first run of the report, and the bundled engine.
    /// Logs of the engines go to standard error.
    ///
    /// # Errors
    ///
    /// [`DevError::TrialCrashed`], if a signal ended the process, [`DevError::NoReport`], if it failed otherwise.
    pub fn run(&self, generation: &EngineGeneration) -> Result<ReplayReport, DevError> {
        let mut command = Command::new(&self.program);
        command.arg("replay").arg(&self.session).arg("--json");
        // The bundled engine last, as the baseline of the report.
        command.arg("--engines").arg(format!("{},{LEGACY}", generation.library.display()));
        command.args(self.window.iter().map(|window| format!("--window={window}")));
        command.args(self.config.iter().flat_map(|path| ["--config".as_ref(), path.as_os_str()]));
        let program = self.program.display().to_string();
        let (status, output) = read_output(&mut command, &program)?;
        // The exit status is ignored if there is a report: `replay` also fails after an invariant violation.
        let report = serde_json::from_slice(&output);
        report.map_err(|_| ended(status))
    }
}

/// The cause of a missing report.
fn ended(status: ExitStatus) -> DevError {
    match signal_of(status) {
        Some(number) => {
            let name = signal_name(number).unwrap_or_default();
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
    fn a_crash_names_its_signal() {
        let died = ended(ExitStatus::from_raw(6)).to_string();
        assert_eq!(died, "the engine crashed its process: signal 6 SIGABRT");
        let failed = ended(ExitStatus::from_raw(2 << 8)).to_string();
        assert_eq!(failed, "the replay failed: exit status: 2");
    }
}

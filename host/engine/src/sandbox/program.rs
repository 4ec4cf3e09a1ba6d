//! Which program a worker is: a ctxhost, since an engine needs somebody to load it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Names the program of workers, where the config does not.
pub(super) const PROGRAM_VARIABLE: &str = "CTXHOST_WORKER";

/// The hidden command that makes a worker of the program.
pub(super) const COMMAND: &str = "engine-worker";

/// The running program itself, even where its file was replaced since it began.
const ITSELF: &str = "/proc/self/exe";

/// Whether the running program becomes a worker when it is started with [`COMMAND`].
static CAN_BE_A_SANDBOX: AtomicBool = AtomicBool::new(false);

/// No program is there that could be a worker.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A name that leads to no file.
    #[error("{origin} names {} for engine workers, which is no file", path.display())]
    Missing {
        /// Who names it.
        origin: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// Nothing names one.
    #[error(
        "isolation = \"process\" needs the program `ctxhost`, which is neither beside this program nor in PATH; \
         set plugins.worker.program or {PROGRAM_VARIABLE}, or call ctxhost::worker_main() first in main"
    )]
    NotFound,
}

/// The running program answers to [`COMMAND`].
pub(super) fn allow_self_launch() {
    CAN_BE_A_SANDBOX.store(true, Ordering::Relaxed);
}

/// The program to start: the configured one, else the variable's, else this one, else a `ctxhost`
/// beside this one or in `PATH`.
pub(super) fn find_program(configured: Option<&Path>) -> Result<PathBuf, ProgramError> {
    let named = |origin, path: PathBuf| match path.is_file() {
        true => Ok(path),
        false => Err(ProgramError::Missing { origin, path }),
    };
    if let Some(path) = configured {
        return named("plugins.worker.program", path.to_owned());
    }
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return named(PROGRAM_VARIABLE, path.into());
    }
    let itself = PathBuf::from(ITSELF);
    if CAN_BE_A_SANDBOX.load(Ordering::Relaxed) && itself.exists() {
        return Ok(itself);
    }
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    installed(beside, std::env::var_os("PATH")).ok_or(ProgramError::NotFound)
}

fn installed(beside: Option<PathBuf>, path: Option<OsString>) -> Option<PathBuf> {
    let path = path.unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    // A folder of `PATH` that depends on where the program was started is anybody's.
    let files = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join("ctxhost"));
    files.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_configured_and_not_there_is_an_error_and_no_search() {
        let error = find_program(Some(Path::new("/nowhere/ctxhost"))).unwrap_err().to_string();
        assert!(error.starts_with("plugins.worker.program names /nowhere/ctxhost"), "{error}");
    }

    #[test]
    fn a_ctxhost_beside_comes_before_one_in_path_and_relative_folders_are_passed_over() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&one, &two] {
            std::fs::write(folder.path().join("ctxhost"), "").unwrap();
        }
        let path = std::env::join_paths([Path::new("."), two.path()]).unwrap();
        let beside = installed(Some(one.path().to_owned()), Some(path.clone()));
        assert_eq!(beside, Some(one.path().join("ctxhost")));
        assert_eq!(installed(None, Some(path)), Some(two.path().join("ctxhost")));
        assert_eq!(installed(None, None), None);
    }
}

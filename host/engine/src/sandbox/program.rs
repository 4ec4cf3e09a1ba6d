//! Finds the program that runs as a sandbox: a ctxhost, or a program that embeds it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable with the program, where the config names none.
pub(super) const PROGRAM_VARIABLE: &str = "CTXHOST_SANDBOX";

/// The hidden command that runs the program as a sandbox.
pub(super) const COMMAND: &str = "engine-sandbox";

/// The running program, even if its file was replaced since the start.
const ITSELF: &str = "/proc/self/exe";

/// Whether the running program acts as a sandbox when it is started with [`COMMAND`].
static CAN_BE_A_SANDBOX: AtomicBool = AtomicBool::new(false);

/// Why no program was found.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The named file does not exist.
    #[error("{origin} names {} as the sandbox program, which is not a file", path.display())]
    Missing {
        /// The setting or variable that names it.
        origin: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// No program is named and none was found.
    #[error(
        "isolation = \"process\" needs the program `ctxhost`, which is neither beside this program nor in PATH; \
         set plugins.sandbox.program or {PROGRAM_VARIABLE}, or call ctxhost::sandbox_main() first in main"
    )]
    NotFound,
}

/// Records that the running program handles [`COMMAND`].
pub(super) fn allow_self_launch() {
    CAN_BE_A_SANDBOX.store(true, Ordering::Relaxed);
}

/// The program to start: that of the config, else of the variable, else this one, else a `ctxhost`
/// beside this one or in `PATH`.
pub(super) fn find_program(configured: Option<&Path>) -> Result<PathBuf, ProgramError> {
    let named = |origin, path: PathBuf| {
        if path.is_file() { Ok(path) } else { Err(ProgramError::Missing { origin, path }) }
    };
    if let Some(path) = configured {
        return named("plugins.sandbox.program", path.to_owned());
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
    // A relative folder in `PATH` depends on the working directory, which another user may control.
    let files = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join("ctxhost"));
    files.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_configured_program_is_an_error_without_a_search() {
        let error = find_program(Some(Path::new("/nowhere/ctxhost"))).unwrap_err().to_string();
        assert!(error.starts_with("plugins.sandbox.program names /nowhere/ctxhost"), "{error}");
    }

    #[test]
    fn a_ctxhost_beside_precedes_path_and_relative_folders_are_skipped() {
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

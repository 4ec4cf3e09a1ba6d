//! From the path that a model wrote to the path that is opened, inside of the folders that are open.
//!
//! Confinement is a guard against slips, with links followed, and no sandbox: whoever can make links
//! while a tool runs, or has `shell`, gets around it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::error::ToolError;
use super::output_limit;
use super::settings::ToolSettings;

/// The folders that are open to the file tools.
#[derive(Clone, Debug)]
pub(super) struct PathResolver {
    confine: bool,
    roots: Vec<PathBuf>,
}

/// What a tool is about to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathAccess {
    /// Look at it.
    Read,
    /// Change it.
    Write,
}

impl PathResolver {
    pub(super) fn new(settings: &ToolSettings) -> PathResolver {
        PathResolver { confine: settings.confine, roots: settings.roots.clone() }
    }

    /// The path to open. Asks the disk, so it is work for a blocking thread.
    pub(super) fn resolve(
        &self,
        cwd: &Path,
        written: &str,
        access: PathAccess,
    ) -> Result<PathBuf, ToolError> {
        let path = cwd.join(written);
        if !self.confine {
            return Ok(path);
        }
        let real = real_path(&path).map_err(|cause| ToolError::io("resolve", &path, cause))?;
        let open = self.open_folders(cwd);
        let is_open = open.iter().any(|folder| real.starts_with(folder));
        if is_open || (access == PathAccess::Read && output_limit::is_output_file(&real)) {
            return Ok(real);
        }
        let folders = open.iter().map(|folder| folder.display().to_string());
        Err(ToolError::OutsideRoots { path: real, folders: folders.collect::<Vec<_>>().join(", ") })
    }

    fn open_folders(&self, cwd: &Path) -> Vec<PathBuf> {
        let written = std::iter::once(cwd).chain(self.roots.iter().map(PathBuf::as_path));
        // A root that is not there opens nothing.
        written.filter_map(|folder| folder.canonicalize().ok()).collect()
    }
}

/// A path with its links followed, as far as it is there. What is not there yet has no links, and
/// no way up either.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut missing: Vec<OsString> = Vec::new();
    let mut here = path.to_owned();
    loop {
        match here.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Ok(real);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(error) => {
                let is_dangling_link = here.symlink_metadata().is_ok();
                let Some(name) = here.file_name().filter(|_| !is_dangling_link) else {
                    return Err(error);
                };
                missing.push(name.to_owned());
                here.pop();
            }
        }
    }
}

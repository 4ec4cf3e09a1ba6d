//! Resolves the paths that a model writes, and confines them to the allowed folders.
//!
//! Confinement prevents mistakes, not attacks: a process that creates links concurrently, or the `shell` tool, can
//! bypass it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::error::ToolError;
use super::output_limit;
use super::settings::ToolSettings;

/// Resolves paths for the file tools.
#[derive(Clone, Debug)]
pub(super) struct PathResolver {
    confine: bool,
    roots: Vec<PathBuf>,
}

/// The access that a tool needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathAccess {
    /// Read.
    Read,
    /// Write.
    Write,
}

impl PathResolver {
    pub(super) fn new(settings: &ToolSettings) -> PathResolver {
        PathResolver { confine: settings.confine, roots: settings.roots.clone() }
    }

    /// The path to open. Accesses the disk, so it must run on a blocking thread.
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
        // A missing root allows nothing.
        written.filter_map(|folder| folder.canonicalize().ok()).collect()
    }
}

/// Resolves the links of a path as far as it exists. The missing rest has no links and no `..`.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing = path.to_owned();
    loop {
        match existing.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Ok(real);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(error) => {
                // A dangling link could point outside the roots once its target exists.
                let is_dangling_link = existing.symlink_metadata().is_ok();
                let Some(name) = existing.file_name().filter(|_| !is_dangling_link) else {
                    return Err(error);
                };
                missing.push(name.to_owned());
                existing.pop();
            }
        }
    }
}

//! The folder of an engine: its build tool and its source files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::DevError;

/// Folders in which every file is a source.
const SOURCE_FOLDERS: [&str; 3] = ["src", "include", ".cargo"];

/// Files at the root that a build or a replay depends on.
// Without Cargo.lock: builds write it, which would start the next build.
const ROOT_FILES: [&str; 5] = ["Cargo.toml", "build.rs", "Makefile", "build.zig", "ctxhost.toml"];

/// Extensions of sources at the root.
const ROOT_SOURCES: [&str; 8] = ["c", "h", "cc", "cpp", "hpp", "zig", "go", "rs"];

/// The build tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuildTool {
    Cargo,
    Make,
}

/// An engine's folder.
#[derive(Clone, Debug)]
pub struct EngineProject {
    folder: PathBuf,
    build_tool: BuildTool,
}

impl EngineProject {
    /// Opens the folder of an engine.
    ///
    /// # Errors
    ///
    /// [`DevError::NoProject`].
    pub fn open(folder: &Path) -> Result<EngineProject, DevError> {
        let folder =
            // Watchers report canonical paths, which `is_source` compares.
            folder.canonicalize().map_err(|_| DevError::NoProject { folder: folder.into() })?;
        let builder = if folder.join("Cargo.toml").is_file() {
            BuildTool::Cargo
        } else if folder.join("Makefile").is_file() {
            BuildTool::Make
        } else {
            return Err(DevError::NoProject { folder });
        };
        Ok(EngineProject { folder, build_tool: builder })
    }

    /// The folder, absolute.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn build_tool(&self) -> BuildTool {
        self.build_tool
    }

    /// The source folders that exist.
    pub(super) fn source_folders(&self) -> Vec<PathBuf> {
        let folders = SOURCE_FOLDERS.map(|name| self.folder.join(name));
        folders.into_iter().filter(|folder| folder.is_dir()).collect()
    }

    /// Whether a change of this file needs a build.
    pub(super) fn is_source(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.folder) else { return false };
        let mut parts = below.components().map(|part| part.as_os_str());
        match (parts.next(), parts.next()) {
            (Some(name), None) => is_root_source(name),
            (Some(folder), Some(_)) => SOURCE_FOLDERS.iter().any(|known| folder == *known),
            (None, _) => false,
        }
    }
}

fn is_root_source(name: &OsStr) -> bool {
    let extension = Path::new(name).extension();
    ROOT_FILES.iter().any(|known| name == *known)
        || extension.is_some_and(|found| ROOT_SOURCES.iter().any(|known| found == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_writes_is_no_source() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(EngineProject::open(folder.path()), Err(DevError::NoProject { .. })));
        std::fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        let project = EngineProject::open(folder.path()).unwrap();
        assert_eq!(project.build_tool(), BuildTool::Cargo);
        let is_source = |path: &str| project.is_source(&project.folder().join(path));
        for source in ["src/lib.rs", "src/a/b.rs", "Cargo.toml", "build.rs", "engine.c"] {
            assert!(is_source(source), "{source}");
        }
        for other in ["target/release/lib.so", "Cargo.lock", "README.md", ".git/index", "src"] {
            assert!(!is_source(other), "{other}");
        }
        assert!(!project.is_source(Path::new("/elsewhere/src/lib.rs")));
    }
}

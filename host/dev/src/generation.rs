//! Numbers the builds that differ and keeps a private copy of each library.

use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_platform::files::set_path_mode;
use ctxhost_platform::processes::is_alive;

use super::{BuildOutput, DevError, cannot};
use ctxhost_engine::{EngineFile, inspect};

/// The folder of the copies, next to the build output.
const FOLDER: &str = "ctxhost-dev";

/// A build of the engine.
#[derive(Clone, Debug)]
pub struct EngineGeneration {
    /// The number, from 1.
    pub number: u64,
    /// The copy of the library.
    pub library: PathBuf,
    /// The engine's id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
}

impl EngineGeneration {
    /// `keep-errors@dev.3`
    pub fn name(&self) -> String {
        format!("{}@dev.{}", self.id, self.number)
    }
}

/// The builds of one `ctxhost dev` run.
#[derive(Debug, Default)]
pub struct GenerationLog {
    newest: Option<EngineGeneration>,
}

impl GenerationLog {
    /// The newest build.
    pub fn newest(&self) -> Option<&EngineGeneration> {
        self.newest.as_ref()
    }

    /// Adds a build; `None` if it equals the newest one. The library is inspected without running it.
    ///
    /// # Errors
    ///
    /// [`DevError::Load`], if it is not an engine, [`DevError::Io`], if it cannot be copied.
    pub fn add(&mut self, built: &BuildOutput) -> Result<Option<EngineGeneration>, DevError> {
        let EngineFile { meta, sha256, .. } = inspect(&built.library)?;
        if self.newest.as_ref().is_some_and(|newest| newest.sha256 == sha256) {
            return Ok(None);
        }
        let number = self.newest.as_ref().map_or(0, |newest| newest.number) + 1;
        let library = copy(&built.library, number)?;
        // Hashed again: a build may have replaced the file between reading and copying.
        let EngineFile { sha256, .. } = inspect(&library)?;
        let generation =
            EngineGeneration { number, library, id: meta.id, version: meta.version, sha256 };
        self.newest = Some(generation.clone());
        Ok(Some(generation))
    }
}

/// Copies the library and removes the copies of earlier builds.
fn copy(library: &Path, number: u64) -> Result<PathBuf, DevError> {
    let folder = library.with_file_name(FOLDER);
    fs::create_dir_all(&folder).map_err(cannot(format!("make {}", folder.display())))?;
    let stem = library.file_stem().unwrap_or_default().to_string_lossy();
    let extension = library.extension().unwrap_or_default().to_string_lossy();
    // Deleting a library that is still loaded is safe: the process has it open.
    remove_old(&folder, &stem);
    let copy = folder.join(format!("{stem}.{}.{number}.{extension}", std::process::id()));
    let failed = || cannot(format!("copy {} to {}", library.display(), copy.display()));
    fs::copy(library, &copy).map_err(failed())?;
    // The host refuses libraries that other users can replace.
    set_path_mode(&copy, 0o700).map_err(failed())?;
    Ok(copy)
}

/// Removes the copies of this process and of processes that have ended.
fn remove_old(folder: &Path, stem: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| owner_of(name, stem));
        if owner.is_some_and(|pid| pid == std::process::id() || !is_alive(pid)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process in `<stem>.<process>.<number>.<extension>`.
fn owner_of(name: &str, stem: &str) -> Option<u32> {
    name.strip_prefix(stem)?.strip_prefix('.')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_other_loops_stay_while_they_live() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libkeep.so");
        fs::write(&library, "one").unwrap();
        let first = copy(&library, 1).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let file = |name: &str| folder.path().join(FOLDER).join(name);
        let others = ["libkeep.1.7.so", "libkeep_more.2.1.so", "notes.txt"].map(file);
        let left = file(&format!("libkeep.{dead}.3.so"));
        others.iter().chain([&left]).for_each(|path| fs::write(path, "").unwrap());

        fs::write(&library, "two").unwrap();
        let second = copy(&library, 2).unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "two");
        assert!(!first.exists() && !left.exists());
        assert!(others.iter().all(|path| path.exists()));
    }
}

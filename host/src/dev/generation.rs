//! Generations: each build that differs from the one before, as a copy of its own that no build changes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{Built, DevError, cannot};
use crate::engine::{Inspected, inspect};

/// Where copies stand, beside what the build leaves.
const FOLDER: &str = "ctxhost-dev";

/// One build.
#[derive(Clone, Debug)]
pub struct Generation {
    /// From 1.
    pub number: u64,
    /// The copy.
    pub library: PathBuf,
    /// The engine's id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
}

impl Generation {
    /// `keep-errors@dev.3`
    pub fn name(&self) -> String {
        format!("{}@dev.{}", self.id, self.number)
    }
}

/// The builds of one author's session.
#[derive(Debug, Default)]
pub struct Generations {
    newest: Option<Generation>,
}

impl Generations {
    /// The newest.
    pub fn newest(&self) -> Option<&Generation> {
        self.newest.as_ref()
    }

    /// Takes a build in; `None` where its bytes are those of the newest generation. The library is read
    /// and checked, and nothing of it runs.
    ///
    /// # Errors
    ///
    /// [`DevError::Load`] where it is no engine, [`DevError::Files`] where it cannot be copied.
    pub fn take_in(&mut self, built: &Built) -> Result<Option<Generation>, DevError> {
        let Inspected { meta, sha256, .. } = inspect(&built.library)?;
        if self.newest.as_ref().is_some_and(|newest| newest.sha256 == sha256) {
            return Ok(None);
        }
        let number = self.newest.as_ref().map_or(0, |newest| newest.number) + 1;
        let library = copy(&built.library, number)?;
        let Inspected { sha256, .. } = inspect(&library)?;
        let generation = Generation { number, library, id: meta.id, version: meta.version, sha256 };
        self.newest = Some(generation.clone());
        Ok(Some(generation))
    }
}

/// A copy that only its owner may change. Those of earlier generations go: what still runs of them has
/// them open.
fn copy(library: &Path, number: u64) -> Result<PathBuf, DevError> {
    let folder = library.with_file_name(FOLDER);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(cannot(format!("make {}", folder.display())))?;
    let stem = library.file_stem().unwrap_or_default().to_string_lossy();
    let extension = library.extension().unwrap_or_default().to_string_lossy();
    let copy = folder.join(format!("{stem}.{number}.{extension}"));
    let failed = || cannot(format!("copy {} to {}", library.display(), copy.display()));
    fs::copy(library, &copy).map_err(failed())?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).map_err(failed())?;
    Ok(copy)
}

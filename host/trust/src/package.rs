//! An engine to install: a library, or a folder that contains one.

use std::env::consts::{DLL_EXTENSION, DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::conformance::Conformance;
use super::signature::{Signature, SignatureError, TrustedKeys};
use ctxhost_engine::{EngineFile, LoadError, inspect, inspect_pinned};

/// Why a package cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A crate that was not built.
    #[error(
        "{} is a crate whose library {library} is not built; run `cargo build --release` there first",
        folder.display()
    )]
    NotBuilt {
        /// The crate.
        folder: PathBuf,
        /// The file that should be there.
        library: String,
    },
    /// A Makefile that was not run.
    #[error(
        "{} has a Makefile and no library in {MAKE_FOLDER}/; run `make` there first, or name the engine's .so",
        folder.display()
    )]
    NotMade {
        /// The folder.
        folder: PathBuf,
    },
    /// A manifest without a package name.
    #[error("{} names no package", path.display())]
    NoPackage {
        /// The manifest.
        path: PathBuf,
    },
    /// A folder without a library.
    #[error("{} holds no library and neither Cargo.toml nor Makefile; name the engine's .so, or the folder of its sources", folder.display())]
    NoLibrary {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder with several libraries.
    #[error("{} holds {count} libraries; name the one to install", folder.display())]
    SeveralLibraries {
        /// The folder.
        folder: PathBuf,
        /// Their number.
        count: usize,
    },
    /// The file is not an engine.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its signature is wrong.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

/// An engine's file that was read but not loaded, with its signature and verdict.
#[derive(Debug)]
pub struct EnginePackage {
    /// The file.
    pub file: EngineFile,
    /// Its signature.
    pub signature: Signature,
    /// The verdict of `ctxhost check`.
    pub conformance: Option<Conformance>,
}

impl EnginePackage {
    /// Reads a library, the built library of a crate or of a Makefile, or the only library of a
    /// folder.
    ///
    /// # Errors
    ///
    /// [`PackageError`]. An invalid signature is an error even where none is required.
    pub fn open(path: &Path, keys: &TrustedKeys) -> Result<EnginePackage, PackageError> {
        let library = if path.is_dir() { library_in(path)? } else { path.to_owned() };
        EnginePackage::read(inspect(&library)?, path, keys)
    }

    /// Reads a library that must have these bytes (SHA-256 in hex).
    ///
    /// # Errors
    ///
    /// As [`EnginePackage::open`].
    pub fn open_pinned(
        library: &Path,
        sha256: &str,
        keys: &TrustedKeys,
    ) -> Result<EnginePackage, PackageError> {
        EnginePackage::read(inspect_pinned(library, Some(sha256))?, library, keys)
    }

    fn read(
        file: EngineFile,
        named: &Path,
        keys: &TrustedKeys,
    ) -> Result<EnginePackage, PackageError> {
        let signature = keys.check(&file.path, file.image())?;
        // The working directory and the folder that was named.
        let folders = [Path::new("."), named];
        let conformance = Conformance::find(&file.path, &file.sha256, &folders);
        Ok(EnginePackage { file, signature, conformance })
    }

    /// The key that signed it, if it is trusted.
    pub fn signer(&self) -> Option<&str> {
        match &self.signature {
            Signature::Trusted(key) => Some(key),
            Signature::Missing | Signature::UnknownKey(_) => None,
        }
    }
}

/// The parts of a manifest that name the library.
#[derive(Deserialize)]
struct CargoManifest {
    package: Option<CargoTarget>,
    lib: Option<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: Option<String>,
}

/// The folder in which the Makefile of a new engine leaves the library.
const MAKE_FOLDER: &str = "build";

fn library_in(folder: &Path) -> Result<PathBuf, PackageError> {
    let manifest = folder.join("Cargo.toml");
    if manifest.is_file() {
        cargo_library(folder, &manifest)
    } else if folder.join("Makefile").is_file() {
        makefile_library(folder)
    } else {
        only_library(folder)
    }
}

/// The library that `make` built, in the build folder or beside the Makefile.
fn makefile_library(folder: &Path) -> Result<PathBuf, PackageError> {
    let build = folder.join(MAKE_FOLDER);
    let place = if build.is_dir() { &build } else { folder };
    only_library(place).map_err(|error| match error {
        PackageError::NoLibrary { .. } => PackageError::NotMade { folder: folder.into() },
        other => other,
    })
}

/// The library of a crate, in the target folder of the crate or its workspace.
fn cargo_library(folder: &Path, manifest: &Path) -> Result<PathBuf, PackageError> {
    let no_package = || PackageError::NoPackage { path: manifest.into() };
    let text = ctxhost_files::read_text(manifest, ctxhost_files::SMALL_FILE_BYTES)
        .map_err(|_| no_package())?;
    let read: CargoManifest = toml::from_str(&text).map_err(|_| no_package())?;
    let name_of = |target: Option<CargoTarget>| target.and_then(|target| target.name);
    let name = name_of(read.lib).or_else(|| name_of(read.package)).ok_or_else(no_package)?;
    // Cargo replaces hyphens in the names of libraries.
    let library = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", name.replace('-', "_"));
    let named_target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    // A member of a workspace is built into the target folder of the workspace.
    let targets = whole.ancestors().map(|folder| folder.join("target"));
    let targets = named_target.into_iter().chain(targets);
    let found = targets.map(|target| target.join("release").join(&library));
    found
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| PackageError::NotBuilt { folder: folder.into(), library })
}

fn only_library(folder: &Path) -> Result<PathBuf, PackageError> {
    let unreadable = |source| LoadError::Unreadable { path: folder.into(), source };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == DLL_EXTENSION)).collect();
    match (found.pop(), found.len()) {
        (None, _) => Err(PackageError::NoLibrary { folder: folder.into() }),
        (Some(only), 0) => Ok(only),
        (Some(_), more) => {
            Err(PackageError::SeveralLibraries { folder: folder.into(), count: more + 1 })
        }
    }
}

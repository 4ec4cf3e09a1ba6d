//! The folder of a new engine: sources, tests, a CI file and a README, ready to build. It builds nothing itself.
//!
//! Templates are files below `scaffold/templates`, as they will stand in the folder but for a few words
//! between at signs: `@id@`, `@lib@`, `@engine_name@`, `@api_source@`.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod api_source;
mod engine_name;
mod templates;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::border::C_HEADER;

pub use api_source::{ApiSource, ApiSourceError};
pub use engine_name::{EngineName, EngineNameError};
use templates::FileTemplate;

/// The header of C engines, in their folder `include`.
const HEADER: &str = "ctxhost_engine.h";

/// What an engine is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaffoldLanguage {
    /// A crate that depends on `ctxhost-engine-api_source` alone.
    #[default]
    Rust,
    /// One source file against `ctxhost_engine.h`.
    C,
}

/// What to write.
#[derive(Clone, Debug)]
pub struct EngineScaffold {
    /// The engine's id.
    pub name: EngineName,
    /// What it is written in.
    pub language: ScaffoldLanguage,
    /// Where a Rust engine gets its one dependency from; nothing to one in C.
    pub api_source: ApiSource,
}

/// Why a folder was not written.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// Something of that name is there, and nothing is ever written over.
    #[error("{} exists already; choose another id, or another folder with --dir", folder.display())]
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// A file or folder could not be written. What was written before it is still there.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl EngineScaffold {
    /// Makes `folder` and fills it; answers the files in it, below the folder and sorted.
    ///
    /// # Errors
    ///
    /// [`ScaffoldError`]; a folder that was there before is never touched.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ScaffoldError> {
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(unwritable(parent))?;
        }
        fs::create_dir(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ScaffoldError::Exists { folder: folder.into() },
            _ => unwritable(folder)(error),
        })?;
        let mut written = Vec::new();
        for FileTemplate { path, text } in templates::files_for(self.language) {
            let path = PathBuf::from(self.filled(path));
            write_file(&folder.join(&path), &self.filled(text))?;
            written.push(path);
        }
        if self.language == ScaffoldLanguage::C {
            let path = PathBuf::from("include").join(HEADER);
            write_file(&folder.join(&path), C_HEADER)?;
            written.push(path);
        }
        written.sort();
        Ok(written)
    }

    /// A template's text with the words of this engine in their places.
    fn filled(&self, text: &str) -> String {
        let words = [
            ("@id@", self.name.id().to_owned()),
            ("@lib@", self.name.library()),
            ("@name@", self.name.title()),
            ("@engine_api@", self.api_source.dependency()),
        ];
        words.iter().fold(text.to_owned(), |text, (place, word)| text.replace(place, word))
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), ScaffoldError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(unwritable(folder))?;
    }
    fs::write(path, text).map_err(unwritable(path))
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> ScaffoldError + use<> {
    let path = path.to_owned();
    move |source| ScaffoldError::Unwritable { path, source }
}

#[cfg(test)]
mod tests;

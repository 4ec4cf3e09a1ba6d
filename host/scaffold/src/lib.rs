//! Writes the folder of a new engine: sources, tests, a CI file and a README.
//!
//! Templates are files in `src/templates` with the placeholders `@id@`, `@lib@`, `@name@`,
//! `@engine_api@`, and `@api_note@` with `@api_comment@` (the same text as a comment).

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

/// The file name of the header in a C engine's folder `include`.
const HEADER: &str = "ctxhost_engine.h";

/// The language of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaffoldLanguage {
    /// A crate that depends on `ctxhost-engine-api` only.
    #[default]
    Rust,
    /// One source file that includes `ctxhost_engine.h`.
    C,
}

/// The parameters of a new engine.
#[derive(Clone, Debug)]
pub struct EngineScaffold {
    /// The engine's id.
    pub name: EngineName,
    /// The language.
    pub language: ScaffoldLanguage,
    /// The source of the API dependency; unused in C.
    pub api_source: ApiSource,
}

/// Why a folder could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// The folder exists. Files are never overwritten.
    #[error("{} exists already; choose another id, or another folder with --dir. To change only the source of ctxhost-engine-api, edit its Cargo.toml", folder.display())]
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// A file or folder could not be written. The folder of the engine does not exist then.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
}

impl EngineScaffold {
    /// Creates `folder` and returns the relative paths of its files, sorted.
    ///
    /// # Errors
    ///
    /// [`ScaffoldError`]; an existing folder is not changed.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ScaffoldError> {
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(unwritable(parent))?;
        }
        // `create_dir` fails if the folder exists, without a race between check and creation.
        fs::create_dir(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ScaffoldError::Exists { folder: folder.into() },
            _ => unwritable(folder)(error),
        })?;
        remove_on_error(folder, || self.write_files(folder))
    }

    fn write_files(&self, folder: &Path) -> Result<Vec<PathBuf>, ScaffoldError> {
        let mut written = Vec::new();
        for FileTemplate { path, text } in templates::files_for(self.language) {
            let path = PathBuf::from(self.filled(path));
            write_file(&folder.join(&path), &self.filled(text))?;
            written.push(path);
        }
        // From the API crate, so that header and host have the same version.
        if self.language == ScaffoldLanguage::C {
            let path = PathBuf::from("include").join(HEADER);
            write_file(&folder.join(&path), C_HEADER)?;
            written.push(path);
        }
        written.sort();
        Ok(written)
    }

    /// Replaces the placeholders in a template.
    fn filled(&self, text: &str) -> String {
        let words = [
            ("@id@", self.name.id().to_owned()),
            ("@lib@", self.name.library()),
            ("@name@", self.name.title()),
            ("@engine_api@", self.api_source.dependency()),
            ("@api_note@", self.api_source.note().join("\n")),
            ("@api_comment@", format!("# {}", self.api_source.note().join("\n# "))),
        ];
        words.iter().fold(text.to_owned(), |text, (place, word)| text.replace(place, word))
    }
}

/// Fills a new folder, and removes it if that fails: half of it would refuse the next attempt.
fn remove_on_error<T>(
    folder: &Path,
    fill: impl FnOnce() -> Result<T, ScaffoldError>,
) -> Result<T, ScaffoldError> {
    fill().inspect_err(|_| {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(folder);
    })
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

//! Where the bytes of a pinned engine come from: a file below the lock file's folder, or a `file://` URL.

use std::io;
use std::path::{Component, Path, PathBuf};

use url::{Host, Url};

/// What separates a scheme from the rest of a URL.
const URL_MARK: &str = "://";

/// Why the source of a pin is not read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A path that leads out of the folder of the lock file.
    #[error("its source {source_text:?} leads out of {}", folder.display())]
    Outside {
        /// The source as written.
        source_text: String,
        /// The folder of the lock file.
        folder: PathBuf,
    },
    /// A URL that is not one of a file of this machine.
    #[error(
        "its source {source_text:?} is not read; a source is a path below ctxhost.lock, or a file:/// URL"
    )]
    Unsupported {
        /// The source as written.
        source_text: String,
    },
    /// The path cannot be resolved.
    #[error("cannot read its source {source_text:?}: {source}")]
    Unreadable {
        /// The source as written.
        source_text: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The path of a source that a user names: the file of a `file://` URL, else the text as a path.
///
/// # Errors
///
/// [`SourceError::Unsupported`] for other URLs.
pub fn named_path(source: &str) -> Result<PathBuf, SourceError> {
    if source.contains(URL_MARK) { url_path(source) } else { Ok(source.into()) }
}

/// The source to record for a library, so that another checkout finds it: a path below `folder` in
/// the form of [`relative_path`]; the URL if the user named one; else none, since a path of this
/// machine is of no use elsewhere. `folder` and `library` are canonical.
pub fn recorded_source(folder: &Path, named: &str, library: &Path) -> Option<String> {
    if named.contains(URL_MARK) {
        return Url::from_file_path(library).ok().map(String::from);
    }
    relative_path(folder, library)
}

/// The file of a recorded source. Paths stay below `folder` (canonical), links included: a lock
/// file may come from a stranger.
///
/// # Errors
///
/// [`SourceError`].
pub fn resolve_source(folder: &Path, source: &str) -> Result<PathBuf, SourceError> {
    if source.contains(URL_MARK) {
        return url_path(source);
    }
    let outside = || SourceError::Outside { source_text: source.into(), folder: folder.to_owned() };
    let parts = Path::new(source).components();
    if source.is_empty() || !parts.into_iter().all(|part| matches!(part, Component::Normal(_))) {
        return Err(outside());
    }
    let path = folder
        .join(source)
        .canonicalize()
        .map_err(|error| SourceError::Unreadable { source_text: source.into(), source: error })?;
    if path.starts_with(folder) { Ok(path) } else { Err(outside()) }
}

/// The path of a file below a folder, with `/` between its parts; `None` elsewhere, and for names
/// that are not Unicode.
pub fn relative_path(folder: &Path, file: &Path) -> Option<String> {
    let below = file.strip_prefix(folder).ok()?;
    let parts = below.components().map(|part| part.as_os_str().to_str());
    Some(parts.collect::<Option<Vec<_>>>()?.join("/"))
}

fn url_path(source: &str) -> Result<PathBuf, SourceError> {
    let unsupported = || SourceError::Unsupported { source_text: source.into() };
    let url = Url::parse(source).map_err(|_| unsupported())?;
    // A host would be a network share on Windows, and asking for it sends the user's credentials.
    let is_local = matches!(url.host(), None | Some(Host::Domain("localhost")));
    if url.scheme() != "file" || !is_local {
        return Err(unsupported());
    }
    url.to_file_path().map_err(|()| unsupported())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_sources_are_below_the_folder_or_urls() {
        let folder = Path::new("/home/ada/project");
        let below = Path::new("/home/ada/project/vendor/lib x.so");
        assert_eq!(recorded_source(folder, "x", below).as_deref(), Some("vendor/lib x.so"));
        assert_eq!(recorded_source(folder, "../lib.so", Path::new("/home/ada/lib.so")), None);
        assert_eq!(recorded_source(folder, "p", Path::new("/home/ada/project2/lib.so")), None);
        let url = recorded_source(folder, "file:///srv/e", Path::new("/srv/e/lib x.so"));
        assert_eq!(url.as_deref(), Some("file:///srv/e/lib%20x.so"));
        assert_eq!(named_path(&url.unwrap()).unwrap(), Path::new("/srv/e/lib x.so"));
        assert_eq!(named_path("a/b").unwrap(), Path::new("a/b"));
    }

    #[test]
    fn a_path_stays_below_the_folder() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().canonicalize().unwrap().join("project");
        std::fs::create_dir_all(folder.join("vendor")).unwrap();
        std::fs::write(folder.join("vendor/lib.so"), "x").unwrap();
        std::fs::write(outer.path().join("secret"), "x").unwrap();
        let found = resolve_source(&folder, "vendor/lib.so").unwrap();
        assert_eq!(found, folder.join("vendor/lib.so"));
        let absolute = outer.path().join("secret").display().to_string();
        for bad in ["../secret", "vendor/../../secret", "/etc/passwd", &absolute, "", "./lib.so/.."]
        {
            let error = resolve_source(&folder, bad).unwrap_err();
            assert!(matches!(error, SourceError::Outside { .. }), "{bad}: {error}");
        }
        let error = resolve_source(&folder, "vendor/gone.so").unwrap_err();
        assert!(matches!(error, SourceError::Unreadable { .. }), "{error}");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("../../secret", folder.join("vendor/link.so")).unwrap();
            let error = resolve_source(&folder, "vendor/link.so").unwrap_err();
            assert!(matches!(error, SourceError::Outside { .. }), "{error}");
        }
    }

    #[test]
    fn urls_are_those_of_local_files() {
        let folder = Path::new("/home/ada/project");
        assert_eq!(resolve_source(folder, "file:///srv/x.so").unwrap(), Path::new("/srv/x.so"));
        assert!(resolve_source(folder, "file://localhost/srv/x.so").is_ok());
        for bad in
            ["https://example.org/x.so", "file://server/share/x.so", "x://y", "://", "ftp://a/b"]
        {
            let error = resolve_source(folder, bad).unwrap_err();
            assert!(matches!(error, SourceError::Unsupported { .. }), "{bad}: {error}");
        }
    }
}

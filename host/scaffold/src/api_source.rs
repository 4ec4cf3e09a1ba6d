//! The source of the engine API dependency: a folder, a git repository or a registry version.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ctxhost_engine_api::border::EngineMetadata;

/// The package name.
const PACKAGE: &str = "ctxhost-engine-api";

/// The source of `ctxhost-engine-api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiSource {
    /// A folder with its sources.
    Path(PathBuf),
    /// A git repository that holds it.
    Git(String),
    /// A version of the registry.
    Version(String),
}

/// Why a source is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiSourceError {
    /// Neither a version, a URL nor an existing folder.
    #[error(
        "{text:?} is not a source of {PACKAGE}; use the folder with its Cargo.toml, a git URL, or a version such as 1.0"
    )]
    NotFound {
        /// What was given.
        text: String,
    },
    /// The folder contains another package.
    #[error("{} is not the package {PACKAGE}; use the folder engine-api of the ctxhost sources", folder.display())]
    OtherPackage {
        /// The folder.
        folder: PathBuf,
    },
}

impl ApiSource {
    /// The source tree that this program was built from, if it exists, else the API version of this program.
    pub fn default_source() -> ApiSource {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine-api");
        match beside.canonicalize() {
            Ok(folder) if is_engine_api(&folder) => ApiSource::Path(folder),
            _ => ApiSource::Version(spoken_version()),
        }
    }

    /// The content of the dependency's inline table in Cargo.toml.
    pub(super) fn dependency(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        match self {
            ApiSource::Path(folder) => format!("path = {}", quoted(&folder.to_string_lossy())),
            ApiSource::Git(url) => format!("git = {}", quoted(url)),
            ApiSource::Version(version) => format!("version = {}", quoted(version)),
        }
    }
}

impl ApiSource {
    /// What the author has to know of the source, in lines.
    pub(super) fn note(&self) -> &'static [&'static str] {
        match self {
            ApiSource::Path(_) => &[
                "ctxhost-engine-api is a path on this machine. Before others build the crate, replace the path in",
                "Cargo.toml by a version (version = \"1.0\") or a repository (git = \"https://…\"), in both places.",
            ],
            ApiSource::Git(_) => &[
                "ctxhost-engine-api comes from a git repository; `cargo update` takes its newest commit.",
            ],
            ApiSource::Version(_) => &[
                "ctxhost-engine-api comes from crates.io. If cargo does not find it there, use a checkout of ctxhost",
                "(path = \"…/engine-api\") or a repository (git = \"https://…\") in both places of Cargo.toml.",
            ],
        }
    }
}

impl fmt::Display for ApiSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiSource::Path(folder) => write!(f, "path {}", folder.display()),
            ApiSource::Git(url) => write!(f, "git {url}"),
            ApiSource::Version(version) => write!(f, "version {version}"),
        }
    }
}

impl FromStr for ApiSource {
    type Err = ApiSourceError;

    fn from_str(text: &str) -> Result<Self, ApiSourceError> {
        // First: a folder named like a version is less likely than a version.
        if is_version(text) {
            return Ok(ApiSource::Version(text.into()));
        }
        if text.contains("://") {
            return Ok(ApiSource::Git(text.into()));
        }
        match Path::new(text).canonicalize() {
            Ok(folder) if is_engine_api(&folder) => Ok(ApiSource::Path(folder)),
            Ok(folder) => Err(ApiSourceError::OtherPackage { folder }),
            Err(_) => Err(ApiSourceError::NotFound { text: text.into() }),
        }
    }
}

/// Major and minor version of the API that this program was built with.
fn spoken_version() -> String {
    let version = EngineMetadata::current().api;
    version.rsplit_once('.').map_or(version.clone(), |(minor, _)| minor.to_owned())
}

/// One to three numbers.
fn is_version(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split('.').count() <= 3 && text.split('.').all(is_number)
}

fn is_engine_api(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    // An unreadable manifest is not the package, which the error message says already.
    let manifest: toml::Table = manifest.parse().unwrap_or_default();
    let name = manifest.get("package").and_then(|package| package.get("name"));
    name.and_then(toml::Value::as_str) == Some(PACKAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_urls_and_folders_are_distinguished() {
        let version = ApiSource::Version("1.0".into());
        assert_eq!("1.0".parse(), Ok(version.clone()));
        assert_eq!(version.dependency(), r#"version = "1.0""#);
        let git: ApiSource = "https://example.org/ctxhost.git".parse().unwrap();
        assert_eq!(git.dependency(), r#"git = "https://example.org/ctxhost.git""#);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine-api");
        let path: ApiSource = folder.to_str().unwrap().parse().unwrap();
        assert_eq!(path, ApiSource::default_source());
        assert_eq!(path.dependency(), format!("path = {:?}", folder.canonicalize().unwrap()));
    }

    #[test]
    fn a_folder_without_the_package_is_rejected() {
        let refused = |text: &str| text.parse::<ApiSource>().unwrap_err();
        assert!(matches!(refused(env!("CARGO_MANIFEST_DIR")), ApiSourceError::OtherPackage { .. }));
        for nowhere in ["", "no/such/folder", "1.x", "1.0.0.0"] {
            assert!(matches!(refused(nowhere), ApiSourceError::NotFound { .. }), "{nowhere:?}");
        }
    }

    #[test]
    fn a_path_is_quoted() {
        let odd = ApiSource::Path(PathBuf::from("/a \"b\"/engine-api"));
        let table: toml::Table = format!("x = {{ {} }}", odd.dependency()).parse().unwrap();
        assert_eq!(table["x"]["path"].as_str(), Some("/a \"b\"/engine-api"));
    }
}

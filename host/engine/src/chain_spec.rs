//! The notation of a chain of engines: `mask+legacy`.

use std::env::consts::DLL_SUFFIX;
use std::path::Path;

use ctxhost_engine_api::EngineInfo;

/// The separator of the ids of a chain.
pub const CHAIN_SEPARATOR: char = '+';

/// The most engines in a chain. Each costs a pass over the transcript for every request, and the
/// combined effect of more strategies is unpredictable.
pub const MAX_CHAIN_LINKS: usize = 4;

/// Why engines do not form a chain. The messages continue "a chain of engines".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainSpecError {
    /// Too many engines.
    #[error("has at most {MAX_CHAIN_LINKS} engines, and this one has {engines}; leave some out")]
    TooMany {
        /// Their number.
        engines: usize,
    },
    /// An empty name.
    #[error(
        "has a name on each side of a {CHAIN_SEPARATOR}, and one is missing here; write it, or leave the {CHAIN_SEPARATOR} out"
    )]
    EmptyName,
    /// An engine that occurs twice.
    #[error("holds each engine once, and this one holds {id:?} twice; name it once")]
    Duplicate {
        /// Its id.
        id: String,
    },
}

/// Joins ids with the separator.
pub fn join_ids<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(&CHAIN_SEPARATOR.to_string())
}

/// The names in a chain. The path of an existing file is one name, whatever characters it contains.
pub fn split_ids(name: &str) -> Vec<&str> {
    if Path::new(name).is_file() {
        vec![name]
    } else {
        name.split(CHAIN_SEPARATOR).map(str::trim).collect()
    }
}

/// Whether the name of an engine is the path of its library: ids contain no `/` and no ending of libraries.
pub fn is_library_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(DLL_SUFFIX)
}

/// The names of a valid chain.
///
/// # Errors
///
/// [`ChainSpecError`].
pub fn parse_chain(name: &str) -> Result<Vec<&str>, ChainSpecError> {
    let names = split_ids(name);
    if names.len() > 1 && names.iter().any(|name| name.is_empty()) {
        return Err(ChainSpecError::EmptyName);
    }
    validate_chain(&names)?;
    Ok(names)
}

/// The versions of several engines, each with its id: `mask 0.1.0 + legacy 0.1.0`; of one engine,
/// its version alone.
pub fn format_versions<'i>(engines: impl IntoIterator<Item = &'i EngineInfo>) -> String {
    let engines: Vec<&EngineInfo> = engines.into_iter().collect();
    match engines.as_slice() {
        [only] => only.version.clone(),
        engines => {
            let versions = engines.iter().map(|info| format!("{} {}", info.id, info.version));
            versions.collect::<Vec<_>>().join(&format!(" {CHAIN_SEPARATOR} "))
        }
    }
}

/// An engine or a chain with the versions from [`format_versions`]; without a version, the name
/// alone.
pub fn format_engine(name: &str, version: &str) -> String {
    if name.contains(CHAIN_SEPARATOR) && !version.is_empty() {
        version.to_owned()
    } else {
        format!("{name} {version}").trim().to_owned()
    }
}

/// Refuses a chain that is too long or contains an engine twice.
///
/// # Errors
///
/// [`ChainSpecError`].
pub fn validate_chain<S: AsRef<str>>(names: &[S]) -> Result<(), ChainSpecError> {
    if names.len() > MAX_CHAIN_LINKS {
        return Err(ChainSpecError::TooMany { engines: names.len() });
    }
    for (index, name) in names.iter().enumerate() {
        if names.iter().take(index).any(|earlier| earlier.as_ref() == name.as_ref()) {
            return Err(ChainSpecError::Duplicate { id: name.as_ref().to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_written_as_one_word() {
        assert_eq!(split_ids("mask+legacy"), ["mask", "legacy"]);
        assert_eq!(split_ids("legacy"), ["legacy"]);
        assert_eq!(join_ids(["mask", "legacy"]), "mask+legacy");
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("c++.so");
        std::fs::write(&library, "").unwrap();
        let library = library.display().to_string();
        assert_eq!(split_ids(&library), [library.as_str()]);
    }

    #[test]
    fn a_chain_has_a_limit_and_holds_an_engine_once() {
        assert_eq!(validate_chain(&["a", "b", "c", "d"]), Ok(()));
        assert_eq!(validate_chain(&["a"; 5]), Err(ChainSpecError::TooMany { engines: 5 }));
        assert_eq!(
            validate_chain(&["a", "b", "a"]),
            Err(ChainSpecError::Duplicate { id: "a".into() })
        );
        assert_eq!(parse_chain("mask + legacy"), Ok(vec!["mask", "legacy"]));
        for blank in ["mask+", "+mask", "+", "mask++legacy"] {
            assert_eq!(parse_chain(blank), Err(ChainSpecError::EmptyName), "{blank}");
        }
    }

    #[test]
    fn each_version_follows_its_engine() {
        let engine = |id: &str, version: &str| EngineInfo {
            id: id.into(),
            version: version.into(),
            ..EngineInfo::default()
        };
        let (mask, legacy) = (engine("mask", "1.0.0+exp"), engine("legacy", "0.1.0"));
        assert_eq!(format_versions([&mask, &legacy]), "mask 1.0.0+exp + legacy 0.1.0");
        assert_eq!(format_versions([&mask]), "1.0.0+exp");
        assert_eq!(
            format_engine("mask+legacy", &format_versions([&mask, &legacy])),
            "mask 1.0.0+exp + legacy 0.1.0"
        );
        assert_eq!(format_engine("mask", "0.1.0"), "mask 0.1.0");
        assert_eq!(format_engine("mask+legacy", ""), "mask+legacy");
    }
}

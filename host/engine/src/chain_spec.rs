//! Several engines in one slot, as they are written: `mask+legacy`.

use std::path::Path;

use ctxhost_engine_api::EngineInfo;

/// What stands between engines that are written as one word.
pub const CHAIN_SEPARATOR: char = '+';

/// Engines in one row, at most. Each costs a pass over the transcript before every request, and what
/// four strategies in a row do to a conversation nobody can foresee any more.
pub const MAX_CHAIN_LINKS: usize = 4;

/// Why several engines cannot stand in a row; to follow "a row of engines".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainSpecError {
    /// There are too many of them.
    #[error("has at most {MAX_CHAIN_LINKS} of them, and this one has {engines}; leave some out")]
    TooMany {
        /// How many.
        engines: usize,
    },
    /// A place in it is blank.
    #[error(
        "has a name on each side of a {CHAIN_SEPARATOR}, and one is missing here; write it, or leave the {CHAIN_SEPARATOR} out"
    )]
    EmptyName,
    /// One of them comes twice.
    #[error("holds each engine once, and this one holds {id:?} twice; name it once")]
    Duplicate {
        /// Which.
        id: String,
    },
}

/// Names as one word.
pub fn join_ids<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(&CHAIN_SEPARATOR.to_string())
}

/// The names in one word; a library that is there is one name, whatever stands in it.
pub fn split_ids(name: &str) -> Vec<&str> {
    match Path::new(name).is_file() {
        true => vec![name],
        false => name.split(CHAIN_SEPARATOR).map(str::trim).collect(),
    }
}

/// The names in one word that makes a row.
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

/// The versions of engines in a row, each with its engine: `mask 0.1.0 + legacy 0.1.0`. Of one engine, its
/// version alone.
pub fn format_versions<'i>(engines: impl IntoIterator<Item = &'i EngineInfo>) -> String {
    let engines: Vec<&EngineInfo> = engines.into_iter().collect();
    match engines.as_slice() {
        [only] => only.version.clone(),
        engines => {
            let told = engines.iter().map(|info| format!("{} {}", info.id, info.version));
            told.collect::<Vec<_>>().join(&format!(" {CHAIN_SEPARATOR} "))
        }
    }
}

/// An engine, or several in a row, with the versions as [`format_versions`] tells them; one without a version is
/// its name alone.
pub fn format_engine(name: &str, version: &str) -> String {
    match name.contains(CHAIN_SEPARATOR) && !version.is_empty() {
        true => version.to_owned(),
        false => format!("{name} {version}").trim().to_owned(),
    }
}

/// Refuses a row that is too long or holds an engine twice.
///
/// # Errors
///
/// [`ChainSpecError`].
pub fn validate_chain<S: AsRef<str>>(names: &[S]) -> Result<(), ChainSpecError> {
    if names.len() > MAX_CHAIN_LINKS {
        return Err(ChainSpecError::TooMany { engines: names.len() });
    }
    for (place, name) in names.iter().enumerate() {
        if names.iter().take(place).any(|earlier| earlier.as_ref() == name.as_ref()) {
            return Err(ChainSpecError::Duplicate { id: name.as_ref().to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_written_as_one_word() {
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
    fn a_row_has_an_end_and_no_engine_twice() {
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
    fn each_version_stands_beside_its_engine() {
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

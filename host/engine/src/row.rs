//! Several engines in one slot, as they are written: `mask+legacy`.

use std::path::Path;

use ctxhost_engine_api::EngineInfo;

/// What stands between engines that are written as one word.
pub const JOINT: char = '+';

/// Engines in one row, at most. Each costs a pass over the transcript before every request, and what
/// four strategies in a row do to a conversation nobody can foresee any more.
pub const MAX_STAGES: usize = 4;

/// Why several engines cannot stand in a row; to follow "a row of engines".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// There are too many of them.
    #[error("has at most {MAX_STAGES} of them, and this one has {engines}; leave some out")]
    TooMany {
        /// How many.
        engines: usize,
    },
    /// A place in it is blank.
    #[error(
        "has a name on each side of a {JOINT}, and one is missing here; write it, or leave the {JOINT} out"
    )]
    Blank,
    /// One of them comes twice.
    #[error("holds each engine once, and this one holds {id:?} twice; name it once")]
    Twice {
        /// Which.
        id: String,
    },
}

/// Names as one word.
pub fn joined<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(&JOINT.to_string())
}

/// The names in one word; a library that is there is one name, whatever stands in it.
pub fn stages(name: &str) -> Vec<&str> {
    match Path::new(name).is_file() {
        true => vec![name],
        false => name.split(JOINT).map(str::trim).collect(),
    }
}

/// The names in one word that makes a row.
///
/// # Errors
///
/// [`RowError`].
pub fn read_row(name: &str) -> Result<Vec<&str>, RowError> {
    let names = stages(name);
    if names.len() > 1 && names.iter().any(|name| name.is_empty()) {
        return Err(RowError::Blank);
    }
    check_row(&names)?;
    Ok(names)
}

/// The versions of engines in a row, each with its engine: `mask 0.1.0 + legacy 0.1.0`. Of one engine, its
/// version alone.
pub fn versions<'i>(engines: impl IntoIterator<Item = &'i EngineInfo>) -> String {
    let engines: Vec<&EngineInfo> = engines.into_iter().collect();
    match engines.as_slice() {
        [only] => only.version.clone(),
        engines => {
            let told = engines.iter().map(|info| format!("{} {}", info.id, info.version));
            told.collect::<Vec<_>>().join(&format!(" {JOINT} "))
        }
    }
}

/// An engine, or several in a row, with the versions as [`versions`] tells them; one without a version is
/// its name alone.
pub fn with_version(name: &str, version: &str) -> String {
    match name.contains(JOINT) && !version.is_empty() {
        true => version.to_owned(),
        false => format!("{name} {version}").trim().to_owned(),
    }
}

/// Refuses a row that is too long or holds an engine twice.
///
/// # Errors
///
/// [`RowError`].
pub fn check_row<S: AsRef<str>>(names: &[S]) -> Result<(), RowError> {
    if names.len() > MAX_STAGES {
        return Err(RowError::TooMany { engines: names.len() });
    }
    for (place, name) in names.iter().enumerate() {
        if names.iter().take(place).any(|earlier| earlier.as_ref() == name.as_ref()) {
            return Err(RowError::Twice { id: name.as_ref().to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_written_as_one_word() {
        assert_eq!(stages("mask+legacy"), ["mask", "legacy"]);
        assert_eq!(stages("legacy"), ["legacy"]);
        assert_eq!(joined(["mask", "legacy"]), "mask+legacy");
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("c++.so");
        std::fs::write(&library, "").unwrap();
        let library = library.display().to_string();
        assert_eq!(stages(&library), [library.as_str()]);
    }

    #[test]
    fn a_row_has_an_end_and_no_engine_twice() {
        assert_eq!(check_row(&["a", "b", "c", "d"]), Ok(()));
        assert_eq!(check_row(&["a"; 5]), Err(RowError::TooMany { engines: 5 }));
        assert_eq!(check_row(&["a", "b", "a"]), Err(RowError::Twice { id: "a".into() }));
        assert_eq!(read_row("mask + legacy"), Ok(vec!["mask", "legacy"]));
        for blank in ["mask+", "+mask", "+", "mask++legacy"] {
            assert_eq!(read_row(blank), Err(RowError::Blank), "{blank}");
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
        assert_eq!(versions([&mask, &legacy]), "mask 1.0.0+exp + legacy 0.1.0");
        assert_eq!(versions([&mask]), "1.0.0+exp");
        assert_eq!(
            with_version("mask+legacy", &versions([&mask, &legacy])),
            "mask 1.0.0+exp + legacy 0.1.0"
        );
        assert_eq!(with_version("mask", "0.1.0"), "mask 0.1.0");
        assert_eq!(with_version("mask+legacy", ""), "mask+legacy");
    }
}

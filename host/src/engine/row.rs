//! Several engines in one slot, as they are written: `mask+legacy`.

use std::path::Path;

/// What stands between engines that are written as one word.
pub const JOINT: char = '+';

/// Engines in one row, at most. Each costs a pass over the transcript before every request, and what
/// four strategies in a row do to a conversation nobody can foresee any more.
pub const MAX_STAGES: usize = 4;

/// Why several engines cannot stand in a row; to follow "a stack of engines".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// There are too many of them.
    #[error("has at most {MAX_STAGES} stages, and this one has {stages}; leave some out")]
    TooMany {
        /// How many.
        stages: usize,
    },
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

/// Refuses a row that is too long or holds an engine twice.
///
/// # Errors
///
/// [`RowError`].
pub fn check_row<S: AsRef<str>>(names: &[S]) -> Result<(), RowError> {
    if names.len() > MAX_STAGES {
        return Err(RowError::TooMany { stages: names.len() });
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
        assert_eq!(check_row(&["a"; 5]), Err(RowError::TooMany { stages: 5 }));
        assert_eq!(check_row(&["a", "b", "a"]), Err(RowError::Twice { id: "a".into() }));
    }
}

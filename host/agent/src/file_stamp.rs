//! Detects changes of a file by its metadata.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use ctxhost_platform::files::change_marks;

/// The metadata of a file that changes with its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FileStamp {
    /// The file does not exist.
    #[default]
    Missing,
    /// The metadata cannot be read, such as that of a file in a folder of another user.
    Unreadable(ErrorKind),
    /// What the metadata say.
    Found { bytes: u64, marks: [i64; 5] },
}

impl FileStamp {
    /// The stamp of a file, following links.
    pub(crate) fn read(path: &Path) -> FileStamp {
        match fs::metadata(path) {
            Ok(file) => FileStamp::Found { bytes: file.len(), marks: change_marks(&file) },
            Err(error) if error.kind() == ErrorKind::NotFound => FileStamp::Missing,
            // Not as if the file were missing: the caller has to learn that it cannot be read.
            Err(error) => FileStamp::Unreadable(error.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_not_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert_eq!(FileStamp::read(&file), FileStamp::Missing);
        fs::write(&file, "12").unwrap();
        assert!(matches!(FileStamp::read(&file), FileStamp::Found { bytes: 2, .. }));
        // A folder without access would do, but the administrator may read those.
        let below = FileStamp::read(&file.join("below"));
        assert_eq!(below, FileStamp::Unreadable(ErrorKind::NotADirectory));
    }
}

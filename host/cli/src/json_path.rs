//! Paths in JSON, which is text: bytes of a name that are not UTF-8 are replaced.

use std::path::{Path, PathBuf};

use serde::Serializer;

/// A path as a JSON string. Serde refuses names that are not UTF-8.
pub(super) fn json_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// [`json_path`] for a field of a struct.
pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// [`json_path`] for a field with a list.
pub(super) fn serialize_list<S: Serializer>(
    paths: &[PathBuf],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| json_path(path)))
}

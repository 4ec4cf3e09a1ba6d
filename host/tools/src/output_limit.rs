//! How much of a text the model gets, and where the rest of it is kept.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// The most text that one answer holds: some 12,000 tokens, which every window in use bears.
pub(super) const OUTPUT_MAX_BYTES: usize = 50 * 1024;

/// How the files begin that hold what was too long.
const SAVED_PREFIX: &str = "ctxhost-output-";

/// The first whole lines of a text that fit; where not one does, as many characters.
pub(super) fn first_lines(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let cut = text.get(..text.floor_char_boundary(max_bytes)).unwrap_or_default();
    match cut.rfind('\n') {
        Some(end) => cut.get(..=end).unwrap_or(cut),
        None => cut,
    }
}

/// The last whole lines of a text that fit; where not one does, as many characters.
pub(super) fn last_lines(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let start = text.ceil_char_boundary(text.len() - max_bytes);
    // A cut that falls between two lines leaves both whole.
    if text.get(..start).is_some_and(|before| before.ends_with('\n')) {
        return text.get(start..).unwrap_or_default();
    }
    let cut = text.get(start..).unwrap_or_default();
    match cut.find('\n') {
        Some(end) if end + 1 < cut.len() => cut.get(end + 1..).unwrap_or(cut),
        _ => cut,
    }
}

/// A text that fits, or its head with a notice where the whole of it is kept.
pub(super) fn truncate_with_notice(text: String) -> String {
    if text.len() <= OUTPUT_MAX_BYTES {
        return text;
    }
    let kept = match save(text.as_bytes()) {
        Ok(path) => format!("all of it is in {}", path.display()),
        Err(error) => format!("the rest is lost, for it could not be saved: {error}"),
    };
    let shown = first_lines(&text, OUTPUT_MAX_BYTES);
    let break_line = if shown.ends_with('\n') { "" } else { "\n" };
    format!(
        "{shown}{break_line}[cut: these are the first {} of {} bytes; {kept}]",
        shown.len(),
        text.len()
    )
}

/// A new file for what is too long. It stays when the process ends, so that the session can go on.
pub(super) fn create_output_file() -> io::Result<NamedTempFile> {
    Builder::new().prefix(SAVED_PREFIX).suffix(".txt").tempfile()
}

fn save(bytes: &[u8]) -> io::Result<PathBuf> {
    let mut file = create_output_file()?;
    file.write_all(bytes)?;
    let (_, path) = file.keep().map_err(|error| error.error)?;
    Ok(path)
}

/// Whether a path, with its links followed, is such a file. Confined tools may read it.
pub(super) fn is_output_file(real_path: &Path) -> bool {
    let folder = std::env::temp_dir().canonicalize();
    let name = real_path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(SAVED_PREFIX)
        && folder.is_ok_and(|folder| real_path.parent() == Some(folder.as_path()))
}

//! Limits the output for the model, and saves the rest to a file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// The largest text in one result: about 12,000 tokens, which fits every common window.
pub(super) const OUTPUT_MAX_BYTES: usize = 50 * 1024;

/// The name prefix of output files.
const SAVED_PREFIX: &str = "ctxhost-output-";

/// The first lines that fit; the first characters if not even one line fits.
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

/// The last lines that fit; the last characters if not even one line fits.
pub(super) fn last_lines(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let start = text.ceil_char_boundary(text.len() - max_bytes);
    // The cut is between two lines already.
    if text.get(..start).is_some_and(|before| before.ends_with('\n')) {
        return text.get(start..).unwrap_or_default();
    }
    let cut = text.get(start..).unwrap_or_default();
    match cut.find('\n') {
        Some(end) if end + 1 < cut.len() => cut.get(end + 1..).unwrap_or(cut),
        _ => cut,
    }
}

/// The text if it fits, else its first lines with a notice about the file.
pub(super) fn truncate_with_notice(text: String) -> String {
    if text.len() <= OUTPUT_MAX_BYTES {
        return text;
    }
    let saved = match save(text.as_bytes()) {
        Ok(path) => format!("all of it is in {}", path.display()),
        Err(error) => format!("the rest is lost, for it could not be saved: {error}"),
    };
    let displayed = first_lines(&text, OUTPUT_MAX_BYTES);
    let break_line = if displayed.ends_with('\n') { "" } else { "\n" };
    format!(
        "{displayed}{break_line}[cut: these are the first {} of {} bytes; {saved}]",
        displayed.len(),
        text.len()
    )
}

/// Creates an output file. It is kept when the process ends, because a resumed session may refer to it.
pub(super) fn create_output_file() -> io::Result<NamedTempFile> {
    // The prefix also marks files that confined tools may read, see `is_output_file`.
    Builder::new().prefix(SAVED_PREFIX).suffix(".txt").tempfile()
}

fn save(bytes: &[u8]) -> io::Result<PathBuf> {
    let mut file = create_output_file()?;
    file.write_all(bytes)?;
    let (_, path) = file.keep().map_err(|error| error.error)?;
    Ok(path)
}

/// Whether a resolved path is an output file, which confined tools may read.
pub(super) fn is_output_file(real_path: &Path) -> bool {
    let folder = std::env::temp_dir().canonicalize();
    let name = real_path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(SAVED_PREFIX)
        && folder.is_ok_and(|folder| real_path.parent() == Some(folder.as_path()))
}

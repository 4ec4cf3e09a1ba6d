//! Limits the output for the model, and saves the rest to a file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, SystemTime};

use ctxhost_platform::files::foreign_owner;
use tempfile::{Builder, NamedTempFile};

/// The largest text in one result: about 12,000 tokens, which fits every common window.
pub(super) const OUTPUT_MAX_BYTES: usize = 50 * 1024;

/// The name prefix of output files.
const SAVED_PREFIX: &str = "ctxhost-output-";

/// Their suffix.
const SAVED_SUFFIX: &str = ".txt";

/// How long an output file is kept after it was written: longer than a working day.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

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

/// Creates an output file. It is kept when the process ends, because a resumed session may refer to it, and removed by a
/// later process, see [`remove_old_files`].
pub(super) fn create_output_file() -> io::Result<NamedTempFile> {
    // The prefix also marks files that confined tools may read, see `is_output_file`.
    Builder::new().prefix(SAVED_PREFIX).suffix(SAVED_SUFFIX).tempfile()
}

/// Removes old output files of this user, once in a process and on a thread of its own, since a folder of temporary files may
/// be large.
pub(super) fn remove_old_files() {
    static REMOVAL: Once = Once::new();
    REMOVAL.call_once(|| {
        let work = || remove_files_before(&std::env::temp_dir(), SystemTime::now(), KEPT);
        let started = std::thread::Builder::new().name("old outputs".into()).spawn(work);
        if let Err(error) = started {
            tracing::debug!(%error, "cannot start the removal of old output files");
        }
    });
}

fn remove_files_before(folder: &Path, now: SystemTime, kept: Duration) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(SAVED_PREFIX) || !name.ends_with(SAVED_SUFFIX) {
            continue;
        }
        // Not of the target of a link.
        let Ok(file) = entry.metadata() else { continue };
        let age = file.modified().ok().and_then(|written| now.duration_since(written).ok());
        let is_old = age.is_some_and(|age| age > kept);
        if file.is_file()
            && is_old
            && foreign_owner(&file).is_none()
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::debug!(file = %name, %error, "cannot remove an old output file");
        }
    }
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn old_output_files_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let write = |name: &str, age_hours: u64| {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(now - Duration::from_secs(age_hours * 60 * 60)).unwrap();
        };
        write("ctxhost-output-old.txt", 25);
        write("ctxhost-output-new.txt", 23);
        write("ctxhost-output-old.log", 25);
        write("notes.txt", 25);
        std::fs::create_dir(folder.path().join("ctxhost-output-folder.txt")).unwrap();
        remove_files_before(folder.path(), now, KEPT);
        let names = std::fs::read_dir(folder.path()).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        names.sort();
        assert_eq!(
            names,
            [
                "ctxhost-output-folder.txt",
                "ctxhost-output-new.txt",
                "ctxhost-output-old.log",
                "notes.txt"
            ]
        );
    }
}

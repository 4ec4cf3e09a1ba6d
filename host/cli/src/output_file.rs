//! The file that `--report` or `--out` names, which never replaces an input of the command.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::error::CliError;
use ctxhost_files::{FileAccess, replace_file};
use ctxhost_platform::files::path_identity;

/// The start of every page that is written.
const PAGE_START: &str = "<!doctype html>";

/// A file to write. An existing one is replaced, except a session or question file that is read.
pub(super) struct OutputFile {
    path: PathBuf,
}

impl OutputFile {
    /// Fails if the file is one of the inputs, by any path.
    pub(super) fn new(path: &Path, inputs: &[PathBuf]) -> Result<OutputFile, CliError> {
        let identity = |path: &Path| path_identity(&path.canonicalize().ok()?).ok();
        let own = identity(path);
        // A session in a database is named as if the database were a folder.
        let is_own = |input: &Path| own.is_some() && input.ancestors().find_map(identity) == own;
        match inputs.iter().find(|input| is_own(input)) {
            Some(input) => {
                let (path, input) = (path.display(), input.display());
                let message = format!("{path} is the input {input}, which would be overwritten");
                Err(CliError::user(message).hint("use another file name"))
            }
            None => Ok(OutputFile { path: path.to_owned() }),
        }
    }

    /// The file of an HTML page. It replaces a page only: the command reads more than sessions, such as a config and the
    /// libraries of engines.
    pub(super) fn page(path: &Path, inputs: &[PathBuf]) -> Result<OutputFile, CliError> {
        let file = OutputFile::new(path, inputs)?;
        if path.is_file() && !is_page(path)? {
            let message = format!("{} is not a page, and would be overwritten", path.display());
            return Err(CliError::user(message).hint("use another file name, or delete it first"));
        }
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), CliError> {
        write_whole(&self.path, bytes)
    }
}

/// Writes a file that did not exist or is replaced as a whole: what fails leaves the old one.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let is_special = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    // A link stays, and a device or a pipe is written to.
    let target = if is_link { path.canonicalize().ok() } else { Some(path.to_owned()) };
    let Some(target) = target.filter(|_| !is_special) else { return write_in_place(path, bytes) };
    match replace_file(&target, bytes, FileAccess::Inherited) {
        // The file may be writable in a folder that is not.
        Err(error) if error.source.kind() == ErrorKind::PermissionDenied && target.exists() => {
            write_in_place(path, bytes)
        }
        // Without its folder the file cannot be written, and this error names the file.
        Err(error) if error.source.kind() == ErrorKind::NotFound => write_in_place(path, bytes),
        written => written.map_err(|error| CliError::internal(error.to_string())),
    }
}

fn write_in_place(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    std::fs::write(path, bytes)
        .map_err(|error| CliError::internal(format!("cannot write {}: {error}", path.display())))
}

/// Whether a file is empty or starts like a page.
fn is_page(path: &Path) -> Result<bool, CliError> {
    let mut start = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(PAGE_START.len() as u64).read_to_end(&mut start));
    read.map_err(|error| CliError::user(format!("cannot read {}: {error}", path.display())))?;
    Ok(start.is_empty() || start.eq_ignore_ascii_case(PAGE_START.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let [input, link, hard, other] =
            ["s.jsonl", "link", "hard", "page.html"].map(|name| folder.path().join(name));
        std::fs::write(&input, "a session").unwrap();
        std::os::unix::fs::symlink(&input, &link).unwrap();
        std::fs::hard_link(&input, &hard).unwrap();
        let inputs = [folder.path().join("missing"), input.clone()];
        let database = folder.path().join("sessions.db");
        std::fs::write(&database, "sessions").unwrap();
        assert!(OutputFile::new(&database, &[database.join("ses_1")]).is_err());
        for path in [&input, &link, &hard, &folder.path().join("./s.jsonl")] {
            assert!(OutputFile::new(path, &inputs).is_err(), "{}", path.display());
        }
        for _ in 0..2 {
            OutputFile::new(&other, &inputs).unwrap().write(b"a page").unwrap();
        }
        assert_eq!(std::fs::read(&other).unwrap(), b"a page");
        assert_eq!(std::fs::read(&input).unwrap(), b"a session");
    }

    #[test]
    fn a_page_is_replaced_as_a_whole_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        std::fs::write(&page, "the old page").unwrap();
        let kept = std::fs::File::open(&page).unwrap();
        write_whole(&page, b"a new page").unwrap();
        // The old file was not touched, so a failed write could not have emptied it.
        assert_eq!(std::io::read_to_string(kept).unwrap(), "the old page");
        let link = folder.path().join("link.html");
        std::os::unix::fs::symlink(&page, &link).unwrap();
        write_whole(&link, b"by the link").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "by the link");
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "no file is left beside it");
    }
}

//! The file that `--report` or `--out` names, which is never an input of the command.

use std::path::{Path, PathBuf};

use super::error::CliError;
use ctxhost_platform::files::path_identity;

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

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), CliError> {
        std::fs::write(&self.path, bytes).map_err(|error| {
            CliError::internal(format!("cannot write {}: {error}", self.path.display()))
        })
    }
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
}

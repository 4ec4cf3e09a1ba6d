//! The files beside sessions, from one list for each folder.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Sorted names of the files in folders. A folder with thousands of sessions is read once for all of them.
#[derive(Debug, Default)]
pub(super) struct FolderFiles {
    names: HashMap<PathBuf, Vec<OsString>>,
}

impl FolderFiles {
    /// The files named `<session>.<suffix>` that still exist, by suffix.
    pub(super) fn sidecars(&mut self, session: &Path) -> Vec<(String, PathBuf)> {
        let folder = session.parent().filter(|folder| !folder.as_os_str().is_empty());
        let names = match self.names.entry(folder.unwrap_or(Path::new(".")).to_owned()) {
            Entry::Occupied(listed) => listed.into_mut(),
            Entry::Vacant(free) => {
                let names = list_names(free.key());
                free.insert(names)
            }
        };
        let mut prefix = session.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        let first = names.partition_point(|name| name < &prefix);
        let own =
            names.iter().skip(first).map_while(|name| Some((suffix_of(name, &prefix)?, name)));
        let sidecars = own.map(|(suffix, name)| (suffix, session.with_file_name(name)));
        // A process that has closed its session since has removed its temporary files.
        sidecars.filter(|(_, path)| path.symlink_metadata().is_ok()).collect()
    }
}

fn list_names(folder: &Path) -> Vec<OsString> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = files.map(|file| file.file_name()).collect();
    names.sort();
    names
}

fn suffix_of(name: &OsStr, prefix: &OsStr) -> Option<String> {
    let suffix = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes())?;
    Some(String::from_utf8_lossy(suffix).into_owned())
}

//! Names the libraries of `plugins.engine_dirs` that have one engine id, of which only one is used.

use std::collections::BTreeMap;
use std::env::consts::DLL_EXTENSION;
use std::path::{Path, PathBuf};

use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_config::Config;
use ctxhost_engine::{EngineSource, inspect};

/// One line for each of `ids`, or of all engines if it is `None`, that several libraries of the folders have.
pub(crate) fn duplicate_notes(config: &Config, ids: Option<&[&str]>) -> Vec<String> {
    let mut libraries: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in config.plugins.engine_dirs.iter().flat_map(|folder| files_in(folder)) {
        // Other libraries in the folder are ignored, as by a host.
        let Ok(found) = inspect(&path) else { continue };
        let paths = libraries.entry(found.meta.id).or_default();
        // A folder may be listed twice, and a link may name a file beside it.
        if !paths.iter().any(|known| is_same_file(known, &path)) {
            paths.push(path);
        }
    }
    libraries
        .retain(|id, paths| paths.len() > 1 && ids.is_none_or(|ids| ids.contains(&id.as_str())));
    if libraries.is_empty() {
        return Vec::new();
    }
    let registry = EngineRegistry::load(config);
    let note = |(id, paths): (&String, &Vec<PathBuf>)| {
        // Named in its entry: the user has chosen.
        if config.plugins.entries.get(id).is_some_and(|entry| entry.path.is_some()) {
            return None;
        }
        let used = match &registry.engine(id)?.source {
            EngineSource::File(path) => format!("{}, the first", path.display()),
            EngineSource::Bundled | EngineSource::Linked(_) => "the bundled engine".to_owned(),
        };
        Some(describe(id, paths, &used))
    };
    libraries.iter().filter_map(note).collect()
}

fn describe(id: &str, paths: &[PathBuf], used: &str) -> String {
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    format!(
        "engine {id:?} is in {} libraries of plugins.engine_dirs: {}; used is {used}; remove the others, or \
         name one in [plugins.entries.{id}] path",
        shown.len(),
        shown.join(" and ")
    )
}

/// The libraries of a folder, in the order in which a host reads them.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_library = |path: &PathBuf| path.extension().is_some_and(|found| found == DLL_EXTENSION);
    let mut found: Vec<PathBuf> = paths.filter(is_library).collect();
    found.sort();
    found
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_paths_and_the_used_one_are_named() {
        let paths = ["/a/libkeep.so", "/b/libkeep.so"].map(PathBuf::from);
        assert_eq!(
            describe("keep", &paths, "/a/libkeep.so, the first"),
            "engine \"keep\" is in 2 libraries of plugins.engine_dirs: /a/libkeep.so and /b/libkeep.so; used is \
             /a/libkeep.so, the first; remove the others, or name one in [plugins.entries.keep] path"
        );
    }

    #[test]
    fn a_folder_without_libraries_has_no_duplicates() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("notes.txt"), "").unwrap();
        std::fs::write(folder.path().join(format!("libx.{DLL_EXTENSION}")), "no engine").unwrap();
        let text = format!("plugins.engine_dirs = [{:?}]\n", folder.path().display().to_string());
        let config = Config::parse("ctxhost.toml", &text).unwrap();
        assert_eq!(duplicate_notes(&config, None), Vec::<String>::new());
        assert_eq!(files_in(folder.path()).len(), 1);
    }
}

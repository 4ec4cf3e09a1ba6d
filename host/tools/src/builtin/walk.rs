//! The walk through folders that `list` and `grep` share: sorted, without what git ignores.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{Walk, WalkBuilder};

use crate::error::ToolError;

/// What is walked through.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkOptions {
    /// How deep; 1 for what stands in the folder itself. All the way down where there is none.
    pub(super) depth: Option<usize>,
    /// Whether files that git ignores are walked through too.
    pub(super) include_ignored: bool,
}

/// Everything below a folder, in the order of names. Links are not followed, so that the walk ends
/// and stays in its folder.
pub(super) fn walk(base: &Path, scope: WalkOptions) -> Walk {
    let respects = !scope.include_ignored;
    WalkBuilder::new(base)
        .max_depth(scope.depth)
        .hidden(false)
        .ignore(respects)
        .git_ignore(respects)
        .git_global(respects)
        .git_exclude(respects)
        .parents(respects)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build()
}

/// A glob as people mean it: one without a slash is about names, at any depth.
pub(super) fn glob(written: &str) -> Result<GlobMatcher, ToolError> {
    let deep = if written.contains('/') {
        written.trim_start_matches("./").to_owned()
    } else {
        format!("**/{written}")
    };
    let glob = GlobBuilder::new(&deep).literal_separator(true).build();
    let bad = |error: globset::Error| ToolError::BadPattern {
        cause: format!(
            "`{written}` is no glob: {}; write one such as *.rs or src/**/*.ts",
            error.kind()
        ),
    };
    Ok(glob.map_err(bad)?.compile_matcher())
}

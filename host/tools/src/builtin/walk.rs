//! The directory walk of `list` and `grep`: sorted, without git-ignored files.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{Walk, WalkBuilder};

use crate::error::ToolError;

/// What a walk includes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkOptions {
    /// The maximum depth; 1 for the folder itself, `None` for no limit.
    pub(super) depth: Option<usize>,
    /// Whether git-ignored files are included.
    pub(super) include_ignored: bool,
}

/// All entries below a folder, sorted by name. Links are not followed, so the walk ends and stays in its folder.
pub(super) fn walk(base: &Path, scope: WalkOptions) -> Walk {
    let respects = !scope.include_ignored;
    WalkBuilder::new(base)
        .max_depth(scope.depth)
        // An agent needs dotfiles such as `.github` and `.env.example`.
        .hidden(false)
        .ignore(respects)
        .git_ignore(respects)
        .git_global(respects)
        .git_exclude(respects)
        .parents(respects)
        // `.gitignore` applies outside of a git repository, too.
        .require_git(false)
        .follow_links(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build()
}

/// Parses a glob. One without a slash matches names at any depth.
pub(super) fn glob(written: &str) -> Result<GlobMatcher, ToolError> {
    let deep = if written.contains('/') {
        written.trim_start_matches("./").to_owned()
    } else {
        format!("**/{written}")
    };
    let glob = GlobBuilder::new(&deep).literal_separator(true).build();
    let bad = |error: globset::Error| ToolError::BadPattern {
        cause: format!(
            "invalid glob `{written}`: {}; write one such as *.rs or src/**/*.ts",
            error.kind()
        ),
    };
    Ok(glob.map_err(bad)?.compile_matcher())
}

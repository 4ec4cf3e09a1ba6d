//! `grep`: searches files for a regular expression.

use std::path::Path;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::file_tool::{CallFolders, FileTool};
use super::text_file::{self, SearchedFile};
use super::walk::{WalkOptions, glob, walk};
use crate::blocking_task::CancelFlag;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::output_limit::OUTPUT_MAX_BYTES;
use crate::paths::PathAccess;

/// The most lines of a result, and the default.
const MATCHES_MAX: usize = 200;

/// The length at which a line is cut, so that a minified file does not fill the result.
const LINE_MAX_CHARS: usize = 400;

/// The largest file that is searched. Larger ones are data, and are counted in a notice.
const FILE_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The `grep` tool.
pub(super) struct GrepTool;

#[derive(Deserialize)]
pub(super) struct GrepArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    include_ignored: bool,
}

impl FileTool for GrepTool {
    type Arguments = GrepArguments;

    const NAME: &'static str = "grep";

    fn description() -> String {
        format!(
            "Searches files for a regular expression (Rust syntax), line by line, and answers with \
             `file:line: text`. Leaves out what git ignores and binary files. Up to {MATCHES_MAX} lines."
        )
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "The regular expression." },
                "path": { "type": "string", "description": "A file or folder; the working folder if left out." },
                "glob": { "type": "string", "description": "Only files that fit, such as *.rs." },
                "ignore_case": { "type": "boolean", "description": "Whether A is a." },
                "include_ignored": { "type": "boolean", "description": "Whether to search what git ignores too." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines." },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        })
    }

    fn run(
        arguments: GrepArguments,
        folders: &CallFolders,
        cancel: &CancelFlag,
    ) -> Result<ToolOutput, ToolError> {
        let path = folders.resolve(arguments.path.as_deref().unwrap_or("."), PathAccess::Read)?;
        let mut search = GrepSearch::new(&arguments)?;
        search.search_tree(&path, folders, &arguments, cancel)?;
        Ok(ToolOutput::text(search.into_text()))
    }
}

/// A search in progress.
struct GrepSearch {
    regex: Regex,
    limit: usize,
    found: String,
    count: usize,
    is_cut: bool,
    too_large: usize,
}

impl GrepSearch {
    fn new(arguments: &GrepArguments) -> Result<GrepSearch, ToolError> {
        let regex =
            RegexBuilder::new(&arguments.pattern).case_insensitive(arguments.ignore_case).build();
        let bad = |error: regex::Error| ToolError::BadPattern {
            cause: format!("invalid regular expression: {error}"),
        };
        let limit = arguments.limit.unwrap_or(MATCHES_MAX).clamp(1, MATCHES_MAX);
        let found = String::new();
        Ok(GrepSearch {
            regex: regex.map_err(bad)?,
            limit,
            found,
            count: 0,
            is_cut: false,
            too_large: 0,
        })
    }

    fn search_tree(
        &mut self,
        base: &Path,
        folders: &CallFolders,
        arguments: &GrepArguments,
        cancel: &CancelFlag,
    ) -> Result<(), ToolError> {
        base.metadata().map_err(|cause| ToolError::io("search", base, cause))?;
        let glob = arguments.glob.as_deref().map(glob).transpose()?;
        let scope = WalkOptions { depth: None, include_ignored: arguments.include_ignored };
        // Unreadable folders are skipped, as in other search tools.
        for entry in walk(base, scope).flatten() {
            cancel.check()?;
            let path = entry.path();
            let below = path.strip_prefix(base).unwrap_or(path);
            // A file that was named explicitly is searched even if it is a link.
            let is_file = match entry.depth() {
                0 => path.is_file(),
                _ => entry.file_type().is_some_and(|kind| kind.is_file()),
            };
            let is_asked =
                entry.depth() == 0 || glob.as_ref().is_none_or(|glob| glob.is_match(below));
            if is_file && is_asked {
                self.search_file(path, folders.shorten(path));
            }
            if self.is_cut {
                break;
            }
        }
        Ok(())
    }

    fn search_file(&mut self, path: &Path, display: &Path) {
        let bytes = match text_file::read_for_search(path, FILE_MAX_BYTES) {
            Ok(SearchedFile::Text(bytes)) if !bytes.is_empty() => bytes,
            Ok(SearchedFile::TooLarge) => {
                self.too_large += 1;
                return;
            }
            _ => return,
        };
        // A final newline does not start another line.
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !self.regex.is_match(line) {
                continue;
            }
            // Checked before the next match, so that the notice appears only if there is one.
            if self.count == self.limit || self.found.len() > OUTPUT_MAX_BYTES {
                self.is_cut = true;
                return;
            }
            self.count += 1;
            self.found.push_str(&format!(
                "{}:{}: {}\n",
                display.display(),
                index + 1,
                truncate_line(line)
            ));
        }
    }

    fn into_text(mut self) -> String {
        if self.count == 0 {
            self.found.push_str("(no line fits)\n");
        }
        if self.is_cut {
            let notice =
                format!("[cut after {} lines; narrow the pattern, path or glob]\n", self.count);
            self.found.push_str(&notice);
        }
        if self.too_large > 0 {
            let notice =
                format!("[{} files above {FILE_MAX_BYTES} bytes were left out]\n", self.too_large);
            self.found.push_str(&notice);
        }
        self.found
    }
}

fn truncate_line(line: &[u8]) -> String {
    // More bytes than the characters can have, so that a line of megabytes is not converted.
    let beginning = line.get(..LINE_MAX_CHARS * 4 + 4).unwrap_or(line);
    let text = String::from_utf8_lossy(beginning);
    match text.char_indices().nth(LINE_MAX_CHARS) {
        Some((end, _)) => {
            format!("{} [line cut, {} bytes]", text.get(..end).unwrap_or_default(), line.len())
        }
        None => text.into_owned(),
    }
}

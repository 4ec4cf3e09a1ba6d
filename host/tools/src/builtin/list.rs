//! `list`: lists a folder, or finds files by a glob.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::file_tool::{CallFolders, FileTool};
use super::walk::{WalkOptions, glob, walk};
use crate::blocking_task::CancelFlag;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::output_limit::OUTPUT_MAX_BYTES;
use crate::paths::PathAccess;

/// The most names of a result.
const ENTRIES_MAX: usize = 1_000;

/// The `list` tool.
pub(super) struct ListTool;

#[derive(Deserialize)]
pub(super) struct ListArguments {
    path: Option<String>,
    glob: Option<String>,
    depth: Option<usize>,
    #[serde(default)]
    include_ignored: bool,
}

impl FileTool for ListTool {
    type Arguments = ListArguments;

    const NAME: &'static str = "list";

    fn description() -> String {
        format!(
            "Lists a folder, or finds files by a glob in the whole tree below it. Folders end in /. \
             Leaves out what git ignores. Up to {ENTRIES_MAX} names."
        )
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The folder; the working folder if left out." },
                "glob": { "type": "string", "description": "Only what fits, such as *.rs or src/**/*.ts." },
                "depth": { "type": "integer", "minimum": 1, "description": "How deep; 1 if left out, with a glob all the way." },
                "include_ignored": { "type": "boolean", "description": "Whether to list what git ignores too." },
            },
            "additionalProperties": false,
        })
    }

    fn run(
        arguments: ListArguments,
        folders: &CallFolders,
        cancel: &CancelFlag,
    ) -> Result<ToolOutput, ToolError> {
        let path = folders.resolve(arguments.path.as_deref().unwrap_or("."), PathAccess::Read)?;
        Ok(ToolOutput::text(list(&path, &arguments, cancel)?))
    }
}

fn list(base: &Path, arguments: &ListArguments, cancel: &CancelFlag) -> Result<String, ToolError> {
    let metadata = base.metadata().map_err(|cause| ToolError::io("list", base, cause))?;
    if !metadata.is_dir() {
        return Ok(format!("{} is a file of {} bytes", base.display(), metadata.len()));
    }
    let glob = arguments.glob.as_deref().map(glob).transpose()?;
    // A glob searches the whole tree; a plain listing shows one level.
    let depth = arguments.depth.or_else(|| glob.is_none().then_some(1)).map(|depth| depth.max(1));
    let mut listing = String::new();
    let mut count = 0;
    for entry in walk(base, WalkOptions { depth, include_ignored: arguments.include_ignored }) {
        cancel.check()?;
        let entry = match entry {
            Ok(entry) if entry.depth() == 0 => continue,
            Ok(entry) => entry,
            // Unreadable entries are reported, and the rest is listed.
            Err(error) => {
                listing.push_str(&format!("[{error}]\n"));
                continue;
            }
        };
        let name = entry.path().strip_prefix(base).unwrap_or(entry.path());
        if glob.as_ref().is_some_and(|glob| !glob.is_match(name)) {
            continue;
        }
        if count == ENTRIES_MAX || listing.len() > OUTPUT_MAX_BYTES {
            listing.push_str(&format!("[cut after {count} names; take a subfolder or a glob]\n"));
            return Ok(listing);
        }
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        listing.push_str(&format!("{}{}\n", name.display(), if is_folder { "/" } else { "" }));
        count += 1;
    }
    if listing.is_empty() {
        Ok("(nothing; what git ignores is left out unless include_ignored is true)".into())
    } else {
        Ok(listing)
    }
}

//! `edit`: replaces one piece of text in a file and keeps all other bytes.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::file_tool::{CallFolders, FileTool};
use super::text_file;
use crate::blocking_task::CancelFlag;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::paths::PathAccess;
use crate::replace::{replace, with_write_lock};

/// The largest editable file. It is in memory twice, and source files are far smaller.
const FILE_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The most positions listed for an ambiguous text.
const POSITIONS_LISTED: usize = 10;

/// The `edit` tool.
pub(super) struct EditTool;

#[derive(Deserialize)]
pub(super) struct EditArguments {
    path: String,
    old_text: String,
    new_text: String,
}

impl FileTool for EditTool {
    type Arguments = EditArguments;

    const NAME: &'static str = "edit";

    fn description() -> String {
        "Replaces one piece of text in a file. old_text must occur in the file exactly once, character by character, so include enough surrounding text."
            .into()
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The file." },
                "old_text": { "type": "string", "description": "The text to replace, exactly as in the file." },
                "new_text": { "type": "string", "description": "The replacement." },
            },
            "required": ["path", "old_text", "new_text"],
            "additionalProperties": false,
        })
    }

    fn run(
        arguments: EditArguments,
        folders: &CallFolders,
        cancel: &CancelFlag,
    ) -> Result<ToolOutput, ToolError> {
        let path = folders.resolve(&arguments.path, PathAccess::Write)?;
        cancel.check()?;
        // The lock covers reading too, so that a parallel edit is not lost.
        with_write_lock(|| edit_file(&path, &arguments))
    }
}

fn edit_file(path: &Path, arguments: &EditArguments) -> Result<ToolOutput, ToolError> {
    let text = text_file::read_text(path, FILE_MAX_BYTES)?;
    let (position, edited) = replace_once(path, &text, &arguments.old_text, &arguments.new_text)?;
    replace(path, edited.as_bytes())?;
    let line = text_file::line_of(&text, position.start);
    let before = arguments.old_text.lines().count();
    let after = arguments.new_text.lines().count();
    Ok(ToolOutput::text(format!(
        "edited {} at line {line}: {before} lines became {after}",
        path.display()
    )))
}

/// The position of the old text, and the edited text.
pub(crate) fn replace_once(
    path: &Path,
    text: &str,
    old: &str,
    new: &str,
) -> Result<(Range<usize>, String), ToolError> {
    if old.is_empty() {
        return Err(ToolError::EmptyOldText);
    }
    // An edit that changes nothing is a mistake that the model should learn of.
    if old == new {
        return Err(ToolError::SameText);
    }
    let position = find_unique(path, text, old)?;
    let (Some(before), Some(found), Some(after)) =
        (text.get(..position.start), text.get(position.clone()), text.get(position.end..))
    else {
        return Err(not_found(path, text, old));
    };
    let new = if ends_lines_with_crlf(found, text) { with_crlf(new) } else { new.to_owned() };
    Ok((position, format!("{before}{new}{after}")))
}

/// The only position of a text: as given, else with CRLF line endings, which models do not write.
fn find_unique(path: &Path, text: &str, old: &str) -> Result<Range<usize>, ToolError> {
    // Models write `\n`, and most never see that the file has `\r\n`.
    for text_to_find in [old.to_owned(), with_crlf(old)] {
        match *find_all(text, &text_to_find).as_slice() {
            [] => {}
            [start] => return Ok(start..start + text_to_find.len()),
            ref positions => return Err(not_unique(path, text, positions)),
        }
    }
    Err(not_found(path, text, old))
}

/// All positions of a text, overlapping ones included, since each could be meant.
fn find_all(text: &str, text_to_find: &str) -> Vec<usize> {
    let step = text_to_find.chars().next().map_or(1, char::len_utf8);
    let mut positions = Vec::new();
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(text_to_find)) {
        positions.push(from + found);
        // By one character and not by the length: overlapping occurrences are several places too.
        from += found + step;
    }
    positions
}

/// Whether the replaced text has CRLF line endings; a single line takes those of the file.
fn ends_lines_with_crlf(found: &str, text: &str) -> bool {
    let sample = if found.contains('\n') { found } else { text };
    let all = sample.matches('\n').count();
    // A file with mixed line endings follows the majority.
    sample.matches("\r\n").count() * 2 > all
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn not_unique(path: &Path, text: &str, positions: &[usize]) -> ToolError {
    let lines = positions.iter().take(POSITIONS_LISTED);
    let mut lines =
        lines.map(|&at| text_file::line_of(text, at).to_string()).collect::<Vec<_>>().join(", ");
    if positions.len() > POSITIONS_LISTED {
        lines.push_str(", ...");
    }
    ToolError::TextNotUnique { path: path.to_owned(), times: positions.len(), lines }
}

fn not_found(path: &Path, text: &str, old: &str) -> ToolError {
    // The usual mistake is indentation, and the place lets the model read it again instead of guessing.
    let first = old.lines().map(str::trim).find(|line| !line.is_empty());
    let alike = first.and_then(|first| text.lines().position(|line| line.trim() == first));
    let hint = alike.map(|at| {
        format!(
            ", but line {} matches its first line except for whitespace or what follows",
            at + 1
        )
    });
    ToolError::TextNotFound { path: path.to_owned(), hint: hint.unwrap_or_default() }
}

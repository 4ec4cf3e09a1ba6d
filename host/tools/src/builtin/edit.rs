//! `edit`: one text of a file becomes another; all else stays to the byte.

use std::ops::Range;
use std::path::Path;

use ctxhost_engine_api::ToolSpec;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::text_file;
use crate::blocking_task::run_blocking;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::paths::{PathAccess, PathResolver};
use crate::replace::{replace, with_write_lock};
use crate::settings::ToolSettings;
use crate::{CallContext, Tool, arguments};

const NAME: &str = "edit";

/// The largest file that is edited: it is held in memory twice, and sources are far smaller.
const FILE_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// So many places of an ambiguous text are named.
const PLACES_SHOWN: usize = 10;

/// Edits files.
#[derive(Debug)]
pub struct EditTool {
    paths: PathResolver,
}

#[derive(Debug, Deserialize)]
struct EditArguments {
    path: String,
    old_text: String,
    new_text: String,
}

impl EditTool {
    /// The tool.
    pub fn new(settings: &ToolSettings) -> EditTool {
        EditTool { paths: PathResolver::new(settings) }
    }

    async fn edit(&self, raw: &Value, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let asked: EditArguments = arguments::read(NAME, &schema(), raw)?;
        let (paths, cwd) = (self.paths.clone(), context.cwd.clone());
        run_blocking(move |stop| {
            let path = paths.resolve(&cwd, &asked.path, PathAccess::Write)?;
            stop.check()?;
            with_write_lock(|| edit_file(&path, &asked))
        })
        .await
    }
}

impl Tool for EditTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description:
                "Replaces one piece of text in a file. old_text must stand in the file exactly \
                          once, to the letter, so take enough of the text around it."
                    .into(),
            input_schema: schema(),
        }
    }

    fn call<'a>(
        &'a self,
        arguments: &'a Value,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.edit(arguments, context).await.into() })
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "The file." },
            "old_text": { "type": "string", "description": "The text to replace, as it stands there." },
            "new_text": { "type": "string", "description": "What stands there afterwards." },
        },
        "required": ["path", "old_text", "new_text"],
        "additionalProperties": false,
    })
}

fn edit_file(path: &Path, asked: &EditArguments) -> Result<ToolOutput, ToolError> {
    let text = text_file::read_text(path, FILE_MAX_BYTES)?;
    let (place, edited) = replace_once(path, &text, &asked.old_text, &asked.new_text)?;
    replace(path, edited.as_bytes())?;
    let line = text_file::line_of(&text, place.start);
    let before = asked.old_text.lines().count();
    let after = asked.new_text.lines().count();
    Ok(ToolOutput::text(format!(
        "edited {} at line {line}: {before} lines became {after}",
        path.display()
    )))
}

/// The place of the old text, and the whole text after the edit.
pub(crate) fn replace_once(
    path: &Path,
    text: &str,
    old: &str,
    new: &str,
) -> Result<(Range<usize>, String), ToolError> {
    if old.is_empty() {
        return Err(ToolError::EmptyOldText);
    }
    if old == new {
        return Err(ToolError::SameText);
    }
    let place = find_unique(path, text, old)?;
    let (Some(before), Some(found), Some(after)) =
        (text.get(..place.start), text.get(place.clone()), text.get(place.end..))
    else {
        return Err(not_found(path, text, old));
    };
    let new = if ends_lines_with_crlf(found, text) { with_crlf(new) } else { new.to_owned() };
    Ok((place, format!("{before}{new}{after}")))
}

/// The one place where a text stands: as it is given, else with the line endings of Windows, which
/// models do not write.
fn find_unique(path: &Path, text: &str, old: &str) -> Result<Range<usize>, ToolError> {
    for wanted in [old.to_owned(), with_crlf(old)] {
        match *find_all(text, &wanted).as_slice() {
            [] => {}
            [start] => return Ok(start..start + wanted.len()),
            ref places => return Err(not_unique(path, text, places)),
        }
    }
    Err(not_found(path, text, old))
}

/// Every place where a text begins; they may overlap, since each of them could be meant.
fn find_all(text: &str, wanted: &str) -> Vec<usize> {
    let step = wanted.chars().next().map_or(1, char::len_utf8);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(wanted)) {
        places.push(from + found);
        from += found + step;
    }
    places
}

/// How lines end at a place: as in the text found there, or where it has one line only, as in the file.
fn ends_lines_with_crlf(found: &str, text: &str) -> bool {
    let sample = if found.contains('\n') { found } else { text };
    let all = sample.matches('\n').count();
    sample.matches("\r\n").count() * 2 > all
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn not_unique(path: &Path, text: &str, places: &[usize]) -> ToolError {
    let lines = places.iter().take(PLACES_SHOWN);
    let mut lines =
        lines.map(|&at| text_file::line_of(text, at).to_string()).collect::<Vec<_>>().join(", ");
    if places.len() > PLACES_SHOWN {
        lines.push_str(", ...");
    }
    ToolError::TextNotUnique { path: path.to_owned(), times: places.len(), lines }
}

fn not_found(path: &Path, text: &str, old: &str) -> ToolError {
    let first = old.lines().map(str::trim).find(|line| !line.is_empty());
    let alike = first.and_then(|first| text.lines().position(|line| line.trim() == first));
    let hint = alike.map(|at| {
        format!(", though line {} is like its first line but for spaces or what follows", at + 1)
    });
    ToolError::TextNotFound { path: path.to_owned(), hint: hint.unwrap_or_default() }
}

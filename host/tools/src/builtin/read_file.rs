//! `read_file`: reads lines of a text file, or an image.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ctxhost_dialects::ChatBlock;
use serde::Deserialize;
use serde_json::{Value, json};

use super::file_tool::{CallFolders, FileTool};
use super::text_file::{self, SNIFFED_BYTES};
use crate::blocking_task::CancelFlag;
use crate::error::ToolError;
use crate::output::{IMAGE_MAX_CHARS, ToolOutput};
use crate::output_limit::OUTPUT_MAX_BYTES;
use crate::paths::PathAccess;

/// The most lines of a result: a long source file, but not a log.
const LINES_MAX: u64 = 2_000;

/// The largest image; base64 takes four characters for three bytes.
const IMAGE_MAX_BYTES: u64 = IMAGE_MAX_CHARS as u64 / 4 * 3;

/// The `read_file` tool.
pub(super) struct ReadFileTool;

#[derive(Deserialize)]
pub(super) struct ReadFileArguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

impl FileTool for ReadFileTool {
    type Arguments = ReadFileArguments;

    const NAME: &'static str = "read_file";

    fn description() -> String {
        format!(
            "Reads a text file, or an image (PNG, JPEG, GIF, WebP). Answers with up to {LINES_MAX} \
             lines or {} KiB, and says with which offset to read on.",
            OUTPUT_MAX_BYTES / 1024
        )
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The file." },
                "offset": { "type": "integer", "minimum": 1, "description": "The first line; 1 if left out." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines." },
            },
            "required": ["path"],
            "additionalProperties": false,
        })
    }

    fn run(
        arguments: ReadFileArguments,
        folders: &CallFolders,
        cancel: &CancelFlag,
    ) -> Result<ToolOutput, ToolError> {
        let path = folders.resolve(&arguments.path, PathAccess::Read)?;
        read(&path, &arguments, cancel)
    }
}

fn read(
    path: &Path,
    arguments: &ReadFileArguments,
    cancel: &CancelFlag,
) -> Result<ToolOutput, ToolError> {
    let size_bytes = text_file::regular_file(path)?.len();
    let failed = |cause: io::Error| ToolError::io("read", path, cause);
    // The buffer is as large as the sniffed part, so one `fill_buf` is enough for both checks.
    let file = ctxhost_files::open(path).map_err(failed)?;
    let mut reader = BufReader::with_capacity(SNIFFED_BYTES, file);
    let beginning = reader.fill_buf().map_err(failed)?;
    if let Some(mime_type) = image_type(beginning) {
        return image(path, size_bytes, mime_type);
    }
    if text_file::is_binary(beginning) {
        return Err(ToolError::Binary { path: path.to_owned(), size_bytes });
    }
    let offset = arguments.offset.unwrap_or(1).max(1);
    let limit = arguments.limit.unwrap_or(LINES_MAX).clamp(1, LINES_MAX);
    let skipped = skip(&mut reader, offset - 1, cancel, failed)?;
    let lines = lines(&mut reader, limit).map_err(failed)?;
    if lines.count == 0 && offset > 1 {
        return Err(ToolError::OffsetPastEnd { path: path.to_owned(), lines: skipped, offset });
    }
    Ok(ToolOutput::text(lines.into_text(offset)))
}

/// Skips lines and returns how many there were.
fn skip(
    reader: &mut impl BufRead,
    lines: u64,
    cancel: &CancelFlag,
    failed: impl Fn(io::Error) -> ToolError,
) -> Result<u64, ToolError> {
    let mut skipped = 0;
    // Whether part of a line was skipped.
    let mut is_inside = false;
    while skipped < lines {
        // Checked at each chunk: a single line may have gigabytes.
        cancel.check()?;
        let chunk = reader.fill_buf().map_err(&failed)?;
        let length = chunk.len();
        if length == 0 {
            return Ok(skipped + u64::from(is_inside));
        }
        let end = memchr::memchr(b'\n', chunk);
        reader.consume(end.map_or(length, |end| end + 1));
        skipped += u64::from(end.is_some());
        is_inside = end.is_none();
    }
    Ok(lines)
}

/// The lines of a result.
struct TextLines {
    bytes: Vec<u8>,
    count: u64,
    end: ReadEnd,
}

/// Why a result ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadEnd {
    OfFile,
    MoreLines,
    LongLine,
}

fn lines(reader: &mut impl BufRead, limit: u64) -> io::Result<TextLines> {
    let mut lines = TextLines { bytes: Vec::new(), count: 0, end: ReadEnd::OfFile };
    while lines.count < limit {
        let before = lines.bytes.len();
        // One byte more than fits, to detect that it does not.
        let room = (OUTPUT_MAX_BYTES - before) as u64 + 1;
        if reader.take(room).read_until(b'\n', &mut lines.bytes)? == 0 {
            return Ok(lines);
        }
        if lines.bytes.len() > OUTPUT_MAX_BYTES {
            lines.end = if lines.count == 0 { ReadEnd::LongLine } else { ReadEnd::MoreLines };
            lines.count = lines.count.max(1);
            lines.bytes.truncate(if before == 0 { OUTPUT_MAX_BYTES } else { before });
            return Ok(lines);
        }
        lines.count += 1;
    }
    if !reader.fill_buf()?.is_empty() {
        lines.end = ReadEnd::MoreLines;
    }
    Ok(lines)
}

impl TextLines {
    /// The text, with a notice if it does not reach the end of the file.
    fn into_text(mut self, first: u64) -> String {
        // A cut inside a character is not a fault of the file.
        if self.end == ReadEnd::LongLine {
            self.drop_partial_character();
        }
        let text = String::from_utf8_lossy(&self.bytes);
        let mut notices = Vec::new();
        if matches!(text, std::borrow::Cow::Owned(_)) {
            notices.push("[not all of it is UTF-8; \u{fffd} stands for what is not]".to_owned());
        }
        let last = first + self.count.saturating_sub(1);
        let next = last + 1;
        match self.end {
            ReadEnd::OfFile if self.count == 0 => notices.push("(the file is empty)".into()),
            ReadEnd::OfFile => {}
            ReadEnd::MoreLines => notices
                .push(format!("[lines {first} to {last}; there are more, read on with offset {next}]")),
            ReadEnd::LongLine => notices.push(format!(
                "[the beginning of line {first}, which is longer than {OUTPUT_MAX_BYTES} bytes; see the rest of it with `shell`, or read on with offset {next}]"
            )),
        }
        if notices.is_empty() {
            return text.into_owned();
        }
        let break_line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        format!("{text}{break_line}{}", notices.join("\n"))
    }

    fn drop_partial_character(&mut self) {
        if let Err(error) = std::str::from_utf8(&self.bytes)
            && error.error_len().is_none()
        {
            self.bytes.truncate(error.valid_up_to());
        }
    }
}

/// The MIME type of an image that providers accept, by its first bytes.
fn image_type(beginning: &[u8]) -> Option<&'static str> {
    match beginning {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn image(path: &Path, size_bytes: u64, mime_type: &str) -> Result<ToolOutput, ToolError> {
    if size_bytes > IMAGE_MAX_BYTES {
        let limit_bytes = IMAGE_MAX_BYTES;
        return Err(ToolError::TooLarge { path: path.to_owned(), size_bytes, limit_bytes });
    }
    let bytes = text_file::read_bytes(path, IMAGE_MAX_BYTES)?;
    let about = format!("{mime_type}, {} bytes", bytes.len());
    let image = ChatBlock::Image { data: STANDARD.encode(bytes), mime_type: mime_type.to_owned() };
    Ok(ToolOutput { blocks: vec![ChatBlock::text(about), image], is_error: false })
}

//! What the environment still holds: a file that was read again or changed later makes the earlier
//! read the first thing to leave out.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::{ToolCall, ToolResult};
use ctxhost_engine_kit::files::plain_tool_name;

/// The names that tools give to the argument with the path.
const PATH_ARGUMENTS: [&str; 4] = ["path", "file_path", "filePath", "filename"];

/// The reads of one session.
#[derive(Debug, Default)]
pub(crate) struct FileReads {
    /// Calls on files that have no result yet, by their id.
    open: HashMap<String, FileCall>,
    /// The results that hold what was read of a file, by its path.
    reads: HashMap<String, Vec<FileRead>>,
    /// Positions of results that the environment or a later result holds, too.
    outdated: HashSet<u64>,
}

#[derive(Debug)]
struct FileCall {
    path: String,
    /// The part that was read; `None` for a call that changed the file.
    part: Option<String>,
}

#[derive(Debug)]
struct FileRead {
    seq: u64,
    part: String,
}

/// What a call does to the file that it names; empty for any other call.
pub(crate) fn file_operation(call: &ToolCall<'_>) -> &'static str {
    let name = plain_tool_name(&call.name).to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if has(&["write", "edit", "patch", "replace", "create_file"]) => "changed",
        () if has(&["read", "view", "cat", "open_file"]) => "read",
        () => "",
    }
}

/// The path that a call names.
pub(crate) fn path_argument(call: &ToolCall<'_>) -> Option<String> {
    call.string_argument(&PATH_ARGUMENTS).filter(|path| !path.trim().is_empty())
}

impl FileReads {
    /// A call was made.
    pub(crate) fn record_call(&mut self, call: &ToolCall<'_>) {
        let what = file_operation(call);
        let Some(path) = path_argument(call).filter(|_| !what.is_empty()) else { return };
        let arguments = call.arguments_value();
        let number = |name: &str| arguments.get(name).map(ToString::to_string).unwrap_or_default();
        let part = format!("{}+{}", number("offset"), number("limit"));
        let part = (what == "read").then_some(part);
        self.open.insert(call.id.to_string(), FileCall { path, part });
    }

    /// A result came.
    pub(crate) fn record_result(&mut self, seq: u64, result: &ToolResult<'_>) {
        let Some(call) = self.open.remove(result.call_id.as_ref()) else { return };
        if result.is_error {
            return;
        }
        let reads = self.reads.entry(call.path).or_default();
        // A change makes every read untrue; a read of the whole file, or of the same part, repeats one.
        let is_whole = |part: &str| part == "+";
        let replaces = |read: &FileRead| match &call.part {
            None => true,
            Some(part) => is_whole(part) || read.part == *part,
        };
        self.outdated.extend(reads.iter().filter(|read| replaces(read)).map(|read| read.seq));
        reads.retain(|read| !replaces(read));
        if let Some(part) = call.part {
            reads.push(FileRead { seq, part });
        }
    }

    /// Whether a result holds what the environment, or a later result, holds, too.
    pub(crate) fn is_outdated(&self, seq: u64) -> bool {
        self.outdated.contains(&seq)
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn outdated(calls: &[(&str, &str)]) -> Vec<u64> {
        let mut talk = TranscriptBuilder::new();
        for (at, (tool, arguments)) in calls.iter().enumerate() {
            let id = format!("c{at}");
            talk.calls(&[(&id, tool, arguments)]).result(&id, tool, "text");
        }
        let mut reads = FileReads::default();
        for entry in talk.transcript().iter() {
            entry.tool_calls().iter().for_each(|call| reads.record_call(call));
            entry.tool_result().iter().for_each(|result| reads.record_result(entry.seq(), result));
        }
        (0..talk.len()).filter(|seq| reads.is_outdated(*seq)).collect()
    }

    #[test]
    fn a_file_that_is_read_again_or_changed_outdates_the_earlier_read() {
        let (whole, part) = (r#"{"path":"a.rs"}"#, r#"{"path":"a.rs","offset":40}"#);
        assert_eq!(outdated(&[("read", whole), ("read", whole)]), [1]);
        assert_eq!(outdated(&[("read", part), ("read", whole)]), [1]);
        assert_eq!(outdated(&[("read", whole), ("read", part)]), [0_u64; 0]);
        assert_eq!(outdated(&[("read", whole), ("edit", whole), ("read", part)]), [1]);
        assert_eq!(outdated(&[("read", whole), ("edit", r#"{"path":"b.rs"}"#)]), [0_u64; 0]);
    }
}

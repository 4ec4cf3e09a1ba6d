//! Tracks file reads: one that was repeated, or whose file changed later, is the first to be
//! dropped.

use std::collections::{HashMap, HashSet};

use crate::files::{FileOperation, path_argument};
use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use ctxhost_engine_api::{ToolCall, ToolResult};

/// The file reads of one session.
#[derive(Debug, Default)]
pub(super) struct FileReads {
    /// Calls without a result yet, by id.
    open: OpenCalls<Option<FileCall>>,
    /// Results of reads, by path.
    reads: HashMap<String, Vec<FileRead>>,
    /// Positions of results that a later read or change replaces.
    outdated: HashSet<u64>,
}

#[derive(Debug)]
struct FileCall {
    path: String,
    /// The part that was read; `None` for a change.
    part: Option<String>,
}

impl FileCall {
    /// `None` for a call that neither reads nor changes a file.
    fn new(call: &ToolCall<'_>) -> Option<FileCall> {
        let operation = FileOperation::of_tool(&call.name)?;
        let path = path_argument(call)?;
        let arguments = call.arguments_value();
        let number = |name: &str| arguments.get(name).map(ToString::to_string).unwrap_or_default();
        let part = format!("{}+{}", number("offset"), number("limit"));
        Some(FileCall { path, part: (operation == FileOperation::Read).then_some(part) })
    }
}

#[derive(Debug)]
struct FileRead {
    seq: u64,
    part: String,
}

impl FileReads {
    /// Records the calls of an entry.
    pub(super) fn record_calls(&mut self, calls: &[ToolCall<'_>]) {
        self.open.open(calls.iter().map(|call| (call.id.to_string(), FileCall::new(call))));
    }

    /// Records a result.
    pub(super) fn record_result(&mut self, seq: u64, result: &ToolResult<'_>) {
        let Some(call) = self.open.take(&result.call_id).flatten() else { return };
        if result.is_error {
            return;
        }
        let reads = self.reads.entry(call.path).or_default();
        // A change outdates every read; a read of the whole file, or of the same part, outdates
        // earlier ones.
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

    /// Whether a later read or change replaces a result.
    pub(super) fn is_outdated(&self, seq: u64) -> bool {
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
            reads.record_calls(&entry.tool_calls());
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

//! The file ledger: which files a conversation read and which it changed.

use std::collections::BTreeSet;
use std::ops::Range;

use ctxhost_engine_api::{EntryKind, Flags, ToolCall, Transcript};
use serde_json::Value;

use crate::summary::envelope::unwrap_summary;

/// Argument names for paths.
const PATH_ARGUMENTS: [&str; 4] = ["path", "file_path", "filePath", "filename"];
/// Words in the names of tools that change a file, and of tools that read one.
const CHANGE_WORDS: [&str; 7] =
    ["write", "edit", "editor", "multiedit", "patch", "replace", "create"];
const READ_WORDS: [&str; 4] = ["read", "view", "cat", "open"];

/// What a call does with the file in its path argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// It reads it.
    Read,
    /// It writes or edits it.
    Change,
}

impl FileOperation {
    /// The operation of a tool, by the words of its name; `None` for other tools.
    pub fn of_tool(tool: &str) -> Option<FileOperation> {
        let words = words_of(plain_tool_name(tool));
        let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
        // Changes first: `read_and_write` changes the file.
        if has(&CHANGE_WORDS) {
            Some(FileOperation::Change)
        } else {
            has(&READ_WORDS).then_some(FileOperation::Read)
        }
    }

    /// The word for lists.
    pub fn word(self) -> &'static str {
        match self {
            FileOperation::Read => "read",
            FileOperation::Change => "changed",
        }
    }
}

/// The words of `readFile` or `read_file`, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for character in name.chars() {
        let is_hump = previous.is_lowercase() && character.is_uppercase();
        if is_hump || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        previous = character;
    }
    words
}

/// The path argument of a call.
pub fn path_argument(call: &ToolCall<'_>) -> Option<String> {
    call.string_argument(&PATH_ARGUMENTS).filter(|path| !path.trim().is_empty())
}

/// Files by operation, sorted. A changed file is not also listed as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLedger {
    read: BTreeSet<String>,
    modified: BTreeSet<String>,
}

impl FileLedger {
    /// The ledger of the calls in a range.
    pub fn from_range(transcript: &Transcript, range: Range<u64>) -> Self {
        let mut ledger = FileLedger::default();
        ledger.add_range(transcript, range);
        ledger
    }

    /// Adds the calls of a range.
    pub fn add_range(&mut self, transcript: &Transcript, range: Range<u64>) {
        let calling = transcript.range(range).filter(|entry| entry.has(Flags::TOOL_CALLS));
        for call in calling.flat_map(|entry| entry.tool_calls()) {
            self.add_call(&call);
        }
    }

    /// Adds the calls of `gaps`, and the files listed by earlier summaries in them.
    pub fn add_history(&mut self, transcript: &Transcript, gaps: &[Range<u64>]) {
        for gap in gaps {
            let entries = transcript.range(gap.clone());
            for earlier in entries.filter(|entry| entry.kind() == EntryKind::CompactionSummary) {
                let raw: Value = serde_json::from_str(earlier.raw()).unwrap_or_default();
                let details = raw.get("details").unwrap_or(&Value::Null);
                self.add_details(details);
                // The details contain every file; the lists in the text are truncated and may be
                // anonymised.
                if details.get("modifiedFiles").is_none() {
                    self.add_summary(&unwrap_summary(earlier.text()));
                }
            }
            self.add_range(transcript, gap.clone());
        }
    }

    /// Adds one call if it is a file operation.
    pub fn add_call(&mut self, call: &ToolCall<'_>) {
        let list = match plain_tool_name(&call.name) {
            "read" => &mut self.read,
            "write" | "edit" => &mut self.modified,
            _ => return,
        };
        list.extend(path_argument(call));
    }

    /// Adds the lists in the details of an earlier compaction.
    pub fn add_details(&mut self, details: &Value) {
        let names = |key: &str| {
            let list = details.get(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
        };
        self.read.extend(names("readFiles"));
        self.modified.extend(names("modifiedFiles"));
    }

    /// Adds the lists in the text of an earlier summary.
    pub fn add_summary(&mut self, summary: &str) {
        self.read.extend(tagged(summary, "read-files"));
        self.modified.extend(tagged(summary, "modified-files"));
    }

    /// Files that were read and not changed.
    pub fn read(&self) -> Vec<&str> {
        // A model that changed a file knows it, so listing it as read adds nothing.
        self.read.difference(&self.modified).map(String::as_str).collect()
    }

    /// Files that were changed.
    pub fn modified(&self) -> Vec<&str> {
        self.modified.iter().map(String::as_str).collect()
    }

    /// One line for each file: `read /a`, `changed /b`.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let read = self.read().into_iter().map(|name| format!("read {name}"));
        let changed = self.modified().into_iter().map(|name| format!("changed {name}"));
        read.chain(changed)
    }

    /// Both lists for a summary, each in at most `list_limit_chars`; empty without files.
    pub fn render(&self, list_limit_chars: usize) -> String {
        let lists = [("read-files", self.read()), ("modified-files", self.modified())];
        let shown = lists.into_iter().filter(|(_, names)| !names.is_empty());
        shown
            .map(|(tag, names)| list(tag, &names, list_limit_chars))
            .collect::<Vec<_>>()
            .join("\n\n")
    }
}

/// A tool name without the prefix of its server.
pub fn plain_tool_name(name: &str) -> &str {
    let name = name.trim();
    name.rsplit_once("__").or_else(|| name.rsplit_once('.')).map_or(name, |(_, plain)| plain)
}

fn list(tag: &str, names: &[&str], limit_chars: usize) -> String {
    let mut lines = String::new();
    let mut shown = 0;
    for name in names {
        // Stop at the first name that does not fit: the list is sorted, and a count replaces the
        // rest.
        if lines.len() + name.len() + 1 > limit_chars {
            break;
        }
        lines.push_str(name);
        lines.push('\n');
        shown += 1;
    }
    if shown < names.len() {
        lines.push_str(&format!("...and {} more\n", names.len() - shown));
    }
    format!("<{tag}>\n{lines}</{tag}>")
}

fn tagged<'a>(text: &'a str, tag: &str) -> impl Iterator<Item = String> + use<'a> {
    let (open, close) = (format!("<{tag}>\n"), format!("</{tag}>"));
    let parts: Vec<&str> = text.split(open.as_str()).skip(1).collect();
    let inner = parts.into_iter().filter_map(move |part| Some(part.split_once(&close)?.0));
    let names = inner.flat_map(str::lines);
    // The count of omitted files is not a file.
    names.filter(|line| !line.is_empty() && !line.starts_with("...and ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_words_of_a_tool_name_tell_its_operation() {
        for (tool, operation) in [
            ("read", Some(FileOperation::Read)),
            ("functions.ReadFile", Some(FileOperation::Read)),
            ("read_and_write", Some(FileOperation::Change)),
            ("mcp__fs__apply_patch", Some(FileOperation::Change)),
            ("str_replace_editor", Some(FileOperation::Change)),
            ("locate", None),
            ("bash", None),
        ] {
            assert_eq!(FileOperation::of_tool(tool), operation, "{tool}");
        }
    }
    use ctxhost_engine_api::testing::TranscriptBuilder;

    #[test]
    fn case_36_reads_writes_and_edits_are_distinguished() {
        let mut sample = TranscriptBuilder::new();
        for (tool, path) in [
            ("read", "/b"),
            ("write", "/c"),
            ("edit", "/a"),
            ("read", "/c"),
            ("mcp__fs__read", "/m"),
            ("exec", "/x"),
        ] {
            sample
                .calls(&[("1", tool, &json!({"path": path}).to_string())])
                .result("1", tool, "ok");
        }
        let ledger = FileLedger::from_range(&sample.transcript(), 0..12);
        assert_eq!(ledger.read(), ["/b", "/m"]);
        assert_eq!(ledger.modified(), ["/a", "/c"]);
        let lines: Vec<String> = ledger.lines().collect();
        assert_eq!(lines, ["read /b", "read /m", "changed /a", "changed /c"]);
    }

    #[test]
    fn case_36_a_long_list_is_cut_with_a_count_and_read_back() {
        let mut ledger = FileLedger::default();
        let names: Vec<String> = (0..80).map(|n| format!("/project/source/{n:02}.rs")).collect();
        ledger.add_details(&json!({"readFiles": names, "modifiedFiles": ["/z"]}));
        let text = ledger.render(900);
        assert!(text.len() < 2 * 900);
        assert!(text.contains("...and 40 more\n</read-files>"), "{text}");
        let mut again = FileLedger::default();
        again.add_summary(&text);
        assert_eq!(again.read().len(), 40);
        assert_eq!(again.modified(), ["/z"]);
    }
}

//! `write_file`: writes a file and creates its folders.

use serde::Deserialize;
use serde_json::{Value, json};

use super::file_tool::{CallFolders, FileTool};
use crate::blocking_task::CancelFlag;
use crate::error::ToolError;
use crate::output::ToolOutput;
use crate::paths::PathAccess;
use crate::replace::{replace, with_write_lock};

/// The `write_file` tool.
pub(super) struct WriteFileTool;

#[derive(Deserialize)]
pub(super) struct WriteFileArguments {
    path: String,
    content: String,
}

impl FileTool for WriteFileTool {
    type Arguments = WriteFileArguments;

    const NAME: &'static str = "write_file";

    fn description() -> String {
        "Writes a complete text file and creates its folders. The previous content is lost; to change a part use `edit`."
            .into()
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The file." },
                "content": { "type": "string", "description": "The complete new content." },
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        })
    }

    fn run(
        arguments: WriteFileArguments,
        folders: &CallFolders,
        cancel: &CancelFlag,
    ) -> Result<ToolOutput, ToolError> {
        let path = folders.resolve(&arguments.path, PathAccess::Write)?;
        // The last chance: a write is not interrupted halfway.
        cancel.check()?;
        let existed = with_write_lock(|| replace(&path, arguments.content.as_bytes()))?;
        let what = if existed { "replaced" } else { "new file" };
        let bytes = arguments.content.len();
        Ok(ToolOutput::text(format!("wrote {bytes} bytes to {} ({what})", path.display())))
    }
}

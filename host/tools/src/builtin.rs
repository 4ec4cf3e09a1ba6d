//! The built-in tools. There are few, because every schema is part of every request.

use std::sync::Arc;

use super::Tool;
use super::settings::ToolSettings;
use edit::EditTool;
use file_tool::file_tool;
use grep::GrepTool;
use list::ListTool;
use read_file::ReadFileTool;
use shell::ShellTool;
use write_file::WriteFileTool;

mod edit;
mod file_tool;
mod grep;
mod list;
mod read_file;
mod shell;
mod text_file;
mod walk;
mod write_file;

#[cfg(test)]
pub(super) use edit::replace_once;

/// All built-in tools.
pub(super) fn all(settings: &ToolSettings) -> Vec<Arc<dyn Tool>> {
    vec![
        file_tool::<ReadFileTool>(settings),
        file_tool::<WriteFileTool>(settings),
        file_tool::<EditTool>(settings),
        Arc::new(ShellTool::new(settings)),
        file_tool::<ListTool>(settings),
        file_tool::<GrepTool>(settings),
    ]
}

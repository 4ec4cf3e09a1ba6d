//! The built-in tools. There are few, because every schema is part of every request.

use std::sync::Arc;

use super::Tool;
use super::settings::ToolSettings;

mod edit;
mod grep;
mod list;
mod read_file;
mod shell;
mod text_file;
mod walk;
mod write_file;

pub use edit::EditTool;
#[cfg(test)]
pub(super) use edit::replace_once;
pub use grep::GrepTool;
pub use list::ListTool;
pub use read_file::ReadFileTool;
pub use shell::ShellTool;
pub use write_file::WriteFileTool;

/// All built-in tools.
pub(super) fn all(settings: &ToolSettings) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ReadFileTool::new(settings)),
        Arc::new(WriteFileTool::new(settings)),
        Arc::new(EditTool::new(settings)),
        Arc::new(ShellTool::new(settings)),
        Arc::new(ListTool::new(settings)),
        Arc::new(GrepTool::new(settings)),
    ]
}

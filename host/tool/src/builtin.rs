//! The tools that come with the host: files, a shell, a search. Few, because every schema is sent
//! with every request.

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

pub use edit::Edit;
#[cfg(test)]
pub(super) use edit::edited;
pub use grep::Grep;
pub use list::List;
pub use read_file::ReadFile;
pub use shell::Shell;
pub use write_file::WriteFile;

/// All of them.
pub(super) fn all(settings: &ToolSettings) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ReadFile::new(settings)),
        Arc::new(WriteFile::new(settings)),
        Arc::new(Edit::new(settings)),
        Arc::new(Shell::new(settings)),
        Arc::new(List::new(settings)),
        Arc::new(Grep::new(settings)),
    ]
}

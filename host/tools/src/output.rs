//! What a tool answers: blocks for the model, and whether it failed.

/// What a tool answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// Its blocks; never empty when it comes from the box.
    pub blocks: Vec<ToolBlock>,
    /// Whether it failed.
    pub is_error: bool,
}

/// One block of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolBlock {
    /// Text.
    Text(String),
    /// An image.
    Image {
        /// Base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
}

impl ToolOutput {
    /// One text.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput { blocks: vec![ToolBlock::Text(text.into())], is_error: false }
    }

    /// One text that says what went wrong.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { blocks: vec![ToolBlock::Text(text.into())], is_error: true }
    }

    /// Its texts, joined by newlines.
    pub fn joined_text(&self) -> String {
        let text = |block: &ToolBlock| match block {
            ToolBlock::Text(text) => Some(text.clone()),
            ToolBlock::Image { .. } => None,
        };
        self.blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n")
    }
}

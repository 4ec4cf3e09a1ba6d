//! The result of a tool call.

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// The blocks; not empty if it comes from the registry.
    pub blocks: Vec<ToolBlock>,
    /// Whether the call failed.
    pub is_error: bool,
}

/// A block of a result.
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
    /// A text result.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput { blocks: vec![ToolBlock::Text(text.into())], is_error: false }
    }

    /// An error.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { blocks: vec![ToolBlock::Text(text.into())], is_error: true }
    }

    /// All texts, joined by newlines.
    pub fn joined_text(&self) -> String {
        let text = |block: &ToolBlock| match block {
            ToolBlock::Text(text) => Some(text.clone()),
            ToolBlock::Image { .. } => None,
        };
        self.blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n")
    }
}

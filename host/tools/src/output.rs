//! The result of a tool call.

use ctxhost_dialects::ChatBlock;

/// The largest image, in base64: the limit of the strictest provider (Anthropic).
pub(super) const IMAGE_MAX_CHARS: usize = 5_000_000;

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// Texts and images; not empty if it comes from the registry.
    pub blocks: Vec<ChatBlock>,
    /// Whether the call failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// A text result.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput { blocks: vec![ChatBlock::text(text)], is_error: false }
    }

    /// An error.
    pub fn error(text: impl Into<String>) -> ToolOutput {
        ToolOutput { is_error: true, ..ToolOutput::text(text) }
    }

    /// All texts, joined by newlines.
    pub fn joined_text(&self) -> String {
        let text = |block: &ChatBlock| match block {
            ChatBlock::Text { text, .. } => Some(text.clone()),
            _ => None,
        };
        self.blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n")
    }
}

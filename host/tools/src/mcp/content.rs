//! Converts the result of an MCP call to blocks for the model.

use rmcp::model::{CallToolResult, Content, RawContent, ResourceContents};

use crate::output::{ToolBlock, ToolOutput};
use crate::output_limit::truncate_with_notice;

/// Converts a result. Long texts are saved to a file, so this must run on a blocking thread.
pub(super) fn output(result: CallToolResult) -> ToolOutput {
    let mut blocks = result.content.into_iter().map(block).collect::<Vec<_>>();
    // The specification asks servers to repeat structured content as text; some do not.
    if let (true, Some(structured)) = (blocks.is_empty(), result.structured_content) {
        blocks.push(ToolBlock::Text(truncate_with_notice(structured.to_string())));
    }
    ToolOutput { blocks, is_error: result.is_error.unwrap_or(false) }
}

fn block(content: Content) -> ToolBlock {
    ToolBlock::Text(match content.raw {
        RawContent::Text(text) => truncate_with_notice(text.text),
        RawContent::Image(image) => {
            return ToolBlock::Image { data: image.data, mime_type: image.mime_type };
        }
        RawContent::Resource(embedded) => return resource(embedded.resource),
        RawContent::Audio(audio) => {
            format!(
                "[audio, {}: left out, since models here take text and images]",
                audio.mime_type
            )
        }
        RawContent::ResourceLink(link) => {
            let about = link.description.map(|about| format!(": {about}")).unwrap_or_default();
            format!("[resource {} ({}){about}]", link.uri, link.name)
        }
    })
}

fn resource(contents: ResourceContents) -> ToolBlock {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            ToolBlock::Text(truncate_with_notice(format!("[resource {uri}]\n{text}")))
        }
        ResourceContents::BlobResourceContents { mime_type: Some(mime_type), blob, .. }
            if mime_type.starts_with("image/") =>
        {
            ToolBlock::Image { data: blob, mime_type }
        }
        ResourceContents::BlobResourceContents { uri, mime_type, .. } => {
            let kind = mime_type.unwrap_or_else(|| "of unknown type".into());
            ToolBlock::Text(format!("[resource {uri}, {kind}: binary, left out]"))
        }
    }
}

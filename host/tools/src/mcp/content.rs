//! Converts the result of an MCP call to blocks for the model.

use ctxhost_dialects::ChatBlock;
use rmcp::model::{CallToolResult, Content, RawContent, ResourceContents};

use crate::output::{IMAGE_MAX_CHARS, ToolOutput};
use crate::output_limit::truncate_with_notice;

/// Converts a result. Long texts are saved to a file, so this must run on a blocking thread.
pub(super) fn output(result: CallToolResult) -> ToolOutput {
    let mut blocks = result.content.into_iter().map(block).collect::<Vec<_>>();
    // The specification asks servers to repeat structured content as text; some do not.
    if let (true, Some(structured)) = (blocks.is_empty(), result.structured_content) {
        blocks.push(ChatBlock::text(truncate_with_notice(structured.to_string())));
    }
    ToolOutput { blocks, is_error: result.is_error.unwrap_or(false) }
}

fn block(content: Content) -> ChatBlock {
    ChatBlock::text(match content.raw {
        RawContent::Text(text) => truncate_with_notice(text.text),
        RawContent::Image(content) => return image(content.data, content.mime_type),
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

fn resource(contents: ResourceContents) -> ChatBlock {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            ChatBlock::text(truncate_with_notice(format!("[resource {uri}]\n{text}")))
        }
        ResourceContents::BlobResourceContents { mime_type: Some(mime_type), blob, .. }
            if mime_type.starts_with("image/") =>
        {
            image(blob, mime_type)
        }
        ResourceContents::BlobResourceContents { uri, mime_type, .. } => {
            let kind = mime_type.unwrap_or_else(|| "of unknown type".into());
            ChatBlock::text(format!("[resource {uri}, {kind}: binary, left out]"))
        }
    }
}

/// An image, or why it is left out. An image that no provider accepts would have each later request of the session
/// refused.
fn image(data: String, mime_type: String) -> ChatBlock {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let complaint = if data.len() > IMAGE_MAX_CHARS {
        format!("its base64 has {} characters, and models take up to {IMAGE_MAX_CHARS}", data.len())
    } else if data.is_empty() || !data.bytes().all(is_base64) {
        "its data is not base64".into()
    } else {
        return ChatBlock::Image { data, mime_type };
    };
    ChatBlock::text(format!("[image, {mime_type}: left out, since {complaint}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_providers_refuse_are_left_out() {
        let check = |data: String, expected: &str| {
            let output = output(CallToolResult::success(vec![Content::image(data, "image/png")]));
            assert!(format!("{:?}", output.blocks).contains(expected), "{:?}", output.blocks);
        };
        check("AAAA".into(), "Image { data: \"AAAA\"");
        check("A".repeat(5_000_001), "left out, since its base64 has 5000001 characters");
        check("no image".into(), "left out, since its data is not base64");
        check(String::new(), "left out, since its data is not base64");
    }
}

//! The text of a user message that its user wrote.

use std::borrow::Cow;

use ctxhost_engine_api::{ContentBlock, Entry, Message};

use super::patterns::{REFERENCED_FILES, REFERENCED_FILES_END};
use super::{may_have_injected, user_text};

/// The text of an entry; of a user message without what its client inserted.
pub fn request_text<'e>(entry: &Entry<'e>) -> Cow<'e, str> {
    // Only few messages have inserted text, and to parse one takes longer than to look for it.
    if entry.is_user_message() && may_have_injected(entry.text()) {
        own_texts(&entry.message()).into()
    } else {
        entry.text().into()
    }
}

/// The texts of a user message without those that its client inserted, one under the other.
fn own_texts(message: &Message<'_>) -> String {
    let mut own: Vec<String> = Vec::new();
    let mut is_file_content = false;
    for block in &message.blocks {
        let ContentBlock::Text(block) = block else { continue };
        let mut text = block.as_ref();
        // Gemini CLI writes the contents of files, and the marks around them, to blocks of their own.
        if is_file_content {
            let Some((_, after)) = text.split_once(REFERENCED_FILES_END) else { continue };
            text = after;
        }
        let newest = text.rsplit_once(REFERENCED_FILES);
        is_file_content = newest.is_some_and(|(_, after)| !after.contains(REFERENCED_FILES_END));
        let text = user_text(text);
        if !text.is_empty() {
            own.push(text.into_owned());
        }
    }
    own.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own(blocks: &[&str]) -> String {
        let content: Vec<_> =
            blocks.iter().map(|text| json!({ "type": "text", "text": text })).collect();
        let raw = json!({ "role": "user", "content": content }).to_string();
        own_texts(&Message::parse(&raw, ""))
    }

    #[test]
    fn text_of_clients_in_any_block_is_left_out() {
        let opened = "<ide_opened_file>The user opened a.rs.</ide_opened_file>";
        assert_eq!(own(&[opened, "Mend the parser."]), "Mend the parser.");
        assert_eq!(own(&["Mend the parser.", opened, "Now."]), "Mend the parser.\nNow.");
        assert_eq!(own(&[opened]), "");
    }

    #[test]
    fn contents_of_files_are_left_out_up_to_their_end() {
        let (start, end) = ("\n--- Content from referenced files ---", "\n--- End of content ---");
        let file = ["\nContent from @a.rs:\n", "let a = 1;"];
        assert_eq!(own(&["Mend @a.rs", start, file[0], file[1], end]), "Mend @a.rs");
        assert_eq!(own(&["Mend @a.rs", start, file[0], file[1], end, "Now."]), "Mend @a.rs\nNow.");
        assert_eq!(own(&["Mend @a.rs", start, file[0], file[1]]), "Mend @a.rs");
    }
}

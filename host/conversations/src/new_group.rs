//! New items of a conversation and what is known of their entries.

use ctxhost_dialects::inbound::ParsedEntry;
use ctxhost_dialects::message::UserMessage;
use ctxhost_dialects::{ChatBlock, ChatMessage};
use ctxhost_text::injected_text;

/// New items, and their entries.
#[derive(Clone, Debug, Default)]
pub struct NewGroup {
    /// The number of items.
    pub item_count: usize,
    /// The entries in order.
    pub entries: Vec<EntryTraits>,
}

/// What is known of an entry beside its id. Its text is in the session only.
#[derive(Clone, Debug, Default)]
pub struct EntryTraits {
    /// Whether it is a request of the user.
    pub is_user_request: bool,
    /// Of its calls: call id and tool name.
    pub(super) tools: Vec<(String, String)>,
}

impl EntryTraits {
    /// The traits of a parsed entry.
    pub fn of_entry(entry: ParsedEntry) -> EntryTraits {
        match entry {
            ParsedEntry::Message(message) => EntryTraits::of_message(message),
            ParsedEntry::Instruction(_) | ParsedEntry::Note(_) => EntryTraits::default(),
        }
    }

    pub(super) fn of_message(message: ChatMessage) -> EntryTraits {
        match message {
            ChatMessage::User(user) => {
                EntryTraits { is_user_request: is_user_request(&user), tools: Vec::new() }
            }
            ChatMessage::Assistant(answer) => {
                let tools = answer.content.into_iter().filter_map(|block| match block {
                    ChatBlock::ToolCall(call) => Some((call.id, call.name)),
                    _ => None,
                });
                EntryTraits { is_user_request: false, tools: tools.collect() }
            }
            ChatMessage::ToolResult(_) => EntryTraits::default(),
        }
    }
}

/// Whether a message with role user has any text that no client has injected.
fn is_user_request(user: &UserMessage) -> bool {
    let texts = user.content.iter().filter_map(|block| match block {
        ChatBlock::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let has_others = user.content.iter().any(|block| !matches!(block, ChatBlock::Text { .. }));
    injected_text::has_request(texts, has_others)
}

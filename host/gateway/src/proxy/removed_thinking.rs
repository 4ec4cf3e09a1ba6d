//! Keeps signed thinking that is not sent out of every size.
//!
//! The plan of an engine decides which thinking a request loses, and an engine plans by the sizes of the entries. So the
//! thinking that a request has lost is subtracted from its size, and once it is a large part of the budget, the session
//! gets edits that remove it: the entries then have the size that is sent. As after a compaction, a new epoch begins.
//!
//! ```text
//!  thinking of finished turns ─┬─ the history does not fit with it ────────► removed before the engine plans
//!                              ├─ much of it was lost by the last plan ────► removed at the next request
//!                              └─ else ────────────────────────────────────► subtracted from the size that is reported
//! ```

use std::sync::Arc;

use ctxhost_agent::TurnError;
use ctxhost_context::{Amendment, CompactionPolicy, Target};
use ctxhost_conversations::{ContentHashes, KnownItems, is_thinking_removal};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{ContentBlock, Entry, Flags, Message, PlanItem, Transcript};
use ctxhost_session::{RecordBody, Session};
use serde_json::{Value, json};

use super::core::Proxy;
use super::ingest::IngestedRequest;
use super::thinking::{ThinkingContext, ThinkingPlan};

/// The share of the budget, as a divisor, from which thinking is removed from the session. Each removal makes an engine plan
/// anew, so it must be worth that.
const LARGE_DIVISOR: u64 = 8;

/// Whether thinking was removed from the current branch of a session.
pub(super) fn has_removals(session: &Session) -> bool {
    session.branch().into_iter().any(is_thinking_removal)
}

/// The estimated tokens of the thinking that a request with these items loses.
pub(super) fn lost_tokens(
    plan: &ThinkingPlan,
    known_items: &KnownItems,
    items: &[PlanItem<'_>],
) -> u64 {
    let thinking_of = |item: &PlanItem<'_>| {
        let (entry, raw) = match item {
            PlanItem::Kept(entry) if entry.has(Flags::THINKING) => (entry, entry.raw()),
            PlanItem::ReplacedRaw { entry, raw } => (entry, *raw),
            _ => return None,
        };
        let place = known_items.location(entry.id())?;
        plan.omits(place.group).then(|| thinking_tokens(raw))
    };
    items.iter().filter_map(thinking_of).sum()
}

/// The estimated tokens of the thinking in a message.
fn thinking_tokens(raw: &str) -> u64 {
    let mut message = Message::parse(raw, "");
    let all_tokens = tokens::message(&message);
    message.blocks.retain(|block| !matches!(block, ContentBlock::Thinking { .. }));
    all_tokens.saturating_sub(tokens::message(&message))
}

impl Proxy {
    /// Removes the thinking of finished turns from the session, where the request cannot have it and it is a large part of
    /// the budget.
    ///
    /// # Errors
    ///
    /// [`TurnError`] if the session cannot be written.
    pub(super) fn remove_thinking(
        &self,
        ingested: &mut IngestedRequest,
        target: &Target,
    ) -> Result<(), TurnError> {
        let budget_tokens = ingested.guard.budget(target).tokens;
        let large_tokens = (budget_tokens / LARGE_DIVISOR).max(1);
        let lost_tokens = ingested.conversation.state().lost_thinking_tokens;
        let view = ingested.guard.view();
        // The provider has a repeated request in its prompt cache as it was.
        let was_lost = lost_tokens >= large_tokens && !ingested.is_repeat;
        let is_too_large =
            view.total_tokens() > budget_tokens && target.compaction != CompactionPolicy::Never;
        if !was_lost && !is_too_large {
            return Ok(());
        }
        let refused = self.refused_thinking(&ingested.session);
        let removed = RemovedThinking::find(&ingested.conversation.known_items(), &view, refused);
        if removed.tokens < large_tokens {
            return Ok(());
        }
        tracing::debug!(
            session = ingested.session,
            tokens = removed.tokens,
            entries = removed.contents.len(),
            budget_tokens,
            "the thinking of finished turns is not sent any more"
        );
        let (mut contents, mut edits) = (ContentHashes::default(), Vec::new());
        for (id, content) in removed.contents {
            edits.push(RecordBody::context_edit(&id, Some(&content)));
            contents.add(&id, &content);
        }
        let amendment = Amendment { branch_point: None, edits };
        // An edit counts only with a record of known items behind it.
        let known = ingested.conversation.known_items().empty_record();
        if let Err(error) =
            ingested.guard.amend(amendment, vec![contents.record(removed.tokens), known])
        {
            // The write may be partial. Reopening the file repairs it.
            self.invalidate(&ingested.conversation);
            return Err(error.into());
        }
        let mut state = ingested.conversation.state();
        Arc::make_mut(&mut state.known).add_removed_thinking(contents);
        state.lost_thinking_tokens = 0;
        Ok(())
    }
}

/// The thinking that a session loses.
#[derive(Debug, Default)]
struct RemovedThinking {
    /// Entry ids, and the JSON of their content without thinking.
    contents: Vec<(String, String)>,
    /// The estimated tokens of the thinking.
    tokens: u64,
}

impl RemovedThinking {
    /// The thinking that a compaction now would remove.
    fn find(known_items: &KnownItems, view: &Transcript, refused: usize) -> RemovedThinking {
        let compacted = known_items.groups().len().checked_sub(1);
        let plan =
            ThinkingPlan::new(ThinkingContext { known_items, view, compacted, refused }, &[]);
        let is_removed = |entry: &Entry<'_>| {
            // What a compaction has replaced, no edit of the record changes.
            entry.has(Flags::THINKING)
                && !entry.has(Flags::REPLACED)
                && known_items.location(entry.id()).is_some_and(|place| plan.omits(place.group))
        };
        let mut removed = RemovedThinking::default();
        for entry in view.iter().filter(is_removed) {
            if let Some(content) = content_without_thinking(entry.raw()) {
                removed.tokens += thinking_tokens(entry.raw());
                removed.contents.push((entry.id().to_owned(), content));
            }
        }
        removed
    }
}

/// The content of a message without its thinking; `None` if nothing is left of it.
fn content_without_thinking(raw: &str) -> Option<String> {
    let mut message: Value = serde_json::from_str(raw).ok()?;
    let blocks = message.get_mut("content")?.as_array_mut()?;
    blocks.retain(|block| block.get("type").and_then(Value::as_str) != Some("thinking"));
    let blocks = &*blocks;
    (!blocks.is_empty()).then(|| json!(blocks).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_an_answer_stays() {
        let thought = "I look at the parser first. ".repeat(40);
        let raw = json!({
            "role": "assistant",
            "content": [
                { "type": "thinking", "thinking": thought, "thinkingSignature": "c2ln" },
                { "type": "text", "text": "Done." },
                { "type": "toolCall", "id": "a", "name": "read", "arguments": { "b": 1, "a": 2.50 } },
            ],
        });
        let content = content_without_thinking(&raw.to_string()).unwrap();
        let expected = r#"[{"type":"text","text":"Done."},{"type":"toolCall","id":"a","name":"read","arguments":{"b":1,"a":2.5}}]"#;
        assert_eq!(content, expected);
        let rest = json!({ "role": "assistant", "content": serde_json::from_str::<Value>(&content).unwrap() });
        let size = |raw: &Value| tokens::message(&Message::parse(&raw.to_string(), ""));
        let lost = thinking_tokens(&raw.to_string());
        assert!(lost > 200, "{lost}");
        assert_eq!(size(&raw) - lost, size(&rest));
        let only = json!({ "role": "assistant", "content": [raw["content"][0]] });
        assert_eq!(content_without_thinking(&only.to_string()), None);
    }
}

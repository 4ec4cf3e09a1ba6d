//! Maps call ids to ids that a provider accepts.
//!
//! Ids are mapped in order of appearance, so that an id keeps its mapping when the conversation
//! grows. Otherwise the next request would miss the prompt cache.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

use crate::message::ChatMessage;

/// Which ids a provider accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRule {
    /// Letters, digits and `_ - . :`, at most this many characters.
    Any {
        /// The longest id.
        max_chars: usize,
    },
    /// Letters, digits, `_` and `-`, at most 64 characters.
    Anthropic,
    /// Exactly nine letters and digits.
    Mistral,
}

/// The ids of one request, of calls and results.
#[derive(Clone, Debug)]
pub struct CallIds {
    rule: IdRule,
    wire_ids: HashMap<String, String>,
}

impl CallIds {
    /// Maps the ids of messages. Different ids are mapped to different ones.
    pub fn from_messages(messages: &[ChatMessage], rule: IdRule) -> CallIds {
        let mut ids = CallIds { rule, wire_ids: HashMap::new() };
        let mut taken = HashSet::new();
        for id in messages.iter().flat_map(ids_in) {
            if !ids.wire_ids.contains_key(id) {
                // Two ids may become equal without their illegal characters.
                let free = candidates(id, rule).find(|candidate| !taken.contains(candidate));
                let written = free.unwrap_or_else(|| rule.fit(id));
                taken.insert(written.clone());
                ids.wire_ids.insert(id.to_owned(), written);
            }
        }
        ids
    }

    /// The mapped id. An id of no message is mapped by the rule alone.
    pub fn wire_id(&self, id: &str) -> String {
        self.wire_ids.get(id).cloned().unwrap_or_else(|| self.rule.fit(id))
    }
}

/// The ids of one message.
fn ids_in(message: &ChatMessage) -> Vec<&str> {
    match message {
        ChatMessage::User(_) => Vec::new(),
        ChatMessage::ToolResult(result) => vec![result.tool_call_id.as_str()],
        ChatMessage::Assistant(message) => {
            message.tool_calls().map(|call| call.id.as_str()).collect()
        }
    }
}

/// Candidates for an id: by the rule, then hashes of it.
fn candidates(id: &str, rule: IdRule) -> impl Iterator<Item = String> {
    let hashes = (0..u64::MAX).map(move |attempt| hash(id, attempt, rule.hash_chars()));
    std::iter::once(rule.fit(id)).chain(hashes)
}

impl IdRule {
    /// The id by the rule, without regard to collisions.
    fn fit(self, id: &str) -> String {
        if self.is_legal(id) {
            return id.to_owned();
        }
        let clean: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
        match self {
            IdRule::Mistral if id.is_empty() => "defaultid".to_owned(),
            IdRule::Mistral if clean.len() >= 9 => clean.chars().take(9).collect(),
            // The hash is of the original id: `a|` and `a` have to differ.
            IdRule::Mistral => hash(id, 0, 9),
            _ if id.is_empty() => "defaulttoolid".to_owned(),
            _ if clean.is_empty() || clean.len() > self.max_chars() => {
                hash(id, 0, self.hash_chars())
            }
            _ => clean,
        }
    }

    fn is_legal(self, id: &str) -> bool {
        let also = |others: &'static str| {
            move |char: char| char.is_ascii_alphanumeric() || others.contains(char)
        };
        let fits = !id.is_empty() && id.len() <= self.max_chars();
        match self {
            IdRule::Any { .. } => fits && id.chars().all(also("_-.:")),
            IdRule::Anthropic => fits && id.chars().all(also("_-")),
            IdRule::Mistral => id.len() == 9 && id.chars().all(also("")),
        }
    }

    fn max_chars(self) -> usize {
        match self {
            IdRule::Any { max_chars } => max_chars,
            IdRule::Anthropic => 64,
            IdRule::Mistral => 9,
        }
    }

    /// 24 hex digits do not collide by accident; Mistral allows only nine.
    fn hash_chars(self) -> usize {
        self.max_chars().min(24)
    }
}

/// The first hex digits of the SHA-256 of an id.
fn hash(id: &str, attempt: u64, chars: usize) -> String {
    let mut hash = Sha256::new();
    hash.update(attempt.to_le_bytes());
    hash.update(id.as_bytes());
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(chars).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::message::{AssistantMessage, ChatBlock, ToolCallBlock, ToolResultMessage};

    const RULES: [IdRule; 3] = [IdRule::Any { max_chars: 40 }, IdRule::Anthropic, IdRule::Mistral];

    fn conversation(ids: &[String]) -> Vec<ChatMessage> {
        let call = |id: &String| {
            ChatBlock::ToolCall(ToolCallBlock { id: id.clone(), ..Default::default() })
        };
        let result = |id: &String| {
            let result = ToolResultMessage { tool_call_id: id.clone(), ..Default::default() };
            ChatMessage::ToolResult(result)
        };
        let content = ids.iter().map(call).collect();
        let calls = AssistantMessage { content, ..Default::default() };
        std::iter::once(ChatMessage::Assistant(calls)).chain(ids.iter().map(result)).collect()
    }

    fn written(ids: &[&str], rule: IdRule) -> Vec<String> {
        let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
        let map = CallIds::from_messages(&conversation(&ids), rule);
        ids.iter().map(|id| map.wire_id(id)).collect()
    }

    #[test]
    fn mistral_wants_nine_letters_and_digits() {
        let ids = written(&["abc123DEF", "a", "", "call_123456789"], IdRule::Mistral);
        assert_eq!(ids[0], "abc123DEF");
        assert_eq!((ids[1].len(), ids[1].as_str() != "a"), (9, true));
        assert_eq!(ids[2], "defaultid");
        assert_eq!(ids[3], "call12345");
    }

    #[test]
    fn legal_ids_stay_and_others_lose_what_is_illegal() {
        let long = "x".repeat(41);
        let ids = written(&["call_1", "functions.read:0", "call_1|fc_2", "", &long], RULES[0]);
        assert_eq!(ids[..4], ["call_1", "functions.read:0", "call1fc2", "defaulttoolid"]);
        assert_eq!(ids[4].len(), 24);
        let ids = written(&["toolu_1-2", "functions.read:0", "дом"], IdRule::Anthropic);
        assert_eq!(ids[..2], ["toolu_1-2", "functionsread0"]);
        assert_eq!(ids[2].len(), 24);
    }

    #[test]
    fn what_would_become_the_same_stays_different() {
        for rule in RULES {
            let ids =
                written(&["call|1", "call1", "call 1", "call_1234567", "call_12345678"], rule);
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{rule:?}: {ids:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn every_id_is_legal_unique_and_the_same_however_the_conversation_goes_on(
            ids in prop::collection::btree_set("[a-c_|.é ]{0,12}|[a-z]{30,90}", 1..24),
            shown in 1usize..24,
        ) {
            let ids: Vec<_> = ids.into_iter().collect();
            for rule in RULES {
                let all = CallIds::from_messages(&conversation(&ids), rule);
                let unique: BTreeSet<_> = ids.iter().map(|id| all.wire_id(id)).collect();
                prop_assert_eq!(unique.len(), ids.len());
                prop_assert!(unique.iter().all(|id| rule.is_legal(id)), "{:?}", unique);
                let first = &ids[..shown.min(ids.len())];
                let earlier = CallIds::from_messages(&conversation(first), rule);
                for id in first {
                    prop_assert_eq!(earlier.wire_id(id), all.wire_id(id));
                }
            }
        }
    }
}

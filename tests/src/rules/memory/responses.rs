//! reasoning comes back whole, and only what was stored is referred to.

use serde_json::Value;

use super::super::json::{has, list, text};
use super::super::{Broken, responses::kind};
use super::{Memory, notes};

impl Memory {
    pub(super) fn check_responses(&self, body: &Value, found: &mut Vec<Broken>) {
        self.r_4(body, found);
        self.r_6(body, found);
        self.r_9(body, found);
    }

    /// An item with its own id needs the reasoning that led to it.
    fn r_4(&self, body: &Value, found: &mut Vec<Broken>) {
        if has(body, "previous_response_id") || has(body, "conversation") {
            return;
        }
        let items = list(body, "input");
        for (at, item) in items.iter().enumerate() {
            let Some(reason) = self.reasons.get(text(item, "id")) else { continue };
            let there = items.iter().take(at).any(|before| text(before, "id") == reason);
            let why = format!(
                "Item '{}' of type '{}' was provided without its required 'reasoning' item: '{reason}'.",
                text(item, "id"),
                kind(item)
            );
            notes("R-4", found).demand(there, format!("input.{at}"), why);
        }
    }

    /// What is encrypted comes back as it was sent.
    fn r_6(&self, body: &Value, found: &mut Vec<Broken>) {
        for (at, item) in list(body, "input").iter().enumerate() {
            let encrypted = text(item, "encrypted_content");
            let known = encrypted.is_empty() || self.signatures.contains_key(encrypted);
            let why = format!(
                "The encrypted content for item {} could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
                text(item, "id")
            );
            notes("R-6", found).demand(known, format!("input.{at}.encrypted_content"), why);
        }
    }

    /// Only what was stored can be gone on from.
    fn r_9(&self, body: &Value, found: &mut Vec<Broken>) {
        let id = text(body, "previous_response_id");
        let known = id.is_empty() || self.stored.contains(id);
        let why = format!("Previous response with id '{id}' not found.");
        notes("R-9", found).demand(known, "previous_response_id", why);
    }
}

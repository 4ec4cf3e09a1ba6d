//! G-8: a signature comes back on the part that it was sent with.

use serde_json::Value;

use super::super::Broken;
use super::super::gemini::STAND_IN;
use super::super::json::{list, text};
use super::{Memory, notes};

impl Memory {
    pub(super) fn check_gemini(&self, body: &Value, found: &mut Vec<Broken>) {
        for (at, turn) in list(body, "contents").iter().enumerate() {
            for part in list(turn, "parts") {
                let signature = text(part, "thoughtSignature");
                if signature.is_empty() || signature == STAND_IN {
                    continue;
                }
                let kept = match self.signatures.get(signature) {
                    Some(of) if part.get("functionCall").is_some() => {
                        of == text(&part["functionCall"], "name")
                    }
                    Some(of) => of.is_empty(),
                    None => false,
                };
                let why = "Thought signature is not valid.";
                notes("G-8", found).demand(kept, format!("contents.{at}"), why);
            }
        }
    }
}

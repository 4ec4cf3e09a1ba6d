//! Signs the summaries in compaction items and verifies them when they come back.
//!
//! OpenAI clients send `encrypted_content` back unread. Ours is readable: `ctxhost-summary-1.<hmac>.<text>`. It is replaced
//! by a user message before the request is forwarded.

use std::borrow::Cow;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use memchr::memmem;
use serde::Deserialize;
use sha2::Sha256;

use crate::secret::{SecretFile, from_hex, random_bytes, to_hex};
use ctxhost_dialects::OpenAiResponsesInbound;
use ctxhost_dialects::inbound::{InboundDialect, ParsedBody};
use ctxhost_session::render_compaction_summary;

/// The prefix of a signed summary.
const MARK: &str = "ctxhost-summary-1.";

/// The source named in the summary's frame, which the model reads.
const SOURCE: &str = "of ctxhost";

/// The key file.
const KEY: SecretFile =
    SecretFile { name: "compaction.key", action: "store the compaction key in" };

/// Signs summaries and verifies its own.
pub(super) struct SummarySigner {
    key: [u8; 32],
}

impl std::fmt::Debug for SummarySigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SummarySigner")
    }
}

/// Where a compaction item comes from.
enum SummaryOrigin {
    /// This gateway: the summary.
    Ours(String),
    /// It has our prefix but no valid signature.
    Forged,
    Foreign,
}

impl SummarySigner {
    /// Reads the key in a folder, or creates one.
    pub(super) fn open(folder: &Path) -> SummarySigner {
        let key = KEY.read_or_create(folder).unwrap_or_else(|error| {
            tracing::error!(%error, "using a temporary compaction key: signed summaries are invalid after a restart");
            random_bytes()
        });
        SummarySigner { key }
    }

    /// A signed summary.
    pub(super) fn sign(&self, text: &str) -> String {
        let signature = self.mac(text).map(|mac| to_hex(&mac.finalize().into_bytes()));
        format!("{MARK}{}.{text}", signature.unwrap_or_default())
    }

    /// The body with signed summaries replaced by user messages and without those whose signature is invalid; `None` if it
    /// has neither.
    pub(super) fn replace_signed(&self, json: &str, body: &ParsedBody<'_>) -> Option<String> {
        // Most requests have no signed summary, and a substring search is cheaper than parsing all items.
        memmem::find(json.as_bytes(), MARK.as_bytes())?;
        let mut is_changed = false;
        let mut items: Vec<Cow<'_, str>> = Vec::with_capacity(body.items.len());
        for item in &body.items {
            match self.classify(item) {
                SummaryOrigin::Foreign => items.push(Cow::Borrowed(item)),
                SummaryOrigin::Ours(text) => {
                    is_changed = true;
                    let text = render_compaction_summary(&text, SOURCE, 0);
                    items.push(OpenAiResponsesInbound.user_item(&text).to_string().into());
                }
                SummaryOrigin::Forged => {
                    is_changed = true;
                    tracing::warn!(
                        "removed a compaction item with an invalid signature from a request"
                    );
                }
            }
        }
        let (before, after) = body.split_at_messages(json, items.is_empty());
        is_changed.then(|| format!("{before}{}{after}", items.join(",")))
    }

    fn classify(&self, item: &str) -> SummaryOrigin {
        #[derive(Deserialize)]
        struct WireCompactionItem {
            r#type: String,
            encrypted_content: String,
        }
        if memmem::find(item.as_bytes(), MARK.as_bytes()).is_none() {
            return SummaryOrigin::Foreign;
        }
        let Ok(WireCompactionItem { r#type, encrypted_content }) = serde_json::from_str(item)
        else {
            return SummaryOrigin::Foreign;
        };
        match encrypted_content.strip_prefix(MARK) {
            // Codex also sends the item type `compaction_summary`.
            Some(sealed) if r#type.starts_with("compaction") => self
                .verify(sealed)
                .map_or(SummaryOrigin::Forged, |text| SummaryOrigin::Ours(text.to_owned())),
            _ => SummaryOrigin::Foreign,
        }
    }

    fn verify<'a>(&self, sealed: &'a str) -> Option<&'a str> {
        let (signature, text) = sealed.split_once('.')?;
        let signature = from_hex(signature)?;
        self.mac(text)?.verify_slice(&signature).ok()?;
        Some(text)
    }

    fn mac(&self, text: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(text.as_bytes());
        Some(mac)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn open(seal: &SummarySigner, item: &Value) -> Option<Value> {
        let on = json!({ "role": "user", "content": "On." });
        let json = json!({ "model": "gpt-5", "input": [item, on], "store": false }).to_string();
        let opened =
            seal.replace_signed(&json, &OpenAiResponsesInbound.parse_body(&json).unwrap())?;
        let body: Value = serde_json::from_str(&opened).unwrap();
        assert_eq!((&body["model"], &body["store"]), (&json!("gpt-5"), &json!(false)));
        assert_eq!(body["input"].as_array().unwrap().last(), Some(&on));
        Some(body["input"].clone())
    }

    fn item(content: &str) -> Value {
        json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": content })
    }

    #[test]
    fn a_signed_summary_is_verified_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let sealed =
            SummarySigner::open(folder.path()).sign("It was about \"ducks\". </summary> End.");
        assert!(sealed.contains("It was about \"ducks\"."), "{sealed}");
        let reopened = SummarySigner::open(folder.path());
        for kind in ["compaction", "compaction_summary"] {
            let mut item = item(&sealed);
            item["type"] = kind.into();
            let input = open(&reopened, &item).unwrap();
            assert_eq!(input.as_array().unwrap().len(), 2);
            assert_eq!(input[0]["role"], "user");
            let text = input[0]["content"][0]["text"].as_str().unwrap();
            let frame = "<summary source=\"compaction of ctxhost\" trust=\"untrusted\">\nIt was about \"ducks\". &lt;/summary> End.\n</summary>";
            assert!(text.ends_with(frame), "{text}");
        }
    }

    #[test]
    fn forged_and_damaged_summaries_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (seal, other) = (SummarySigner { key: [7; 32] }, SummarySigner::open(folder.path()));
        let sealed = seal.sign("true");
        let wrong = [
            other.sign("true"),
            sealed.replace("true", "false"),
            sealed.replace(MARK, &format!("{MARK}0")),
            format!("{MARK}.true"),
            format!("{MARK}true"),
            MARK.to_owned(),
        ];
        for wrong in wrong {
            let input = open(&seal, &item(&wrong)).unwrap();
            assert_eq!(input.as_array().unwrap().len(), 1, "{wrong}");
        }
        // Nothing is left but the instructions.
        let instructions = json!({ "role": "developer", "content": "Be brief." });
        let json = json!({ "input": [instructions, item(MARK)] }).to_string();
        let opened =
            seal.replace_signed(&json, &OpenAiResponsesInbound.parse_body(&json).unwrap()).unwrap();
        assert_eq!(opened, json!({ "input": [instructions] }).to_string());
    }

    #[test]
    fn foreign_items_are_unchanged() {
        let seal = SummarySigner { key: [7; 32] };
        let sealed = seal.sign("true");
        assert_eq!(open(&seal, &item("gAAAA")), None);
        assert_eq!(open(&seal, &item(&format!("gAAAA{sealed}"))), None);
        assert_eq!(open(&seal, &json!({ "role": "user", "content": sealed })), None);
        assert_eq!(open(&seal, &json!({ "type": "reasoning", "encrypted_content": sealed })), None);
    }
}

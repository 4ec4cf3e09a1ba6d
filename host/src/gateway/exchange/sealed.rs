//! A summary of ours inside a compaction item: readable, and signed, so that what comes back is known
//! to be what went out.
//!
//! Clients of OpenAI's replay `encrypted_content` unread. Ours is not encrypted: it is
//! `ctxhost-summary-1.<hmac>.<text>`, and becomes a message in the person's place before a model that
//! knows nothing of it is asked.

use hmac::{Hmac, KeyInit, Mac};
use memchr::memmem;
use serde::Deserialize;
use sha2::Sha256;

use crate::gateway::speech::{Body, ResponsesSpeech, Speech, offset};

/// How what we sealed begins.
const MARK: &str = "ctxhost-summary-1.";

/// A text, sealed.
pub(super) fn seal(seed: u64, text: &str) -> String {
    format!("{MARK}{}.{text}", signature(seed, text))
}

/// The body with every sealed summary of ours as a message; `None` where there is none.
pub(super) fn opened(seed: u64, json: &str, body: &Body<'_>) -> Option<String> {
    memmem::find(json.as_bytes(), MARK.as_bytes())?;
    let mut written = String::with_capacity(json.len());
    let mut from = 0;
    for item in &body.items {
        let Some(text) = summary_in(seed, item) else { continue };
        let at = offset(json, item);
        written.push_str(json.get(from..at)?);
        written.push_str(&ResponsesSpeech.person(&text).to_string());
        from = at + item.len();
    }
    if from == 0 {
        return None;
    }
    written.push_str(json.get(from..)?);
    Some(written)
}

fn summary_in(seed: u64, item: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct WireItem {
        r#type: String,
        encrypted_content: String,
    }
    memmem::find(item.as_bytes(), MARK.as_bytes())?;
    let item: WireItem =
        serde_json::from_str(item).ok().filter(|it: &WireItem| it.r#type == "compaction")?;
    let (signed, text) = item.encrypted_content.strip_prefix(MARK)?.split_once('.')?;
    // Nobody learns from the time this takes: who may ask here may seal.
    (signed == signature(seed, text)).then(|| text.to_owned())
}

fn signature(seed: u64, text: &str) -> String {
    // A key of any length will do.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&seed.to_le_bytes()) else {
        return String::new();
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(seed: u64, item: &serde_json::Value) -> Option<String> {
        let json =
            json!({ "model": "gpt-5", "input": [item, { "role": "user", "content": "On." }] });
        let json = json.to_string();
        opened(seed, &json, &ResponsesSpeech.body(&json).unwrap())
    }

    #[test]
    fn what_was_sealed_here_is_read_again() {
        let sealed = seal(7, "It was about \"ducks\".");
        let item = json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": sealed });
        let body = open(7, &item).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["input"][0]["role"], "user");
        assert_eq!(body["input"][0]["content"][0]["text"], "It was about \"ducks\".");
        assert_eq!(body["input"][1], json!({ "role": "user", "content": "On." }));
    }

    #[test]
    fn what_was_not_stays_as_it_is() {
        let item = |content: &str| json!({ "type": "compaction", "encrypted_content": content });
        let sealed = seal(7, "true");
        assert_eq!(open(8, &item(&sealed)), None);
        assert_eq!(open(7, &item(&sealed.replace("true", "false"))), None);
        assert_eq!(open(7, &item("gAAAA")), None);
        assert_eq!(open(7, &json!({ "role": "user", "content": sealed })), None);
    }
}

//! Signs the summaries in compaction items and verifies them when they come back.
//!
//! OpenAI clients send `encrypted_content` back unread. Ours is readable: `ctxhost-summary-1.<hmac>.<JSON>`. Before the
//! request is shaped, the item is replaced by the messages in it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::Sha256;

use ctxhost_conversations::secret::{SecretFile, from_hex, random_bytes, to_hex};
use ctxhost_conversations::{ReturnedSummary, SeededHash, SummaryOrigin};
use ctxhost_dialects::OpenAiResponsesInbound;
use ctxhost_dialects::inbound::{InboundDialect, ParsedBody};
use ctxhost_dialects::openai_responses::SUMMARY_MARK as MARK;
use ctxhost_session::render_compaction_summary;

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

/// A compacted conversation as its client carries it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct CarriedHistory {
    /// The summary without a frame; empty if `input` is everything.
    pub(super) summary: String,
    /// The items that were kept.
    pub(super) input: Vec<Box<RawValue>>,
    origin: Option<WireOrigin>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct WireOrigin {
    key: String,
    session: String,
    first: String,
}

impl CarriedHistory {
    /// A summary and the items after it, of this conversation.
    pub(super) fn new(
        summary: String,
        input: Vec<Box<RawValue>>,
        origin: Option<SummaryOrigin>,
    ) -> CarriedHistory {
        let origin = origin.map(|origin| WireOrigin {
            key: origin.home_key.to_hex(),
            session: origin.session,
            first: origin.first_item.to_hex(),
        });
        CarriedHistory { summary, input, origin }
    }

    fn origin(&self) -> Option<SummaryOrigin> {
        let WireOrigin { key, session, first } = self.origin.as_ref()?;
        Some(SummaryOrigin {
            home_key: SeededHash::from_hex(key)?,
            session: session.clone(),
            first_item: SeededHash::from_hex(first)?,
        })
    }

    /// The items that stand for it, with the summary as a user message.
    fn items(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.summary_item().into_iter().chain(self.input.iter().map(|item| item.get().into()))
    }

    fn summary_item(&self) -> Option<Cow<'_, str>> {
        let text = render_compaction_summary(&self.summary, SOURCE, 0);
        let item = || OpenAiResponsesInbound.user_item(&text).to_string().into();
        (!self.summary.is_empty()).then(item)
    }
}

/// A body without compaction items of this gateway.
#[derive(Debug)]
pub(super) struct OpenedBody {
    pub(super) json: String,
    /// The summary that its first item is.
    pub(super) summary: Option<ReturnedSummary>,
}

/// An item of a request.
enum ReadItem<'a> {
    /// A compaction of this gateway.
    Own(CarriedHistory),
    /// It has our prefix but no valid signature.
    Forged,
    Other(&'a str),
}

impl SummarySigner {
    /// Reads the key in a folder, or creates one.
    pub(super) fn open(folder: &Path) -> SummarySigner {
        let key = KEY.read_or_create(folder).unwrap_or_else(|error| {
            tracing::error!(%error, "using a temporary compaction key: signed summaries are invalid after a restart; make the folder writable, or set CTXHOST_STATE_DIR to one that is");
            random_bytes()
        });
        SummarySigner { key }
    }

    /// A signed history.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON.
    pub(super) fn sign(&self, history: &CarriedHistory) -> serde_json::Result<String> {
        let text = serde_json::to_string(history)?;
        let signature = self.mac(&text).map(|mac| to_hex(&mac.finalize().into_bytes()));
        Ok(format!("{MARK}{}.{text}", signature.unwrap_or_default()))
    }

    /// The body with the messages of the newest signed item in its place, their summary in front of all, and without
    /// items whose signature is invalid; `None` if it has neither.
    pub(super) fn open_items(&self, json: &str, body: &ParsedBody<'_>) -> Option<OpenedBody> {
        // Most requests have no signed summary, and a substring search is cheaper than parsing all items.
        memmem::find(json.as_bytes(), MARK.as_bytes())?;
        let mut items: Vec<ReadItem<'_>> =
            body.items.iter().map(|item| self.read_item(item)).collect();
        if items.iter().all(|item| matches!(item, ReadItem::Other(_))) {
            return None;
        }
        if items.iter().any(|item| matches!(item, ReadItem::Forged)) {
            tracing::warn!("removed a compaction item with an invalid signature from a request");
        }
        let newest = items.iter().rposition(|item| matches!(item, ReadItem::Own(_)));
        let after = items.split_off(newest.map_or(items.len(), |newest| newest + 1));
        let newest = newest.and_then(|_| items.pop());
        let mut opened: Vec<Cow<'_, str>> = Vec::new();
        let mut summary = None;
        if let Some(ReadItem::Own(history)) = &newest {
            opened.extend(history.summary_item());
            opened.extend(items_before(&items, history));
            opened.extend(history.input.iter().map(|item| Cow::Borrowed(item.get())));
            summary = (!history.summary.is_empty()).then(|| ReturnedSummary {
                text: history.summary.clone(),
                items: opened.len(),
                origin: history.origin(),
            });
        } else {
            opened.extend(others(&items));
        }
        opened.extend(others(&after));
        let (before, after) = body.split_at_messages(json, opened.is_empty());
        let json = format!("{before}{}{after}", opened.join(","));
        Some(OpenedBody { json, summary })
    }

    fn read_item<'a>(&self, item: &'a str) -> ReadItem<'a> {
        #[derive(Deserialize)]
        struct WireCompactionItem {
            r#type: String,
            encrypted_content: String,
        }
        if memmem::find(item.as_bytes(), MARK.as_bytes()).is_none() {
            return ReadItem::Other(item);
        }
        let Ok(WireCompactionItem { r#type, encrypted_content }) = serde_json::from_str(item)
        else {
            return ReadItem::Other(item);
        };
        match encrypted_content.strip_prefix(MARK) {
            // Codex also sends the item type `compaction_summary`.
            Some(sealed) if r#type.starts_with("compaction") => {
                self.verify(sealed).map_or(ReadItem::Forged, ReadItem::Own)
            }
            _ => ReadItem::Other(item),
        }
    }

    fn verify(&self, sealed: &str) -> Option<CarriedHistory> {
        let (signature, text) = sealed.split_once('.')?;
        let signature = from_hex(signature)?;
        self.mac(text)?.verify_slice(&signature).ok()?;
        serde_json::from_str(text).ok()
    }

    fn mac(&self, text: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(text.as_bytes());
        Some(mac)
    }
}

/// The items before the newest history that are not in it: a client may keep user messages, and older histories.
fn items_before<'a>(
    items: &'a [ReadItem<'_>],
    history: &CarriedHistory,
) -> impl Iterator<Item = Cow<'a, str>> {
    let value = |item: &str| serde_json::from_str::<Value>(item).map(|value| value.to_string());
    let kept: HashSet<String> =
        history.input.iter().filter_map(|item| value(item.get()).ok()).collect();
    let is_new = move |item: &Cow<'_, str>| !value(item).is_ok_and(|item| kept.contains(&item));
    let session = history.origin.as_ref().map(|origin| origin.session.clone());
    let items = items.iter().filter(move |item| match item {
        ReadItem::Own(older) => {
            session.is_none()
                || older.origin.as_ref().map(|origin| &origin.session) != session.as_ref()
        }
        _ => true,
    });
    items.flat_map(item_texts).filter(is_new)
}

fn others<'a>(items: &'a [ReadItem<'_>]) -> impl Iterator<Item = Cow<'a, str>> {
    items.iter().flat_map(item_texts)
}

fn item_texts<'a>(item: &'a ReadItem<'_>) -> Vec<Cow<'a, str>> {
    match item {
        ReadItem::Own(history) => history.items().collect(),
        ReadItem::Forged => Vec::new(),
        ReadItem::Other(item) => vec![Cow::Borrowed(*item)],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(
        seal: &SummarySigner,
        items: &[&Value],
    ) -> Option<(Vec<Value>, Option<ReturnedSummary>)> {
        let on = json!({ "role": "user", "content": "On." });
        let input = [items, &[&on]].concat();
        let json = json!({ "model": "gpt-5", "input": input, "store": false }).to_string();
        let OpenedBody { json, summary } =
            seal.open_items(&json, &OpenAiResponsesInbound.parse_body(&json).unwrap())?;
        let body: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&body["model"], &body["store"]), (&json!("gpt-5"), &json!(false)));
        let mut input = body["input"].as_array().unwrap().clone();
        assert_eq!(input.pop(), Some(on));
        Some((input, summary))
    }

    fn user(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn sign(seal: &SummarySigner, summary: &str, input: &[&Value], session: &str) -> Value {
        let input = input.iter().map(|item| RawValue::from_string(item.to_string()).unwrap());
        let origin = SummaryOrigin {
            home_key: SeededHash::new(1, "home"),
            session: session.into(),
            first_item: SeededHash::new(1, "first"),
        };
        let history = CarriedHistory::new(summary.into(), input.collect(), Some(origin));
        item(&seal.sign(&history).unwrap())
    }

    fn item(content: &str) -> Value {
        json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": content })
    }

    #[test]
    fn a_signed_history_is_verified_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let summary = "It was about \"ducks\". </summary> End.";
        let kept = user("And geese.");
        let mut item = sign(&SummarySigner::open(folder.path()), summary, &[&kept], "s1");
        assert!(item["encrypted_content"].as_str().unwrap().contains("It was about"), "{item}");
        let reopened = SummarySigner::open(folder.path());
        for kind in ["compaction", "compaction_summary"] {
            item["type"] = kind.into();
            let (input, returned) = open(&reopened, &[&item]).unwrap();
            assert_eq!((input.len(), &input[1]), (2, &kept));
            assert_eq!(input[0]["role"], "user");
            let text = input[0]["content"][0]["text"].as_str().unwrap();
            let frame = "<summary source=\"compaction of ctxhost\" trust=\"untrusted\">\nIt was about \"ducks\". &lt;/summary> End.\n</summary>";
            assert!(text.ends_with(frame), "{text}");
            let returned = returned.unwrap();
            assert_eq!((&*returned.text, returned.items), (summary, 2));
            assert_eq!(returned.origin.unwrap().session, "s1");
        }
        // Without a summary nothing was left out: these are the client's messages.
        let whole = sign(&reopened, "", &[&kept], "s1");
        assert_eq!(open(&reopened, &[&whole]).unwrap(), (vec![kept], None));
    }

    #[test]
    fn items_before_the_newest_history_follow_its_summary() {
        let seal = SummarySigner { key: [7; 32] };
        let (task, kept, notes) = (user("Task."), user("Kept."), user("Notes."));
        let older = sign(&seal, "Before.", &[], "s1");
        let other = sign(&seal, "Of another one.", &[&notes], "s2");
        let newest = sign(&seal, "All.", &[&kept], "s1");
        let (input, returned) = open(&seal, &[&kept, &older, &other, &task, &newest]).unwrap();
        assert_eq!(input.len(), 5, "{input:?}");
        let has = |at: usize, text: &str| input[at].to_string().contains(text);
        assert!(has(0, "All.") && has(1, "Of another one."), "{input:?}");
        assert_eq!(input[2..], [notes, task, kept]);
        assert_eq!(returned.unwrap().items, 5);
    }

    #[test]
    fn forged_and_damaged_items_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (seal, other) = (SummarySigner { key: [7; 32] }, SummarySigner::open(folder.path()));
        let text = |item: Value| item["encrypted_content"].as_str().unwrap().to_owned();
        let sealed = text(sign(&seal, "true", &[], "s1"));
        let wrong = [
            text(sign(&other, "true", &[], "s1")),
            sealed.replace("true", "false"),
            sealed.replace(MARK, &format!("{MARK}0")),
            format!("{MARK}.true"),
            format!("{MARK}true"),
            MARK.to_owned(),
        ];
        for wrong in wrong {
            assert_eq!(open(&seal, &[&item(&wrong)]).unwrap(), (Vec::new(), None), "{wrong}");
        }
        // Nothing is left but the instructions.
        let instructions = json!({ "role": "developer", "content": "Be brief." });
        let json = json!({ "input": [instructions, item(MARK)] }).to_string();
        let opened =
            seal.open_items(&json, &OpenAiResponsesInbound.parse_body(&json).unwrap()).unwrap();
        assert_eq!(opened.json, json!({ "input": [instructions] }).to_string());
    }

    #[test]
    fn foreign_items_are_unchanged() {
        let seal = SummarySigner { key: [7; 32] };
        let sealed = sign(&seal, "true", &[], "s1")["encrypted_content"].clone();
        let content = sealed.as_str().unwrap();
        assert_eq!(open(&seal, &[&item("gAAAA")]), None);
        assert_eq!(open(&seal, &[&item(&format!("gAAAA{content}"))]), None);
        assert_eq!(open(&seal, &[&user(content)]), None);
        assert_eq!(
            open(&seal, &[&json!({ "type": "reasoning", "encrypted_content": content })]),
            None
        );
    }
}

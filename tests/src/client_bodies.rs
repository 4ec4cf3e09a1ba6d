//! Request bodies as real clients send them: the fixtures that `tests/clients/shape.py` makes of recordings.
//!
//! A fixture holds up to six requests of one conversation. Text of others is replaced by gaps such as `⟦482 9f3c⟧`:
//! the number of characters and a checksum. Loading fills each gap with text of that length, so a loaded body has
//! the sizes of the recorded one, and texts that were equal are equal.

use std::path::PathBuf;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::root;
use crate::rules::Wire;

/// The requests of one client.
#[derive(Clone, Debug)]
pub struct ClientRecording {
    /// Its name in `tests/clients/agents.py`.
    pub client: String,
    /// The version that was recorded.
    pub version: String,
    /// The dialect of its requests.
    pub wire: Wire,
    /// What the person asked, word for word.
    pub task: String,
    /// Its requests, in the order in which they were sent.
    pub requests: Vec<RecordedRequest>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// `first`, `grows`, `before an edit`, `edited`, `asks for a summary` or `behind a summary`.
    pub name: String,
    /// Its number in the recording; consecutive numbers are consecutive requests.
    pub number: u64,
    /// Its path with its query.
    pub path: String,
    /// Headers that tell the session or the purpose.
    pub headers: HeaderMap,
    /// Texts that hold the person's words.
    pub person: Vec<TextPlace>,
    /// Texts of the user's side that the client wrote.
    pub injected: Vec<TextPlace>,
    /// Texts that hold a summary of what was there before.
    pub summary: Vec<TextPlace>,
    /// Texts by which the client asks for a summary.
    pub asks: Vec<TextPlace>,
    /// Its body, with all gaps filled.
    pub body: Value,
}

/// Where a text stands: the index of the item in `messages`, `input` or `contents`, and the index of the part in its
/// content where that is a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// The item.
    pub item: usize,
    /// The part, for a content of parts.
    pub part: Option<usize>,
}

/// Every recording, by the name of its file.
pub fn load_client_recordings() -> Vec<ClientRecording> {
    let folder = fixtures_folder();
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let paths = files.map(|file| file.expect("a file").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
    paths.sort();
    paths.iter().map(load).collect()
}

/// The recording of one file, such as `pi` or `qwen-cleared`.
pub fn load_client_recording(name: &str) -> ClientRecording {
    load(&fixtures_folder().join(format!("{name}.json")))
}

impl RecordedRequest {
    /// The conversation of the body.
    pub fn items(&self) -> &[Value] {
        let list = |key| self.body[key].as_array();
        let items = list("messages").or_else(|| list("input")).or_else(|| list("contents"));
        items.map_or(&[], Vec::as_slice)
    }

    /// The text at a place.
    pub fn text_at(&self, place: TextPlace) -> &str {
        let item = &self.items()[place.item];
        let content = item.get("content").or(item.get("parts")).expect("an item with content");
        let text = place.part.map_or(content, |part| &content[part]["text"]);
        text.as_str().expect("a text")
    }
}

fn fixtures_folder() -> PathBuf {
    root().join("tests/fixtures/clients")
}

fn load(path: &PathBuf) -> ClientRecording {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut recording: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    fill_gaps(&mut recording);
    let wire = match recording["dialect"].as_str() {
        Some("chat") => Wire::OpenAiChat,
        Some("responses") => Wire::Responses,
        Some("anthropic") => Wire::Anthropic,
        Some("gemini") => Wire::Gemini,
        other => panic!("{path:?}: unknown dialect {other:?}"),
    };
    let requests =
        recording["requests"].as_array().expect("requests").iter().map(request_of).collect();
    let text = |key: &str| recording[key].as_str().expect("a text").to_owned();
    ClientRecording {
        client: text("client"),
        version: text("version"),
        wire,
        task: text("task"),
        requests,
    }
}

fn request_of(value: &Value) -> RecordedRequest {
    let text = |key: &str| value[key].as_str().expect("a text").to_owned();
    let headers = value["headers"].as_object().expect("headers").iter().map(|(name, value)| {
        let name: HeaderName = name.parse().expect("a header's name");
        (name, HeaderValue::from_str(value.as_str().expect("a text")).expect("a header's value"))
    });
    RecordedRequest {
        name: text("name"),
        number: value["number"].as_u64().expect("a number"),
        path: text("path"),
        headers: headers.collect(),
        person: places_of(&value["person"]),
        injected: places_of(&value["injected"]),
        summary: places_of(&value["summary"]),
        asks: places_of(&value["asks"]),
        body: value["body"].clone(),
    }
}

fn places_of(value: &Value) -> Vec<TextPlace> {
    let index = |value: &Value| value.as_u64().expect("an index") as usize;
    let place = |value: &Value| TextPlace { item: index(&value[0]), part: value.get(1).map(index) };
    value.as_array().into_iter().flatten().map(place).collect()
}

/// Fills the gaps of all texts in a JSON value.
fn fill_gaps(value: &mut Value) {
    match value {
        Value::String(text) => *text = filled(text),
        Value::Array(items) => items.iter_mut().for_each(fill_gaps),
        Value::Object(fields) => fields.values_mut().for_each(fill_gaps),
        _ => {}
    }
}

/// A text with its gaps filled, as `fill` in shape.py does it.
fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('⟦') {
        let (gap, after) = behind.split_once('⟧').expect("a gap ends");
        let (length, checksum) = gap.split_once(' ').expect("a gap has a length and a checksum");
        let length: usize = length.parse().expect("a length");
        out.push_str(before);
        out.extend(format!("{checksum} text of ours ").chars().cycle().take(length));
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules;

    #[test]
    fn a_gap_is_filled_to_its_length() {
        assert_eq!(filled("a⟦6 9f3c⟧b"), "a9f3c tb");
        let text = filled("<x>⟦40 0001⟧</x>⟦3 0002⟧");
        assert_eq!(text.chars().count(), 3 + 40 + 4 + 3);
        assert_eq!(filled("no gap"), "no gap");
    }

    #[test]
    fn every_recording_begins_with_what_the_person_asked() {
        let recordings = load_client_recordings();
        assert!(recordings.len() >= 12, "{} recordings", recordings.len());
        for recording in recordings {
            let client = &recording.client;
            let first = recording.requests.first().expect("requests");
            assert!((3..=6).contains(&recording.requests.len()), "{client}");
            let texts: Vec<&str> = first.person.iter().map(|place| first.text_at(*place)).collect();
            assert_eq!(texts.len(), 1, "{client}: {texts:?}");
            assert!(texts[0].contains(&recording.task), "{client}: {texts:?}");
            for request in &recording.requests {
                for place in request.injected.iter().chain(&request.summary) {
                    assert!(!request.text_at(*place).contains('⟦'), "{client} {}", request.name);
                }
            }
        }
    }

    /// Rules that a client breaks by a fault of its own. Gemini CLI 0.61.0 sends each tool result of a resumed
    /// session twice.
    const OWN_FAULTS: [(&str, &str); 1] = [("gemini", "G-5")];

    /// Clients are made to be accepted, so a rule that a body breaks is wrong, or the fixture is.
    #[test]
    fn bodies_of_real_clients_break_no_rule() {
        for recording in load_client_recordings() {
            for request in &recording.requests {
                let mut headers = request.headers.clone();
                headers.insert("content-type", HeaderValue::from_static("application/json"));
                headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
                let mut broken =
                    rules::check(recording.wire, &request.path, &headers, &request.body);
                broken.retain(|broken| !OWN_FAULTS.contains(&(&recording.client, broken.rule)));
                assert!(broken.is_empty(), "{} {}: {broken:?}", recording.client, request.name);
            }
        }
    }
}

//! What goes in comes out, whatever it is.

use proptest::prelude::*;

use super::*;

/// Texts that break careless code.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("你好，世界 テスト 한국어".to_owned()),
        Just("line\nbreak \\ \"quoted\" \u{2028} \u{1F600} </summary>".to_owned()),
        "[ -~]{0,40}",
    ]
}

/// The part of a record that is not id, parent or time; unknown types and fields among them.
fn fields() -> impl Strategy<Value = String> {
    let of_text =
        |make: fn(String) -> serde_json::Value| text().prop_map(move |text| inside(&make(text)));
    prop_oneof![
        of_text(|text| serde_json::json!({ "type": "session_info", "name": text })),
        of_text(|text| serde_json::json!({ "type": "from_the_future", "what": text, "n": 1.50 })),
        of_text(|text| serde_json::json!({ "type": "custom_message", "content": text, "new": [] })),
        of_text(|text| serde_json::json!({ "type": "custom", "data": { "deep": [text, 1e300] } })),
        text().prop_map(|text| {
            let text = serde_json::Value::from(text);
            format!(r#""type" : "message", "message":{{"role":"user","content":{text},"n":1.0e5}} "#)
        }),
        text().prop_map(|text| {
            let text = serde_json::Value::from(text);
            format!(
                r#""type":"message","message":{{"role":"assistant","content":[{{"type":"thinking","thinking":{text},"thinkingSignature":"a+/="}},{{"type":"text","text":{text}}},{{"type":"toolCall","id":"c1","name":"x","arguments":{{"a":0.10}}}}]}}"#
            )
        }),
    ]
}

/// The JSON of an object without its braces.
fn inside(object: &serde_json::Value) -> String {
    let json = object.to_string();
    json[1..json.len() - 1].to_owned()
}

#[derive(Clone, Debug)]
enum Piece {
    Record { fields: String, parent_back: usize },
    Kept(Vec<u8>),
    Bad(Vec<u8>),
}

fn piece() -> impl Strategy<Value = Piece> {
    let bad: &[&[u8]] =
        &[b"{\"type\":\"mess", b"[1]", b"17", b"\xFF\xFE", b"{}", b"{\"id\":7}", b"nonsense"];
    prop_oneof![
        8 => (fields(), 1..4_usize).prop_map(|(fields, parent_back)| Piece::Record { fields, parent_back }),
        1 => prop::sample::select(vec![&b""[..], b"  "]).prop_map(|line| Piece::Kept(line.to_vec())),
        1 => prop::sample::select(bad).prop_map(|line| Piece::Bad(line.to_vec())),
    ]
}

/// The bytes of a file, how many records it holds, and its bad lines.
fn file() -> impl Strategy<Value = (Vec<u8>, usize, Vec<usize>)> {
    let line = (piece(), any::<bool>());
    (prop::collection::vec(line, 0..25), any::<bool>()).prop_map(|(pieces, finished)| {
        let mut bytes = br#"{"type":"session","version":3,"id":"s","cwd":"/","later":1.0}"#.to_vec();
        bytes.push(b'\n');
        let (mut records, mut bad) = (0, Vec::new());
        let last = pieces.len();
        for (at, (piece, crlf)) in pieces.into_iter().enumerate() {
            match piece {
                Piece::Record { fields, parent_back } => {
                    let parent = (records + 1_usize).checked_sub(parent_back).filter(|at| *at > 0);
                    let parent = parent.map_or("null".to_owned(), |at| format!("\"{at:08x}\""));
                    records += 1;
                    let head = format!(r#""id":"{records:08x}","parentId":{parent},"timestamp":"2026-11-21T01:41:21.054Z""#);
                    bytes.extend_from_slice(format!("{{{head},{fields}}}").as_bytes());
                }
                Piece::Kept(line) => bytes.extend_from_slice(&line),
                Piece::Bad(line) => {
                    bad.push(at + 2);
                    bytes.extend_from_slice(&line);
                }
            }
            if at + 1 < last || finished {
                bytes.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
            }
        }
        (bytes, records, bad)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_byte_of_a_file_comes_back((bytes, records, bad) in file()) {
        let session = Session::parse("generated", &bytes).unwrap();
        prop_assert_eq!(session.to_bytes(), bytes.clone());
        prop_assert_eq!(session.records().len(), records);
        let reported: Vec<usize> = session.problems().iter().map(|problem| problem.line).collect();
        prop_assert_eq!(reported, bad);

        let again = Session::parse("again", &session.to_bytes()).unwrap();
        prop_assert_eq!(seen(&again.live(0)), seen(&session.live(0)));
    }

    #[test]
    fn what_is_appended_follows_and_nothing_before_it_moves((bytes, records, _) in file()) {
        let mut session = Session::parse("generated", &bytes).unwrap();
        let leaf = session.leaf().map(|record| record.id().to_owned());
        let id = session.append_at(user("appended"), 5).unwrap();
        prop_assert!(session.to_bytes().starts_with(&bytes));
        let again = Session::parse("again", &session.to_bytes()).unwrap();
        // In memory a torn last line has no file beside it to go to, so it stays as a bad line.
        prop_assert_eq!(again.records().len(), records + 1);
        let appended = again.record(&id).unwrap();
        prop_assert_eq!(appended.parent_id().map(str::to_owned), leaf);
        prop_assert_eq!(appended.line(), session.record(&id).unwrap().line());
    }

    #[test]
    fn no_bytes_at_all_break_the_reader(tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Session::parse("noise", &tail);
        let mut bytes = b"{\"type\":\"session\",\"version\":3,\"id\":\"s\"}\n".to_vec();
        bytes.extend_from_slice(&tail);
        prop_assert_eq!(Session::parse("noise", &bytes).unwrap().to_bytes(), bytes);
    }
}

#[test]
fn a_message_is_written_byte_for_byte() {
    let json = r#"{"role":"assistant", "content":[{"type":"thinking","thinking":"","thinkingSignature":"x\/+="}],"cost":1.0e-7,"big":123456789012345678901234567890}"#;
    let mut session = memory();
    let id = session.append(RecordBody::message(json).unwrap()).unwrap();
    assert_eq!(session.record(&id).unwrap().message_raw(), Some(json));
    assert_eq!(session.entry(&id).unwrap().raw, json);
}

#[test]
fn a_message_laid_out_over_lines_becomes_one_line() {
    let mut session = memory();
    let pretty = "{\n  \"role\": \"user\",\r\n  \"content\": \"a\\nb\"\n}";
    let id = session.append(RecordBody::message(pretty).unwrap()).unwrap();
    assert_eq!(session.entry(&id).unwrap().text, "a\nb");
    assert_eq!(session.to_bytes().iter().filter(|byte| **byte == b'\n').count(), 2);
}

#[test]
fn a_body_cannot_bring_what_the_session_gives() {
    for value in [
        serde_json::json!({ "type": "label", "id": "mine" }),
        serde_json::json!({ "type": "session" }),
        serde_json::json!({ "no": "type" }),
        serde_json::json!({ "type": "message", "message": { "content": "no role" } }),
        serde_json::json!(["no object"]),
    ] {
        assert!(RecordBody::from_value(&value).is_err(), "{value}");
    }
    let mut session = memory();
    let value = serde_json::json!({ "type": "mood", "is": "good", "n": [1, 2] });
    let id = session.append_at(RecordBody::from_value(&value).unwrap(), 0).unwrap();
    let line = session.record(&id).unwrap().line();
    assert!(
        line.ends_with(r#""timestamp":"1970-01-01T00:00:00.000Z","is":"good","n":[1,2]}"#),
        "{line}"
    );
}

#[test]
fn the_same_recording_gives_the_same_bytes() {
    let record = || {
        let mut session = memory();
        talk(&mut session, 3);
        session.to_bytes()
    };
    assert_eq!(record(), record());
}

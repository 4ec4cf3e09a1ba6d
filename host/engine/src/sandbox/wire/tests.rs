//! Messages that survive encoding, and frames that are refused.

use ctxhost_engine_api::border::EngineRequest as _;
use ctxhost_engine_api::testing::generate::plans;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn round_trip<'a, M: Serialize + Deserialize<'a>>(message: &M, buffer: &'a mut Vec<u8>) -> M {
    let frame = frame(message).unwrap();
    assert!(receive(frame.as_slice(), ANY_LENGTH, buffer).unwrap());
    decode(buffer).unwrap()
}

fn round_trip_reply(result: Result<EngineReply>) -> Result<EngineReply> {
    let mut buffer = Vec::new();
    match round_trip(&FromSandbox::Reply { call: 7, result }, &mut buffer) {
        FromSandbox::Reply { call: 7, result } => result,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn every_plan_survives(plan in plans(9)) {
        let received = AssembleRequest::reply(round_trip_reply(Ok(EngineReply::Assemble(plan.clone()))).unwrap()).unwrap();
        prop_assert_eq!(received, plan);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<FromSandbox>(&bytes);
        let _ = decode::<ToSandbox<'_>>(&bytes);
    }
}

#[test]
fn vectors_survive_to_the_bit() {
    let values = vec![0.1, -1.5e-30, f32::MAX, 0.0, -0.0, 3.0];
    let vectors = Embeddings { model: "m".into(), dimensions: 3, values };
    let result = Ok(HostReply::Vectors(vectors.clone().into()));
    let mut buffer = Vec::new();
    match round_trip(&ToSandbox::HostReply { host_call: 1, result }, &mut buffer) {
        ToSandbox::HostReply { result: Ok(HostReply::Vectors(found)), .. } => {
            assert_eq!(Embeddings::from(found), vectors);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rare_fields_of_plans_and_errors_survive() {
    let mut plan = Plan::keep_all(3);
    plan.note("window", "three");
    plan.extras.compaction_wanted = Some("soon".into());
    plan.extras.details = json!({ "files": ["a", 1.5, null, { "deep": -3 }] });
    let compaction = Compaction::Plan(plan);
    let received = CompactRequest::reply(
        round_trip_reply(Ok(EngineReply::Compact(compaction.clone()))).unwrap(),
    )
    .unwrap();
    assert_eq!(received, compaction);
    let error = EngineError::config("a.b", "is 3").with_detail(json!({ "key": "a.b" }));
    let received = round_trip_reply(Err(error.clone())).unwrap_err();
    assert_eq!(
        (received.kind, received.message, received.detail),
        (error.kind, error.message, error.detail)
    );
    let odd = round_trip_reply(Err(EngineError::new(ErrorKind::Other(999), ""))).unwrap_err();
    assert_eq!(odd.kind, ErrorKind::Other(999));
}

#[test]
fn requests_and_texts_survive() {
    let model = ModelRef { provider: "p".into(), id: "m".into(), window_tokens: u64::MAX };
    let compact = CompactRequest {
        call: CallId(3),
        trigger: Trigger::Overflow,
        custom_instructions: Some("长".into()),
        model,
        now_ms: -1,
        ..CompactRequest::default()
    };
    let request = EngineCall::Compact(compact.clone());
    let call = CallFrame {
        call: 3,
        session: Some("s".into()),
        epoch: Some(1),
        timeout_ms: 1,
        cap_ms: 2,
        request,
    };
    let mut buffer = Vec::new();
    let ToSandbox::Call(received) = round_trip(&ToSandbox::Call(call), &mut buffer) else {
        panic!("another message");
    };
    let EngineCall::Compact(received) = received.request else { panic!("another request") };
    assert_eq!(format!("{received:?}"), format!("{compact:?}"));

    let bytes = FromSandbox::HostCall {
        host_call: 1,
        session: None,
        request: HostCall::BlobPut(Base64Bytes(vec![0, 200, 255])),
    };
    let mut buffer = Vec::new();
    let received = round_trip(&bytes, &mut buffer);
    assert_eq!(format!("{received:?}"), format!("{bytes:?}"));
    let reply = ToSandbox::HostReply {
        host_call: 1,
        result: Ok(HostReply::Bytes(Some(Base64Bytes(vec![7; 5])))),
    };
    let mut buffer = Vec::new();
    let received = round_trip(&reply, &mut buffer);
    assert_eq!(format!("{received:?}"), format!("{reply:?}"));
}

#[test]
fn entries_survive_with_any_characters() {
    let texts = ["plain", "", "\"quoted\"\n\t\\ and \u{0}\u{1b}\u{7f}", "长 \u{1f980} \u{2028}"];
    let entry = |text: &'static str| ReplicaEntry {
        ts_ms: i64::MIN,
        frame: u64::MAX,
        tokens_before: 0,
        tokens: u32::MAX,
        flags: u16::MAX,
        role: 0,
        kind: u8::MAX,
        id: text.into(),
        parent: "".into(),
        text: text.into(),
        raw: text.into(),
    };
    let added: Vec<_> = texts.into_iter().map(entry).collect();
    let change = TranscriptDelta {
        session: "a \"session\"".into(),
        added: added.clone(),
        ..TranscriptDelta::default()
    };
    let mut buffer = Vec::new();
    let ToSandbox::Transcript(received) = round_trip(&ToSandbox::Transcript(change), &mut buffer)
    else {
        panic!("another message");
    };
    assert_eq!((received.session.as_ref(), &received.added), ("a \"session\"", &added));
    assert!(matches!(received.added[0].text, Cow::Borrowed(_)), "borrowed from the frame");
}

/// Why a frame of these bytes is refused.
fn refused(bytes: impl AsRef<[u8]>) -> String {
    let error = decode::<FromSandbox>(bytes.as_ref()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let message = error.to_string();
    assert!(message.starts_with("an invalid frame: "), "{message}");
    message
}

/// A log frame with raw `fields`.
fn log(fields: &str) -> String {
    format!(r#"{{"Log":{{"level":1,"target":"t","message":"m","fields":{fields}}}}}"#)
}

#[test]
fn frames_that_are_nested_too_deep_are_refused() {
    let nested = |levels: usize| log(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    assert!(decode::<FromSandbox>(nested(100).as_bytes()).is_ok());
    assert!(refused(nested(128)).contains("recursion limit exceeded"));
    assert!(refused(nested(1_000_000)).contains("recursion limit exceeded"));
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    assert!(refused(log("1e999")).contains("number out of range"));
    for number in ["NaN", "Infinity", "-Infinity"] {
        assert!(refused(log(number)).contains("at line 1 column"), "{number}");
    }
    for call in ["-1", "18446744073709551616", "1.5", "null", "\"1\""] {
        let progress = format!(r#"{{"Progress":{{"call":{call},"permille":1,"note":""}}}}"#);
        assert!(refused(progress).contains("expected u64"), "{call}");
    }
}

#[test]
fn invalid_unicode_is_refused() {
    let text = |text: &[u8]| [br#"{"Refused":{"reason":""#, text, br#""}}"#].concat();
    assert!(decode::<FromSandbox>(&text(br"\ud83e\udd80")).is_ok());
    assert!(refused(text(b"\xff")).contains("invalid utf-8"));
    assert!(refused(text(br"\ud83e")).contains("unexpected end of hex escape"));
    assert!(refused(text(br"\udd80")).contains("lone leading surrogate"));
    assert!(refused(text(b"\n")).contains("control character"));
}

#[test]
fn frames_with_more_or_less_than_a_message_are_refused() {
    assert!(refused(r#"{"CancelHostCall":{"host_call":1}} {}"#).contains("trailing characters"));
    assert!(refused(r#"{"CancelHostCall":{"host_call":1}"#).contains("EOF"));
    assert!(refused("").contains("EOF"));
    assert!(refused(r#"{"Sing":{}}"#).contains("unknown variant `Sing`"));
    let put = r#"{"HostCall":{"host_call":1,"session":null,"request":{"BlobPut":"AA!="}}}"#;
    assert!(refused(put).contains("Invalid symbol 33"));
}

#[test]
fn the_number_of_a_call_is_read_however_deep_it_is_nested() {
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for kind in ["Call", "Create"] {
        let frame = format!(r#"{{"{kind}":{{"call":7,"config":{deep}}}}}"#);
        assert_eq!(call_of(frame.as_bytes()), Some(7));
    }
    assert_eq!(call_of(br#"{"Cancel":{"call":7}}"#), None);
}

#[test]
fn a_length_that_is_too_long_is_refused_before_it_is_read() {
    let mut buffer = Vec::new();
    let error = receive([0, 1, 0, 0, 9].as_slice(), 100, &mut buffer).unwrap_err();
    assert_eq!(error.to_string(), "a frame of 65,536 bytes; the limit is 100");
    assert!(!receive([].as_slice(), 100, &mut buffer).unwrap(), "the end is not an error");
    let torn = receive([0, 0, 0, 9, 1].as_slice(), 100, &mut buffer).unwrap_err();
    assert_eq!(torn.kind(), io::ErrorKind::UnexpectedEof);
}

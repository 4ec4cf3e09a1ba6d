//! What comes over the wire as it is, and what is refused.

use ctxhost_engine_api::border::EngineRequest as _;
use ctxhost_engine_api::testing::generate::plans;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn over_the_wire<'a, M: Serialize + Deserialize<'a>>(message: &M, buffer: &'a mut Vec<u8>) -> M {
    let frame = frame(message).unwrap();
    assert!(receive(frame.as_slice(), ANY_LENGTH, buffer).unwrap());
    decode(buffer).unwrap()
}

fn ended(result: Result<EngineReply>) -> Result<EngineReply> {
    let mut buffer = Vec::new();
    match over_the_wire(&FromSandbox::Ended { call: 7, result }, &mut buffer) {
        FromSandbox::Ended { call: 7, result } => result,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn every_plan_comes_over_as_it_is(plan in plans(9)) {
        let came = AssembleRequest::reply(ended(Ok(EngineReply::Assemble(plan.clone()))).unwrap()).unwrap();
        prop_assert_eq!(came, plan);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<FromSandbox>(&bytes);
        let _ = decode::<ToSandbox<'_>>(&bytes);
    }
}

#[test]
fn what_is_rare_about_a_plan_and_errors_come_over() {
    let mut plan = Plan::keep_all(3);
    plan.note("window", "three");
    plan.extras.compaction_wanted = Some("soon".into());
    plan.extras.details = json!({ "files": ["a", 1.5, null, { "deep": -3 }] });
    let compaction = Compaction::Plan(plan);
    let came = CompactRequest::reply(ended(Ok(EngineReply::Compact(compaction.clone()))).unwrap())
        .unwrap();
    assert_eq!(came, compaction);
    let error = EngineError::config("a.b", "is 3").with_detail(json!({ "key": "a.b" }));
    let came = ended(Err(error.clone())).unwrap_err();
    assert_eq!((came.kind, came.message, came.detail), (error.kind, error.message, error.detail));
    let odd = ended(Err(EngineError::new(ErrorKind::Other(999), ""))).unwrap_err();
    assert_eq!(odd.kind, ErrorKind::Other(999));
}

#[test]
fn questions_and_texts_come_over() {
    let model = ModelRef { provider: "p".into(), id: "m".into(), window_tokens: u64::MAX };
    let request = CompactRequest {
        call: CallId(3),
        trigger: Trigger::Overflow,
        custom_instructions: Some("长".into()),
        model,
        now_ms: -1,
        ..CompactRequest::default()
    };
    let question = EngineCall::Compact(request.clone());
    let call = CallFrame {
        call: 3,
        session: Some("s".into()),
        epoch: Some(1),
        timeout_ms: 1,
        cap_ms: 2,
        request: question,
    };
    let mut buffer = Vec::new();
    let ToSandbox::Call(came) = over_the_wire(&ToSandbox::Call(call), &mut buffer) else {
        panic!("another message came");
    };
    let EngineCall::Compact(came) = came.request else { panic!("another question came") };
    assert_eq!(format!("{came:?}"), format!("{request:?}"));

    let bytes = FromSandbox::Ask {
        ask: 1,
        session: None,
        wanted: HostCall::BlobPut(Base64Bytes(vec![0, 200, 255])),
    };
    let mut buffer = Vec::new();
    let came = over_the_wire(&bytes, &mut buffer);
    assert_eq!(format!("{came:?}"), format!("{bytes:?}"));
    let given =
        ToSandbox::Served { ask: 1, result: Ok(HostReply::Bytes(Some(Base64Bytes(vec![7; 5])))) };
    let mut buffer = Vec::new();
    let came = over_the_wire(&given, &mut buffer);
    assert_eq!(format!("{came:?}"), format!("{given:?}"));
}

#[test]
fn entries_come_over_whatever_characters_they_have() {
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
    let ToSandbox::Change(came) = over_the_wire(&ToSandbox::Change(change), &mut buffer) else {
        panic!("another message came");
    };
    assert_eq!((came.session.as_ref(), &came.added), ("a \"session\"", &added));
    assert!(matches!(came.added[0].text, Cow::Borrowed(_)), "it needs no copy");
}

/// Why a frame of these bytes is refused.
fn refused(bytes: impl AsRef<[u8]>) -> String {
    let error = decode::<FromSandbox>(bytes.as_ref()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let message = error.to_string();
    assert!(message.starts_with("an invalid frame: "), "{message}");
    message
}

/// What a worker logs, with `fields` as they are.
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
fn texts_that_are_no_unicode_are_refused() {
    let text = |text: &[u8]| [br#"{"Refused":{"reason":""#, text, br#""}}"#].concat();
    assert!(decode::<FromSandbox>(&text(br"\ud83e\udd80")).is_ok());
    assert!(refused(text(b"\xff")).contains("invalid unicode code point"));
    assert!(refused(text(br"\ud83e")).contains("unexpected end of hex escape"));
    assert!(refused(text(br"\udd80")).contains("lone leading surrogate"));
    assert!(refused(text(b"\n")).contains("control character"));
}

#[test]
fn frames_with_more_or_less_than_a_message_are_refused() {
    assert!(refused(r#"{"Drop":{"ask":1}} {}"#).contains("trailing characters"));
    assert!(refused(r#"{"Drop":{"ask":1}"#).contains("EOF"));
    assert!(refused("").contains("EOF"));
    assert!(refused(r#"{"Sing":{}}"#).contains("unknown variant `Sing`"));
    let put = r#"{"Ask":{"ask":1,"session":null,"wanted":{"BlobPut":"AA!="}}}"#;
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
    assert_eq!(error.to_string(), "a frame of 65536 bytes, where 100 are allowed");
    assert!(!receive([].as_slice(), 100, &mut buffer).unwrap(), "the end is no error");
    let torn = receive([0, 0, 0, 9, 1].as_slice(), 100, &mut buffer).unwrap_err();
    assert_eq!(torn.kind(), io::ErrorKind::UnexpectedEof);
}

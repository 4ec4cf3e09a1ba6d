//! Tests of caps, cuts and the aggregate rule.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{Action, EntryKind, Message, Plan, Role};
use serde_json::json;

use super::*;

fn assembled(
    talk: &TranscriptBuilder,
    window_tokens: u64,
    decisions: &mut SessionDecisions,
) -> Plan {
    let scope = ReductionScope { window_tokens, budget_tokens: u64::MAX / 8, sent_until_ms: None };
    assembled_in(talk, scope, decisions)
}

/// The recorded cases cut no more than is needed.
fn assembled_in(
    talk: &TranscriptBuilder,
    scope: ReductionScope,
    decisions: &mut SessionDecisions,
) -> Plan {
    let settings = ToolResultSettings { aggregate_slack: 0.0, ..ToolResultSettings::default() };
    assembled_by(&settings, talk, scope, decisions)
}

fn assembled_by(
    settings: &ToolResultSettings,
    talk: &TranscriptBuilder,
    scope: ReductionScope,
    decisions: &mut SessionDecisions,
) -> Plan {
    let transcript = talk.transcript();
    let cap_chars = single_cap_chars(scope.window_tokens, settings);
    let mut results = ToolResults::from_transcript(&transcript, cap_chars);
    reduce_results(&mut results, &transcript, scope, settings, decisions);
    results.into_plan()
}

fn replaced(plan: &Plan) -> Vec<(u64, &str)> {
    let text = |op: &'_ ctxhost_engine_api::Op| match &op.action {
        Action::ReplaceText { seq, .. } => Some(*seq),
        _ => None,
    };
    let ops = plan.ops.iter().filter_map(|op| Some((text(op)?, op)));
    ops.map(|(seq, op)| match &op.action {
        Action::ReplaceText { text, .. } => (seq, text.as_str()),
        _ => (seq, ""),
    })
    .collect()
}

fn rounds(sizes: &[usize]) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("go");
    for size in sizes {
        talk.calls(&[("1", "exec", "{}")]).result("1", "exec", &"x".repeat(*size));
    }
    talk
}

/// Case table of caps by window; windows below the block limit never get here.
#[test]
fn caps_by_window() {
    let settings = ToolResultSettings::default();
    for (window, single, aggregate) in [
        (1_000, 1_200, 4_800),
        (8_192, 9_828, 39_312),
        (64_000, 16_000, 128_000),
        (128_000, 32_000, 256_000),
        (200_000, 64_000, 400_000),
        (1_000_000, 64_000, 2_000_000),
    ] {
        let caps = WindowCaps::for_window(window, &settings);
        assert_eq!((caps.single, caps.aggregate), (single, aggregate), "window {window}");
    }
}

/// Case 23, with the engine's own notice.
#[test]
fn case_23_one_large_result_is_cut_and_names_its_original() {
    let talk = rounds(&[40_000]);
    let mut decisions = SessionDecisions::default();
    let plan = assembled(&talk, 64_000, &mut decisions);
    let [(2, text)] = replaced(&plan)[..] else { panic!("{:?}", plan.ops) };
    assert_eq!(weighted_chars(text), 16_000);
    assert!(text.contains(&format!("{TRUNCATED} 24,1")), "{}", &text[15_880..]);
    assert!(
        text.ends_with(
            "of 40,000 characters left out; the original is entry 00000002 of the session"
        )
    );
    let note = plan.ops[1].note.as_ref().unwrap();
    assert_eq!((note.layer.as_str(), note.detail.as_str()), (LAYER, "40,000 → 16,000 chars"));
    assert_eq!(plan, assembled(&talk, 64_000, &mut decisions), "the same bytes each time");
}

/// Case 22: one cap per result, without the reference's separate guard cap.
#[test]
fn case_22_a_result_that_fits_stays() {
    let plan = assembled(&rounds(&[5_000]), 20_000, &mut SessionDecisions::default());
    assert!(replaced(&plan).is_empty());
    let plan = assembled(&rounds(&[30_000]), 20_000, &mut SessionDecisions::default());
    assert_eq!(weighted_chars(replaced(&plan)[0].1), 16_000);
}

#[test]
fn over_half_of_the_window_is_cleared_once_it_is_answered() {
    let mut decisions = SessionDecisions::default();
    let mut talk = rounds(&[140_000]);
    let unread = assembled(&talk, 64_000, &mut decisions);
    let text = replaced(&unread)[0].1;
    assert_eq!(weighted_chars(text), 16_000, "the model reads a head");
    assert!(text.starts_with("xxx") && text.contains(TRUNCATED) && text.contains("00000002"));
    talk.assistant("done");
    let answered = assembled(&talk, 64_000, &mut decisions);
    let text = replaced(&answered)[0].1;
    assert!(text.starts_with(CLEARED) && text.contains("entry 00000002"), "{text}");
    talk.user("go on").assistant("sure");
    let later = assembled(&talk, 64_000, &mut decisions);
    assert_eq!(replaced(&later), replaced(&answered), "the same bytes");
}

#[test]
fn case_24_all_together_give_way_from_the_oldest_on() {
    let mut talk = rounds(&[9_000; 6]);
    talk.assistant("done");
    let mut decisions = SessionDecisions::default();
    let plan = assembled(&talk, 10_000, &mut decisions);
    let [(2, text)] = replaced(&plan)[..] else { panic!("{:?}", plan.ops) };
    assert_eq!(weighted_chars(text), 3_000);
}

/// Each cut invalidates the provider's cache after it. Over 20 rounds the rule cuts in few of them.
#[test]
fn one_cut_makes_room_for_many_requests() {
    let cuts_with = |aggregate_slack: f64| {
        let settings = ToolResultSettings { aggregate_slack, ..ToolResultSettings::default() };
        let scope = ReductionScope {
            window_tokens: 10_000,
            budget_tokens: u64::MAX / 8,
            sent_until_ms: None,
        };
        let mut decisions = SessionDecisions::default();
        let mut shown = Vec::new();
        let mut cuts = 0;
        for round in 1..=20 {
            let plan = assembled_by(&settings, &rounds(&vec![3_000; round]), scope, &mut decisions);
            let now: Vec<(u64, String)> =
                replaced(&plan).into_iter().map(|(seq, text)| (seq, text.to_owned())).collect();
            cuts += u32::from(now != shown);
            shown = now;
        }
        cuts
    };
    assert_eq!((cuts_with(0.0), cuts_with(0.5)), (4, 1));
}

#[test]
fn caps_follow_the_budget_in_force() {
    let settings = ToolResultSettings::default();
    let cap = |budget| single_cap_chars(effective_window_tokens(200_000, budget), &settings);
    assert_eq!((cap(150_000), cap(13_000), cap(4_000)), (64_000, 16_000, 9_600));
}

#[test]
fn no_notice_is_longer_than_the_result_it_replaces() {
    for (window_tokens, size) in [(0, 60), (0, 120), (2, 60), (80, 200), (80, 2_500)] {
        let mut decisions = SessionDecisions::default();
        let plan = assembled(&rounds(&[size; 50]), window_tokens, &mut decisions);
        for (seq, text) in replaced(&plan) {
            assert!(text.len() < size, "{window_tokens}, {size}: entry {seq} is {text:?}");
        }
    }
}

#[test]
fn what_the_aggregate_rule_has_cut_stays_cut() {
    let mut talk = rounds(&[9_000; 6]);
    talk.assistant("done");
    let mut decisions = SessionDecisions::default();
    let first = assembled(&talk, 10_000, &mut decisions);
    let before = replaced(&first)[0].1;
    assert_eq!(replaced(&assembled(&talk, 10_000, &mut decisions))[0].1, before);
    // A larger window would not cut it, but the bytes stay.
    assert_eq!(replaced(&assembled(&talk, 20_000, &mut decisions))[0].1, before);
}

#[test]
fn the_trailing_batch_is_not_touched_by_the_aggregate_rule() {
    let talk = rounds(&[9_000, 9_000, 9_000, 9_000, 9_000, 9_000, 9_000, 9_000]);
    let plan = assembled(&talk, 10_000, &mut SessionDecisions::default());
    let cut: Vec<u64> = replaced(&plan).into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(cut, [2, 4, 6]);
    let sum: u64 = plan.project(&talk.transcript()).iter().map(|item| item.tokens()).sum();
    assert!(sum * CHARS_PER_TOKEN < 48_000 + 400, "{sum}");
}

/// A result with these blocks.
fn result_of(content: serde_json::Value) -> TranscriptBuilder {
    let raw = json!({
        "role": "toolResult", "toolCallId": "1", "toolName": "shot", "content": content,
        "details": {"full": "d".repeat(500)},
    });
    let raw = raw.to_string();
    let message = Message::parse(&raw, "");
    let has_image = raw.contains("\"image\"");
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("1", "shot", "{}")]).push(NewEntry {
        id: "shot".into(),
        parent_id: String::new(),
        timestamp_ms: 1,
        role: Role::Tool,
        kind: EntryKind::Message,
        flags: if has_image { Flags::IMAGES } else { Flags::default() },
        tokens: tokens::message(&message),
        text: message.text(),
        raw: raw.clone(),
        calls: vec![],
        answers: Some("1".into()),
    });
    talk
}

/// The remaining blocks, each as `image` or the length of its text, and the last text.
fn blocks_left(plan: &Plan) -> (Vec<String>, String) {
    let [_, op, ..] = &plan.ops[..] else { panic!("{:?}", plan.ops) };
    let raw = match &op.action {
        Action::ReplaceRaw { raw, .. } => raw.clone(),
        Action::ReplaceText { text, .. } => {
            json!({"content": [{"type": "text", "text": text}]}).to_string()
        }
        other => panic!("{other:?}"),
    };
    let message: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(message.get("details"), None);
    let blocks = message["content"].as_array().unwrap();
    let describe = |block: &Value| match block["text"].as_str() {
        Some(text) => text.len().to_string(),
        None => block["type"].as_str().unwrap().to_owned(),
    };
    let last = blocks.last().unwrap()["text"].as_str().unwrap_or_default().to_owned();
    (blocks.iter().map(describe).collect(), last)
}

fn text(size: usize) -> Value {
    json!({"type": "text", "text": "x".repeat(size)})
}

fn image() -> Value {
    json!({"type": "image", "mimeType": "image/png", "data": "AAAA"})
}

/// Case 21 with the engine's notice and cap: large blocks share the room in proportion, small ones
/// and the image stay.
#[test]
fn case_21_blocks_share_the_cap() {
    let plan = assembled(
        &result_of(json!([text(12_000), image(), text(6_000), text(4)])),
        64_000,
        &mut SessionDecisions::default(),
    );
    let (blocks, _) = blocks_left(&plan);
    let [first, image, second, tiny] = &blocks[..] else { panic!("{blocks:?}") };
    assert_eq!((image.as_str(), tiny.as_str()), ("image", "4"));
    let (first, second): (u64, u64) = (first.parse().unwrap(), second.parse().unwrap());
    assert!(first + second + 8_004 <= 16_000 && first + second + 8_004 > 15_900, "{blocks:?}");
    assert!((19..22).contains(&(first * 10 / second)), "{first} and {second}");
}

/// With a notice in each, nothing of many small blocks would be left.
#[test]
fn many_small_blocks_are_cut_as_one() {
    for (count, size) in [(70, 450), (200, 200), (1_000, 66), (3_000, 20)] {
        let blocks = Value::from_iter((0..count).map(|_| text(size)).chain([image()]));
        let talk = result_of(blocks);
        let plan = assembled(&talk, 64_000, &mut SessionDecisions::default());
        let (blocks, _) = blocks_left(&plan);
        let [joined, image] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!(image, "image");
        let joined: u64 = joined.parse().unwrap();
        assert!((7_000..8_000).contains(&joined), "{joined} of {count} blocks");
    }
}

#[test]
fn case_22_images_are_counted_and_left_out_from_the_end() {
    let plan = assembled(
        &result_of(json!([image(), text(12), image(), image()])),
        20_000,
        &mut SessionDecisions::default(),
    );
    let (blocks, last) = blocks_left(&plan);
    assert_eq!(blocks[..2], ["image", "12"]);
    assert!(
        last.starts_with("[2 images omitted from context; the original is entry shot"),
        "{last}"
    );
    assert_eq!(blocks.len(), 3);
}

#[test]
fn case_22_an_unknown_block_that_is_too_large_is_only_named() {
    let block = json!({"type": "chart", "data": "c".repeat(30_000)});
    let plan = assembled(&result_of(json!([block])), 20_000, &mut SessionDecisions::default());
    let (blocks, last) = blocks_left(&plan);
    assert_eq!(blocks.len(), 1);
    assert!(last.starts_with("[1 block omitted from context"), "{last}");
}

/// A conversation whose results are all older than `sent_until_ms`.
fn sent(budget_tokens: u64) -> ReductionScope {
    ReductionScope { window_tokens: 10_000, budget_tokens, sent_until_ms: Some(i64::MAX) }
}

#[test]
fn what_was_sent_stays_while_the_request_fits() {
    let mut talk = rounds(&[9_000; 6]);
    talk.assistant("done");
    let mut decisions = SessionDecisions::default();
    let roomy = sent(100_000);
    assert!(replaced(&assembled_in(&talk, roomy, &mut decisions)).is_empty(), "still cached");
    let expired = ReductionScope { sent_until_ms: None, ..roomy };
    assert_eq!(replaced(&assembled_in(&talk, expired, &mut decisions)).len(), 1);
    let mut decisions = SessionDecisions::default();
    let tight = sent(13_000);
    assert_eq!(replaced(&assembled_in(&talk, tight, &mut decisions)).len(), 1, "it would not fit");
}

#[test]
fn what_is_new_is_cut_before_what_was_sent() {
    let mut talk = rounds(&[9_000; 5]);
    let last_sent_ms = talk.transcript().last().unwrap().timestamp_ms();
    talk.calls(&[("2", "exec", "{}")]).result("2", "exec", &"y".repeat(9_000)).assistant("done");
    let scope = ReductionScope { sent_until_ms: Some(last_sent_ms), ..sent(100_000) };
    let plan = assembled_in(&talk, scope, &mut SessionDecisions::default());
    let cut: Vec<u64> = replaced(&plan).into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(cut, [12], "{:?}", plan.ops);
}

#[test]
fn a_cap_below_the_shortest_notice_leaves_a_result_as_it_is() {
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("1", "read", "{}")]).result("1", "read", "nobody");
    let transcript = talk.transcript();
    let result = transcript.last().unwrap();
    let settings = ToolResultSettings::default();
    for cap_chars in 0..12 {
        let shown = cut_entry(&result, cap_chars, &settings, None);
        let is_empty = |shown: &Replacement| matches!(&shown.body, ReplacementBody::Text(text) if text.trim().is_empty());
        assert!(!shown.as_ref().is_some_and(is_empty), "{cap_chars}");
    }
}

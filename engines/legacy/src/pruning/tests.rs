//! Tests of the pruning layer.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, EntryKind, Message, Plan};
use ctxhost_engine_kit::replacement::ReplacementBody;
use serde_json::{Value, json};

use super::images::IMAGE_PROCESSED;
use super::*;

const TTL_MS: i64 = 300_000;

fn cold() -> CacheClock {
    CacheClock { now_ms: TTL_MS, last_touch_ms: Some(0) }
}

fn on() -> PruningSettings {
    PruningSettings { mode: PruningMode::CacheTtl, ..Default::default() }
}

/// A request within its budget.
fn in_window(window_tokens: u64) -> ReductionScope {
    ReductionScope { window_tokens, budget_tokens: u64::MAX / 8, sent_until_ms: None }
}

/// A round is a request, a call, its result and an answer.
fn rounds(count: usize, size: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for _ in 0..count {
        talk.user("u").calls(&[("1", "read", "{}")]).result("1", "read", &"x".repeat(size));
        talk.assistant("ok");
    }
    talk
}

fn run(
    talk: &TranscriptBuilder,
    settings: &PruningSettings,
    window_tokens: u64,
    clock: CacheClock,
    decisions: &mut SessionDecisions,
) -> Vec<Option<String>> {
    let transcript = talk.transcript();
    // The recorded cases measure results before any cap.
    let mut results = ToolResults::from_transcript(&transcript, u64::MAX);
    let pruning = PruningLayer::new(settings).unwrap();
    pruning.prune(&mut results, &transcript, in_window(window_tokens), clock, decisions);
    let text = |shown: Replacement| match shown.body {
        ReplacementBody::Text(text) => text,
        ReplacementBody::Raw(raw) => Message::parse(&raw, "").text(),
    };
    results.rows.into_iter().map(|row| row.replacement.map(text)).collect()
}

fn counts(texts: &[Option<String>]) -> (usize, usize) {
    let soft = texts.iter().flatten().filter(|text| text.contains("[trimmed: ")).count();
    let hard = texts.iter().flatten().filter(|text| text.starts_with("[Old tool")).count();
    (soft, hard)
}

fn check(
    case: &str,
    talk: &TranscriptBuilder,
    settings: &PruningSettings,
    window: u64,
    clock: CacheClock,
    expected: (usize, usize),
) {
    let texts = run(talk, settings, window, clock, &mut SessionDecisions::default());
    assert_eq!(counts(&texts), expected, "case {case}: (soft, hard)");
}

#[test]
fn cases_82_to_91() {
    let plain = on();
    let early = CacheClock { now_ms: TTL_MS - 1, ..cold() };
    let untouched = CacheClock { last_touch_ms: None, ..cold() };
    let soft_only = PruningSettings { hard_clear: false, ..on() };
    let deny = PruningSettings { deny: vec!["READ".into()], ..on() };
    let allow = PruningSettings { allow: vec!["wri*".into()], ..on() };
    let off = PruningSettings::default();
    check("82", &rounds(6, 5_000), &plain, 5_000, cold(), (5, 0));
    check("83", &rounds(6, 5_000), &plain, 5_000, early, (0, 0));
    check("84", &rounds(6, 5_000), &plain, 5_000, untouched, (0, 0));
    check("85, at the limit", &rounds(6, 4_000), &plain, 5_000, cold(), (0, 0));
    check("85, above", &rounds(6, 4_001), &plain, 5_000, cold(), (5, 0));
    check("86", &rounds(7, 1_000), &plain, 2_000, cold(), (0, 0));
    check("87", &rounds(40, 5_000), &plain, 4_000, cold(), (0, 39));
    check("88", &rounds(40, 2_000), &plain, 10_000, cold(), (0, 31));
    check("89", &rounds(12, 5_000), &soft_only, 4_000, cold(), (11, 0));
    check("90, deny", &rounds(40, 5_000), &deny, 4_000, cold(), (0, 0));
    check("90, allow", &rounds(40, 5_000), &allow, 4_000, cold(), (0, 0));
    check("off by default", &rounds(40, 5_000), &off, 4_000, cold(), (0, 0));
}

#[test]
fn case_91_without_a_user_message_nothing_is_pruned() {
    let mut talk = TranscriptBuilder::new();
    for _ in 0..12 {
        talk.calls(&[("1", "read", "{}")]).result("1", "read", &"x".repeat(5_000)).assistant("ok");
    }
    check("91", &talk, &on(), 4_000, cold(), (0, 0));
}

#[test]
fn case_92_an_image_goes_even_where_the_text_is_short() {
    let mut talk = TranscriptBuilder::new();
    talk.user("u").calls(&[("1", "shot", "{}")]).push(shot("1"));
    talk.assistant("1").assistant("2").assistant("3").user(&"x".repeat(9_000));
    let texts = run(&talk, &on(), 5_000, cold(), &mut SessionDecisions::default());
    assert_eq!(texts, [Some(format!("a page\n{IMAGE_REMOVED}"))]);
}

#[test]
fn decisions_replay_byte_for_byte_whatever_the_mode() {
    let mut talk = rounds(6, 5_000);
    let mut decisions = SessionDecisions::default();
    let first = run(&talk, &on(), 5_000, cold(), &mut decisions);
    let warm = CacheClock { now_ms: 1, last_touch_ms: Some(1) };
    assert_eq!(run(&talk, &on(), 5_000, warm, &mut decisions), first);
    let off = PruningSettings::default();
    talk.user("more");
    assert_eq!(run(&talk, &off, 500_000, warm, &mut decisions), first);
}

#[test]
fn a_pruning_pass_restarts_the_clock() {
    let talk = rounds(6, 5_000);
    let mut decisions = SessionDecisions::default();
    run(&talk, &on(), 5_000, cold(), &mut decisions);
    assert_eq!(decisions.pruned_at_ms(), Some(TTL_MS));
    let more = rounds(9, 5_000);
    let soon = CacheClock { now_ms: TTL_MS + 1, ..cold() };
    assert_eq!(counts(&run(&more, &on(), 5_000, soon, &mut decisions)).0, 5);
}

#[test]
fn a_bad_glob_is_named() {
    let settings = PruningSettings { deny: vec!["a{".into()], ..on() };
    assert_eq!(PruningLayer::new(&settings).unwrap_err().detail["key"], "pruning.deny");
}

/// A result with a text and an image.
fn shot(call_id: &str) -> NewEntry {
    let raw = json!({
        "role": "toolResult", "toolCallId": call_id, "toolName": "shot",
        "content": [{"type": "text", "text": "a page"},
                    {"type": "image", "mimeType": "image/png", "data": "AAAA"}],
    });
    let raw = raw.to_string();
    NewEntry {
        id: format!("shot-{call_id}"),
        parent_id: String::new(),
        timestamp_ms: 1,
        role: Role::Tool,
        kind: EntryKind::Message,
        flags: Flags::IMAGES,
        tokens: tokens::message(&Message::parse(&raw, "")),
        text: "a page".into(),
        raw,
        calls: vec![],
        answers: Some(call_id.into()),
    }
}

/// The plan of a request that is over its budget.
fn plan_of(
    talk: &TranscriptBuilder,
    settings: &PruningSettings,
    decisions: &mut SessionDecisions,
) -> Plan {
    plan_within(1, talk, settings, decisions)
}

fn plan_within(
    budget_tokens: u64,
    talk: &TranscriptBuilder,
    settings: &PruningSettings,
    decisions: &mut SessionDecisions,
) -> Plan {
    let transcript = talk.transcript();
    let mut results = ToolResults::from_transcript(&transcript, u64::MAX);
    let pruning = PruningLayer::new(settings).unwrap();
    let scope = ReductionScope { budget_tokens, ..in_window(5_000) };
    pruning.prune(&mut results, &transcript, scope, cold(), decisions);
    results.into_plan()
}

fn rewritten(plan: &Plan) -> Vec<u64> {
    let seq = |action: &Action| match action {
        Action::ReplaceRaw { seq, .. } => Some(*seq),
        _ => None,
    };
    plan.ops.iter().filter_map(|op| seq(&op.action)).collect()
}

/// Per turn an image by the user, an image by a tool, and an answer.
fn album(turns: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task");
    for turn in 0..turns {
        let id = turn.to_string();
        talk.image("look").calls(&[(&id, "shot", "{}")]).push(shot(&id));
        talk.assistant("I see");
    }
    talk
}

#[test]
fn images_of_the_newest_three_turns_stay() {
    let mut decisions = SessionDecisions::default();
    let off = PruningSettings { mode: PruningMode::Off, ..on() };
    assert!(rewritten(&plan_of(&album(3), &off, &mut decisions)).is_empty());
    let talk = album(5);
    let plan = plan_of(&talk, &off, &mut decisions);
    assert_eq!(rewritten(&plan), [1, 3, 5, 7], "whatever the mode");
    let transcript = talk.transcript();
    let items = plan.project(&transcript);
    assert_eq!(items[1].text(), format!("look\n{IMAGE_PROCESSED}"));
    assert_eq!(items[3].text(), format!("a page\n{IMAGE_PROCESSED}"));
    assert!(items[1].tokens() < 40 && items[3].tokens() < 40);
    assert_eq!(plan, plan_of(&talk, &off, &mut decisions), "the same bytes each time");
    let no = PruningSettings { old_images: false, ..off.clone() };
    assert!(rewritten(&plan_of(&talk, &no, &mut SessionDecisions::default())).is_empty());
    let one = PruningSettings { keep_image_turns: 1, ..off };
    assert_eq!(rewritten(&plan_of(&talk, &one, &mut SessionDecisions::default())).len(), 8);
}

#[test]
fn images_of_a_request_that_fits_stay() {
    let talk = album(12);
    let off = PruningSettings::default();
    let mut decisions = SessionDecisions::default();
    let tokens = talk.transcript().total_tokens();
    assert!(rewritten(&plan_within(tokens, &talk, &off, &mut decisions)).is_empty());
    let over = plan_within(tokens - 1, &talk, &off, &mut decisions);
    assert_eq!(rewritten(&over).len(), 2 * 9, "all but those of three turns, at once");
    assert_eq!(over, plan_within(u64::MAX / 8, &talk, &off, &mut decisions), "they stay replaced");
}

/// Each replacement invalidates the provider's cache after it. A conversation with an image in each
/// turn replaces them in few steps, as the aggregate rule cuts results.
#[test]
fn one_step_makes_room_for_many_requests() {
    let off = PruningSettings::default();
    let mut decisions = SessionDecisions::default();
    let mut shown = Vec::new();
    let mut steps = Vec::new();
    for turns in 1..=60 {
        let plan = plan_within(60_000, &album(turns), &off, &mut decisions);
        assert!(plan.estimated_tokens <= 60_000, "{}", plan.estimated_tokens);
        let now = rewritten(&plan);
        assert_eq!(now[..shown.len()], shown, "replaced images stay replaced");
        if now.len() > shown.len() {
            steps.push(turns);
        }
        shown = now;
    }
    assert_eq!(steps, [15, 27, 39, 51]);
}

#[test]
fn an_open_turn_is_not_counted_and_its_images_stay() {
    let mut talk = album(3);
    talk.image("and this?");
    let off = PruningSettings::default();
    assert!(rewritten(&plan_of(&talk, &off, &mut SessionDecisions::default())).is_empty());
    let none = PruningSettings { keep_image_turns: 0, ..off };
    let dropped = rewritten(&plan_of(&talk, &none, &mut SessionDecisions::default()));
    assert_eq!(dropped.len(), 6, "all but the newest message: {dropped:?}");
}

#[test]
fn what_was_dropped_stays_dropped_when_the_turns_after_it_are_folded() {
    let mut decisions = SessionDecisions::default();
    let off = PruningSettings::default();
    plan_of(&album(5), &off, &mut decisions);
    let dropped = rewritten(&plan_of(&album(2), &off, &mut decisions));
    assert_eq!(dropped, [1, 3, 7], "all but the newest message, which is never changed");
}

#[test]
fn old_arguments_are_cut_where_that_is_wanted() {
    let mut talk = TranscriptBuilder::new();
    let file =
        json!({"path": "a.rs", "lines": [1, "z".repeat(3_000)], "content": "x".repeat(9_000)});
    talk.user("u");
    for id in ["1", "2", "3", "4"] {
        talk.calls(&[(id, "write", &file.to_string())]).result(id, "write", "ok");
    }
    assert!(rewritten(&plan_of(&talk, &on(), &mut SessionDecisions::default())).is_empty());
    let wanted = PruningSettings { old_arguments: true, ..on() };
    let mut decisions = SessionDecisions::default();
    let plan = plan_of(&talk, &wanted, &mut decisions);
    assert_eq!(rewritten(&plan), [1], "older than the newest three");
    assert_eq!(plan_of(&talk, &on(), &mut decisions), plan, "replayed whatever is wanted now");
    assert_eq!(ctxhost_engine_api::testing::plan_fault(&plan, &talk.transcript()), None);
    let Action::ReplaceRaw { raw, .. } = &plan.ops[1].action else { panic!("{:?}", plan.ops) };
    let call = Message::parse(raw, "").tool_calls().remove(0);
    let arguments = call.arguments_value();
    assert_eq!((call.id.as_ref(), call.name.as_ref()), ("1", "write"));
    assert_eq!((&arguments["path"], &arguments["lines"][0]), (&json!("a.rs"), &Value::from(1)));
    let content = arguments["content"].as_str().unwrap();
    assert!(content.len() <= 400 && content.ends_with("more characters of an old call]"));
}

//! Layouts of small conversations.

use ctxhost_engine_api::testing::TranscriptBuilder;

use super::*;

fn turns(count: u64, rounds: u64) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for turn in 0..count {
        talk.user(&format!("question {turn}"));
        for round in 0..rounds {
            let id = format!("{turn}-{round}");
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"text ".repeat(80));
        }
        talk.assistant(&format!("answer {turn}"));
    }
    talk
}

fn target(tokens: u64) -> BoundaryTarget {
    BoundaryTarget { threshold_tokens: tokens, budget_tokens: tokens, attempt: 1 }
}

fn planned(
    talk: &TranscriptBuilder,
    target: BoundaryTarget,
    plan: fn(&LayoutPlanner<'_>) -> Option<BoundaryLayout>,
) -> Option<BoundaryLayout> {
    // These are about the last turn; tests/boundary has the floor.
    let settings = &Settings { floor_share: 0.0, ..Settings::default() };
    let previews = &ResultPreviews::default();
    plan(&LayoutPlanner { transcript: &talk.transcript(), previews, settings, target })
}

fn chosen(talk: &TranscriptBuilder, target: BoundaryTarget) -> Option<BoundaryLayout> {
    planned(talk, target, |planner| planner.choose(&mut LedgerReader::new(planner.transcript)))
}

#[test]
fn the_last_turn_stays_whole_and_the_task_stays() {
    let talk = turns(10, 4);
    let layout = chosen(&talk, target(4_000)).unwrap();
    // With the answer before it.
    assert_eq!((layout.tail, layout.fold.gaps()), (90, &[1..89][..]));
}

fn questions(count: u64, words: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for turn in 0..count {
        talk.user(&format!("Please look into page {turn} of the shop, it is slow"));
        talk.calls(&[("1", "read", "{}")]).result("1", "read", &"text ".repeat(words));
        talk.assistant("done");
    }
    talk
}

#[test]
fn room_is_filled_up_to_a_quarter_below_the_threshold() {
    let target = BoundaryTarget { threshold_tokens: 2_600, budget_tokens: 4_000, attempt: 1 };
    for (talk, is_long) in [(questions(100, 40), true), (questions(20, 200), false)] {
        let layout = chosen(&talk, target).unwrap();
        let section_chars = layout.section_chars(&target);
        let more_chars = section_chars - layout.summary_chars;
        assert!((more_chars > 400) != is_long, "{more_chars}");
        let limits = layout.limits_beside(&"s".repeat(section_chars as usize), &target);
        let own_chars = section_chars + layout.ledger.chars(limits);
        let kept_tokens = talk.transcript().total_tokens() - layout.fold.tokens();
        let used_tokens = kept_tokens + 200 + own_chars / CHARS_PER_TOKEN;
        assert!((1_850..=1_960).contains(&used_tokens), "{used_tokens}");
    }
}

#[test]
fn requests_that_do_not_fit_their_share_get_the_free_room() {
    let talk = questions(100, 40);
    let (transcript, target) = (talk.transcript(), target(4_000));
    let layout = chosen(&talk, target).unwrap();
    let listed = |limits| layout.ledger.render(limits, "").matches("- Please look").count();
    let limits = layout.limits_beside(&"- a line".repeat(100), &target);
    assert!(listed(limits) > listed(layout.ledger_limits), "{limits:?}");
    let kept_tokens = transcript.tokens(layout.tail..talk.len());
    let used_tokens = kept_tokens + 200 + layout.ledger.chars(limits) / CHARS_PER_TOKEN;
    assert!(used_tokens < 2_700, "{used_tokens}");
    let full = layout.limits_beside(&"- a line".repeat(900), &target);
    assert_eq!(full, layout.ledger_limits);
}

#[test]
fn a_question_alone_brings_the_turn_before_it() {
    let mut talk = turns(10, 4);
    talk.user("yes, do it");
    assert_eq!(chosen(&talk, target(4_000)).unwrap().tail, 90);
}

#[test]
fn a_turn_too_long_keeps_its_question_and_its_newest_part() {
    let mut talk = turns(2, 4);
    talk.user("the long one");
    let question = talk.len() - 1;
    for round in 0..60 {
        let id = format!("r{round}");
        talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"text ".repeat(80));
    }
    let BoundaryLayout { fold, tail, .. } = chosen(&talk, target(4_000)).unwrap();
    assert_eq!(fold.gaps(), [1..question - 1, question + 1..tail]);
    assert!(talk.transcript().get(tail).unwrap().is_cut_point());
    assert!(talk.transcript().tokens(tail..talk.len()) <= 1_200);
}

#[test]
fn calls_without_a_result_stay_before_a_lost_result() {
    let mut talk = TranscriptBuilder::new();
    (0..40).for_each(|_| _ = talk.assistant(&"words ".repeat(80)));
    talk.calls(&[("open", "read", "{}")]).result("unknown", "read", "lost");
    assert_eq!(chosen(&talk, target(4_000)).unwrap().tail, 40);
    assert_eq!(chosen(&talk, BoundaryTarget { attempt: 3, ..target(4_000) }).unwrap().tail, 40);
}

#[test]
fn the_answer_that_the_newest_request_is_about_stays() {
    let mut talk = turns(10, 4);
    talk.assistant(&"word ".repeat(1_200)).user("Shorten it.");
    let layout = chosen(&talk, target(4_000)).unwrap();
    assert_eq!(layout.fold.gaps().last().unwrap().end, talk.len() - 2);
    talk.assistant(&"word ".repeat(4_800)).user("Shorten it.");
    let layout = chosen(&talk, target(4_000)).unwrap();
    assert_eq!(layout.fold.gaps().last().unwrap().end, talk.len() - 2);
    let shown_tokens = layout.shown.get(talk.len() - 2).unwrap().tokens();
    assert!((1_800..2_000).contains(&shown_tokens), "{shown_tokens}");
}

#[test]
fn an_answer_of_any_size_leaves_the_summary_its_room() {
    for words in (200..4_000).step_by(200) {
        let mut talk = questions(30, 40);
        talk.user("Explain it.").assistant(&"text ".repeat(words)).user("Why?");
        talk.calls(&[("why", "read", "{}")]).result("why", "read", &"text ".repeat(960));
        let room_tokens = chosen(&talk, target(4_000)).unwrap().room_tokens;
        assert!(room_tokens >= 900, "{words} words: {room_tokens} tokens");
    }
}

#[test]
fn large_arguments_are_cut_where_nothing_else_fits() {
    let write = format!(r#"{{"path":"a.rs","content":"{}"}}"#, "text ".repeat(7_000));
    let mut talk = turns(10, 4);
    talk.calls(&[("w", "write", &write)]).result("w", "write", "done");
    assert!(chosen(&talk, target(10_000)).is_none());
    let layout = planned(&talk, target(10_000), |planner| {
        planner.choose_smallest(&mut LedgerReader::new(planner.transcript))
    })
    .unwrap();
    let shown = format!("{:?}", layout.shown.get(talk.len() - 2).unwrap());
    assert!(shown.contains("a.rs") && layout.summary_chars >= LEAST_SUMMARY_CHARS);
    // Nothing to fold: the call alone is too large.
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("w", "write", &write)]).result("w", "write", "done");
    let planner = |planner: &LayoutPlanner<'_>| {
        planner.choose_smallest(&mut LedgerReader::new(planner.transcript))
    };
    let layout = planned(&talk, target(6_000), planner).unwrap();
    assert!(layout.fold.is_empty());
    assert!(layout.shown.shown_tokens(&talk.transcript()) <= 5_400);
}

#[test]
fn what_must_stay_may_leave_no_room() {
    let mut talk = turns(10, 4);
    talk.user(&"a long paste ".repeat(1_000));
    assert!(chosen(&talk, target(3_500)).is_none());
    let target = BoundaryTarget { threshold_tokens: 2_000, budget_tokens: 6_000, attempt: 1 };
    assert!(chosen(&talk, target).is_none());
    let layout = planned(&talk, target, |planner| {
        planner.choose_smallest(&mut LedgerReader::new(planner.transcript))
    });
    assert_eq!(layout.unwrap().fold.gaps(), [1..100]);
}

#[test]
fn an_answer_of_the_model_needs_no_acknowledgement_before_it() {
    let talk = turns(6, 4);
    let transcript = talk.transcript();
    let roles = |gaps: Vec<std::ops::Range<u64>>, attachments: Option<&str>| {
        let fold = HistoryFold::anchored_at_largest(&transcript, gaps);
        let layout = BoundaryLayout {
            fold,
            tail: 0,
            shown: ReplacementMap::default(),
            summary_chars: 0,
            ledger: SummaryLedger::default(),
            ledger_limits: LedgerLimits::new(0, &Settings::default().room),
            room_tokens: 0,
            used_tokens: 0,
            has_room: true,
        };
        let plan = build_plan(&transcript, &layout, "summary", attachments, "test");
        let items = plan.project(&transcript);
        assert_eq!(items.iter().map(|item| item.tokens()).sum::<u64>(), plan.estimated_tokens);
        items.iter().take(5).map(|item| (item.role(), item.entry().is_some())).collect::<Vec<_>>()
    };
    use Role::{Assistant, Tool, User};
    let before_question = roles(vec![1..10], None);
    assert_eq!(
        before_question[..4],
        [(User, true), (User, false), (Assistant, false), (User, true)]
    );
    let inside_a_turn = roles(vec![1..11], None);
    assert_eq!(inside_a_turn[..4], [(User, true), (User, false), (Assistant, true), (Tool, true)]);
    let with_attachments = roles(vec![1..11], Some("files"));
    assert_eq!(with_attachments[2..], [(Assistant, false), (User, false), (Assistant, true)]);
}

//! Property tests of the window, over generated budgets and growing sessions.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::single_range_in_vec_init)]

use ctxhost_engine_api::testing::TranscriptBuilder;

use super::*;

const RULE: SlidingRule = SlidingRule {
    keep_first_task: true,
    leave_out_note: true,
    slack_share: 0.25,
    request_share: 0.0,
};

/// A turn of a question, `rounds` of two parallel calls, and an answer.
fn turn(talk: &mut TranscriptBuilder, number: u64, rounds: u64) {
    talk.user(&format!("question {number}"));
    for round in 0..rounds {
        let (a, b) = (format!("{number}-{round}a"), format!("{number}-{round}b"));
        talk.calls(&[(&a, "read", "{}"), (&b, "ls", "{}")]);
        talk.result(&a, "read", &"text ".repeat(20)).result(&b, "ls", "file");
    }
    talk.assistant(&format!("answer {number}"));
}

fn choose(window: &mut SlidingWindow, transcript: &Transcript, budget: u64) -> EntrySelection {
    let tokens = |range: Range<u64>| transcript.tokens(range);
    window.follow(transcript, &RULE);
    match window.select_unchanged(transcript, budget, &RULE, &tokens) {
        Some(selection) => selection,
        None => window.slide(transcript, budget, &RULE, &tokens),
    }
}

fn cost(selection: &EntrySelection, transcript: &Transcript) -> u64 {
    selection.tokens(&RULE, &|range| transcript.tokens(range))
}

#[test]
fn what_fits_stays_whole() {
    let mut talk = TranscriptBuilder::new();
    (0..5).for_each(|number| turn(&mut talk, number, 1));
    let transcript = talk.transcript();
    let all = choose(&mut SlidingWindow::default(), &transcript, transcript.total_tokens());
    assert_eq!(all.kept_ranges(), [0..talk.len()]);
    assert_eq!(all.dropped_ranges().count(), 0);
    let none = choose(&mut SlidingWindow::default(), &TranscriptBuilder::new().transcript(), 0);
    assert_eq!(none.kept_ranges(), []);
}

#[test]
fn cuts_at_whole_turns_and_never_through_a_frame() {
    let mut talk = TranscriptBuilder::new();
    (0..12).for_each(|number| turn(&mut talk, number, 1 + number % 3));
    let transcript = talk.transcript();
    for budget in 0..transcript.total_tokens() + 10 {
        let selection = choose(&mut SlidingWindow::default(), &transcript, budget);
        let tail = selection.kept_ranges().last().unwrap().clone();
        assert_eq!(tail.end, talk.len());
        assert_eq!(selection.kept_ranges()[0].start, 0, "the task stays");
        assert_eq!(transcript.cut_at_or_before(tail.start), tail.start);
        let newest = transcript.newest_user_message().unwrap().seq();
        assert!(selection.kept_ranges().iter().any(|range| range.contains(&newest)));
        if tail.start < newest {
            let turn = transcript.range(tail.clone()).find(|entry| entry.is_user_message());
            let turn_tokens = transcript.tokens(turn.unwrap().seq()..talk.len());
            let is_whole = transcript.get(tail.start).unwrap().is_user_message();
            assert!(is_whole || turn_tokens <= budget / 2, "budget {budget}");
            assert!(cost(&selection, &transcript) <= budget);
        }
    }
}

#[test]
fn a_long_turn_before_a_short_one_keeps_its_newest_frames() {
    let mut talk = TranscriptBuilder::new();
    turn(&mut talk, 0, 1);
    let question = talk.len();
    turn(&mut talk, 1, 60);
    talk.user("state?");
    let transcript = talk.transcript();
    let budget = transcript.total_tokens() / 2;
    let selection = choose(&mut SlidingWindow::default(), &transcript, budget);
    assert!(cost(&selection, &transcript) <= budget);
    assert!(cost(&selection, &transcript) > budget / 2, "{selection:?}");
    assert!(selection.kept_ranges().iter().any(|range| range.contains(&question)));
}

#[test]
fn requests_with_rules_stay_before_newer_ones() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task").assistant("ok");
    talk.user("Correction: from now on answer in English.").assistant("ok");
    for number in 0..200 {
        talk.user(&format!("Question {number}: check the stock of it")).assistant("some words");
    }
    let transcript = talk.transcript();
    let rule = SlidingRule { request_share: 0.1, ..RULE };
    let tokens = |range: Range<u64>| transcript.tokens(range);
    let mut window = SlidingWindow::default();
    window.follow(&transcript, &rule);
    let selection = window.slide(&transcript, transcript.total_tokens() / 4, &rule, &tokens);
    assert!(selection.kept_ranges().iter().any(|range| range.contains(&2)), "{selection:?}");
}

#[test]
fn a_request_with_a_paste_keeps_its_rules() {
    let rules = "From now on always use port 5433.\nNever restart prod-db-3.";
    let log = "09:12:11 worker failed after 20 ms and tries again\n".repeat(80);
    let rule = SlidingRule { request_share: 0.1, ..RULE };
    for paste in [format!("{log}\n{rules}"), format!("{rules}\n\n{log}")] {
        let mut talk = TranscriptBuilder::new();
        talk.user("the task").assistant("ok");
        let request = talk.len();
        talk.user(&paste).assistant("ok");
        (0..60).for_each(|number| turn(&mut talk, number, 1));
        let transcript = talk.transcript();
        let tokens = |range: Range<u64>| transcript.tokens(range);
        for budget in [1_000, 2_000, 3_000] {
            let mut window = SlidingWindow::default();
            window.follow(&transcript, &rule);
            let selection = window.slide(&transcript, budget, &rule, &tokens);
            assert!(selection.tokens(&rule, &tokens) <= budget);
            let keep = |plan: &mut Plan, range: Range<u64>| _ = plan.keep(range);
            let items = selection.plan(&transcript, "window", &rule, &tokens, keep);
            let items = items.project(&transcript);
            let is_request = |seq| seq == Some(request);
            let shown = items.iter().find(|item| is_request(item.entry().map(|entry| entry.seq())));
            let shown = shown.unwrap().text().into_owned();
            assert!(rules.lines().all(|rule| shown.contains(rule)), "{budget}: {shown}");
            // A restart shows the same.
            let cut =
                StoredCut::parse(&StoredCut::new(&window, &transcript).to_json(), &transcript);
            let mut again = SlidingWindow::default();
            again.follow(&transcript, &rule);
            again.restore(cut.unwrap().cut().cloned());
            assert_eq!(
                again.select_unchanged(&transcript, budget, &rule, &tokens),
                Some(selection)
            );
        }
    }
}

#[test]
fn a_request_whose_image_does_not_fit_keeps_its_text() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task").assistant("ok");
    talk.image("The plan of db-7 is /srv/plan.png.").assistant("ok");
    (0..60).for_each(|number| turn(&mut talk, number, 1));
    let transcript = talk.transcript();
    let rule = SlidingRule { request_share: 0.1, ..RULE };
    let tokens = |range: Range<u64>| transcript.tokens(range);
    let mut window = SlidingWindow::default();
    window.follow(&transcript, &rule);
    let selection = window.slide(&transcript, 1_000, &rule, &tokens);
    assert!(selection.tokens(&rule, &tokens) <= 1_000);
    let again = window.select_unchanged(&transcript, 1_000, &rule, &tokens);
    assert_eq!(again.as_ref(), Some(&selection));
    let plan = selection.plan(&transcript, "window", &rule, &tokens, |plan, range| {
        plan.keep(range);
    });
    assert_eq!(ctxhost_engine_api::testing::plan_fault(&plan, &transcript), None);
    let items = plan.project(&transcript);
    let text = "The plan of db-7 is /srv/plan.png.\n[an image]";
    assert!(items.iter().any(|item| item.text() == text), "{items:?}");
    assert_eq!(items.iter().map(|item| item.tokens()).sum::<u64>(), plan.estimated_tokens);
}

#[test]
fn a_turn_too_long_keeps_its_question_and_its_newest_frames() {
    let mut talk = TranscriptBuilder::new();
    (0..3).for_each(|number| turn(&mut talk, number, 1));
    let question = talk.len();
    turn(&mut talk, 3, 30);
    let transcript = talk.transcript();
    let budget = transcript.tokens(question..talk.len()) / 3;
    let selection = choose(&mut SlidingWindow::default(), &transcript, budget);
    assert_eq!(selection.kept_ranges()[..2], [0..1, question..question + 1]);
    assert!(selection.kept_ranges()[2].start > question + 1);
    assert!(transcript.get(selection.kept_ranges()[2].start).unwrap().is_cut_point());
    assert!(cost(&selection, &transcript) <= budget);
}

#[test]
fn the_cut_stays_until_the_slack_is_used_up() {
    let mut talk = TranscriptBuilder::new();
    let mut window = SlidingWindow::default();
    let mut cuts = Vec::new();
    for number in 0..60 {
        turn(&mut talk, number, 1);
        let transcript = talk.transcript();
        let selection = choose(&mut window, &transcript, 1_000);
        assert!(cost(&selection, &transcript) <= 1_000);
        cuts.push(selection.kept_ranges().last().unwrap().start);
    }
    let moves = cuts.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(cuts.is_sorted());
    assert!((3..=8).contains(&moves), "{moves} moves: {cuts:?}");
}

#[test]
fn a_cut_inside_a_turn_stays_when_the_next_turn_begins() {
    let mut talk = TranscriptBuilder::new();
    let mut window = SlidingWindow::default();
    turn(&mut talk, 0, 1);
    turn(&mut talk, 1, 20);
    let before = choose(&mut window, &talk.transcript(), 400);
    let grown = talk.len();
    talk.user("question 2");
    let after = choose(&mut window, &talk.transcript(), 400);
    let mut longer = before.kept_ranges().to_vec();
    longer.last_mut().unwrap().end = grown + 1;
    assert_eq!(after.kept_ranges(), longer);
}

#[test]
fn another_transcript_or_a_larger_budget_starts_over() {
    let mut talk = TranscriptBuilder::new();
    let mut window = SlidingWindow::default();
    (0..30).for_each(|number| turn(&mut talk, number, 1));
    let transcript = talk.transcript();
    let small = choose(&mut window, &transcript, 500);
    assert_eq!(choose(&mut window, &transcript, 600), small, "within the slack");
    let large = choose(&mut window, &transcript, 1_000);
    assert!(cost(&large, &transcript) > 600);

    let mut next = TranscriptBuilder::with_epoch(1);
    next.summary("so far").user("go on").assistant("gladly");
    assert_eq!(choose(&mut window, &next.transcript(), 1_000).kept_ranges(), [0..3]);
    (0..30).for_each(|number| turn(&mut next, number, 1));
    let kept = choose(&mut window, &next.transcript(), 500).kept_ranges().to_vec();
    assert_eq!(kept[0], 0..2, "the summary and what the host pinned");
}

#[test]
fn the_plan_names_every_entry_once() {
    let mut talk = TranscriptBuilder::new();
    (0..12).for_each(|number| turn(&mut talk, number, 1));
    let transcript = talk.transcript();
    let tokens = |range: Range<u64>| transcript.tokens(range);
    let selection = choose(&mut SlidingWindow::default(), &transcript, 300);
    let plan = selection.plan(&transcript, "window", &RULE, &tokens, |plan, range| {
        plan.keep(range);
    });
    assert_eq!(ctxhost_engine_api::testing::plan_fault(&plan, &transcript), None);
    let named: u64 = plan.ops.iter().map(|op| op.action.range()).map(|r| r.end - r.start).sum();
    assert_eq!(named, talk.len());
    let cost: u64 = plan.project(&transcript).iter().map(|item| item.tokens()).sum();
    assert_eq!(cost, plan.estimated_tokens);
    let left_out = selection.dropped_ranges().map(|gap| gap.end - gap.start).sum::<u64>();
    assert!(
        plan.project(&transcript)
            .iter()
            .any(|item| { item.text() == format!("[{left_out} earlier entries left out]") })
    );
}

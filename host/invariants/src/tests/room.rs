//! An emergency trim uses its budget for what matters.

use ctxhost_engine_api::Entry;

use super::*;

/// The emergency trim without a ledger.
fn bare(view: &Transcript, budget_tokens: u64) -> Result<Plan, EmergencyTrimError> {
    emergency_trim(view, budget_tokens, &InvariantSettings::default(), &|_, _| String::new())
}

/// The highest cost of an entry with all texts at their minimum.
fn most_when_cut(entry: &Entry<'_>) -> u64 {
    12 + 40 * entry.tool_calls().len() as u64
}

/// Frames that a plan drops and that contain something to send.
fn left_out(view: &Transcript, plan: &Plan) -> Vec<std::ops::Range<u64>> {
    let kept = kept_ranges(plan);
    let mut frames = Vec::new();
    let mut end = view.len() as u64;
    while let Some(last) = end.checked_sub(1) {
        let frame = view.cut_at_or_before(last)..end;
        end = frame.start;
        let is_sent = |entry: Entry<'_>| {
            !entry.has(Flags::ORPHAN) && !entry.has(Flags::ABORTED) && entry.tokens() > 0
        };
        if !kept.contains(frame.start) && view.range(frame.clone()).any(is_sent) {
            frames.push(frame);
        }
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_floor_is_met_where_there_is_material(generated in transcripts(), budget_tokens in 60..3_000_u64) {
        let view = generated.transcript();
        let settings = InvariantSettings::default();
        for plan in [bare(&view, budget_tokens), trim(&view, budget_tokens)].into_iter().flatten() {
            let enforced = judge(&view, plan, budget_tokens).unwrap();
            if enforced.tokens >= settings.floor_tokens(budget_tokens) {
                continue;
            }
            // A ledger has at most a quarter of the budget.
            let left_tokens = budget_tokens - enforced.tokens - budget_tokens / 4;
            for frame in left_out(&view, &enforced.plan) {
                let least: u64 = view.range(frame.clone()).map(|entry| most_when_cut(&entry)).sum();
                prop_assert!(least > left_tokens, "{frame:?} of {budget_tokens}: {}", enforced.tokens);
            }
        }
    }

    #[test]
    fn requests_are_word_for_word_where_all_fit_a_tenth(
        generated in transcripts(), budget_tokens in 60..20_000_u64,
    ) {
        let view = generated.transcript();
        let Ok(plan) = trim(&view, budget_tokens) else { return Ok(()) };
        let requests: Vec<Entry<'_>> = view.iter().filter(|entry| entry.is_user_message()).collect();
        let tokens: u64 = requests.iter().map(|entry| entry.tokens()).sum();
        // The rest, shortened: pinned entries and the frames of the requests.
        let anchors = PinnedEntries::from_transcript(&view);
        let frames = requests.iter().map(|entry| {
            view.cut_at_or_before(entry.seq())..view.cut_at_or_after(entry.seq() + 1)
        });
        let beside: u64 = ranges::RangeSet::from_ranges(frames).iter()
            .flat_map(|range| view.range(range)).map(|entry| most_when_cut(&entry)).sum();
        let must_tokens = anchors.added_tokens()
            + anchors.all_ranges(&view).iter().map(|range| view.tokens(range)).sum::<u64>();
        let is_tight = must_tokens > budget_tokens;
        let least = if is_tight { smallest_budget(&view) } else { must_tokens };
        if tokens <= budget_tokens / 10 && least + tokens + beside <= budget_tokens {
            let verbatim = |seq: u64| plan.ops.iter().any(|op| {
                matches!(&op.action, Action::Keep(range) if range.contains(&seq))
            });
            for entry in requests {
                prop_assert!(verbatim(entry.seq()), "{} of {budget_tokens}: {plan:?}", entry.seq());
            }
        }
    }
}

/// A session of work: a request, and rounds of a call with a result of some 300 tokens each.
fn work(turns: usize, rounds: usize) -> Script {
    (0..turns).fold(Script::new(), |script, turn| {
        let script = script.user(&format!("please look at part {turn} of the importer"));
        (0..rounds).fold(script, |script, round| {
            let id = format!("c{turn}x{round}");
            script.calls("I read it.", &[&id]).result(&id, &format!("{id} {}", "line ".repeat(240)))
        })
    })
}

#[test]
fn everything_is_filled_in_its_order() {
    let view = work(12, 8).finish().transcript();
    let budget_tokens = 8_000;
    assert!(view.total_tokens() > 3 * budget_tokens);
    let asked = std::cell::Cell::new(None);
    let write = |gaps: &[std::ops::Range<u64>], room: LedgerBudget| {
        assert!(gaps.iter().all(|gap| gap.end < 12 * 17 && !gap.is_empty()));
        asked.set(Some(room));
        "what was read".to_owned()
    };
    let plan = emergency_trim(&view, budget_tokens, &InvariantSettings::default(), &write).unwrap();
    let enforced = judge(&view, plan, budget_tokens).unwrap();
    let items = enforced.items(&view);
    let requests = items.iter().filter(|item| item.text().starts_with("please look")).count();
    assert_eq!(requests, 12, "every request");
    let inserted = items.iter().position(|item| matches!(item, PlanItem::Inserted { .. })).unwrap();
    assert!(
        items[..inserted].iter().all(|item| item.role() == Role::User),
        "before the newest turns"
    );
    assert!(items.len() - inserted > 10, "the newest turns");
    assert!(enforced.tokens > budget_tokens / 2, "{}", enforced.tokens);
    assert_eq!(items.last().unwrap().entry().unwrap().seq(), view.len() as u64 - 1);
    let room = asked.get().unwrap();
    assert!(room.tokens >= 1_200 && room.tokens <= 2_000, "{room:?}");
}

#[test]
fn pasted_requests_give_way_to_the_newest() {
    let pasted = "word ".repeat(2_000);
    let script = Script::new().user("first").assistant("ok").user(&pasted).assistant("ok");
    let script = script.user("small and old").assistant(&"a ".repeat(40_000)).user("small and new");
    let view = script.assistant(&"b ".repeat(40_000)).user("now").finish().transcript();
    let plan = bare(&view, 4_000).unwrap();
    let texts: Vec<String> =
        plan.project(&view).iter().map(|item| item.text().into_owned()).collect();
    for request in ["first", "small and old", "small and new", "now"] {
        assert!(texts.iter().any(|text| text == request), "{request}");
    }
    assert!(!texts.contains(&pasted), "more than a tenth");
}

#[test]
fn what_overflows_is_cut_before_it_is_left_out() {
    // Two results of 12,800 tokens each, where 13,609 are allowed.
    let large = "path/to/some_file.rs:12 ".repeat(2_134);
    let script = Script::new().user("task").calls("", &["a"]).result("a", &large);
    let script =
        script.assistant("and now").user("the other").calls("", &["b"]).result("b", &large);
    let view = script.assistant("done").user("well?").finish().transcript();
    assert!(view.total_tokens() > 25_000);
    let enforced = judge(&view, bare(&view, 13_609).unwrap(), 13_609).unwrap();
    assert_eq!(enforced.items(&view).len(), view.len());
    assert!(enforced.tokens > 6_000, "{}", enforced.tokens);
}

#[test]
fn requests_go_on_beginning_with_the_same_bytes() {
    let generated = work(10, 12).finish();
    let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(0);
    let (budget_tokens, mut before, mut kept, mut of) = (8_000, String::new(), 0, 0);
    for entry in generated.entries {
        let is_result = entry.role == Role::Tool;
        log.append(entry);
        let view = log.snapshot();
        if !is_result || view.total_tokens() <= budget_tokens {
            continue;
        }
        let write = |gaps: &[std::ops::Range<u64>], _: LedgerBudget| format!("gaps {gaps:?}");
        let plan =
            emergency_trim(&view, budget_tokens, &InvariantSettings::default(), &write).unwrap();
        let now: String = plan.project(&view).iter().map(|item| item.text().into_owned()).collect();
        let same = before.bytes().zip(now.bytes()).take_while(|(old, new)| old == new).count();
        (kept, of) = (kept + same, of + before.len());
        before = now;
    }
    assert!(of > 1_000_000, "{of}");
    assert!(kept * 10 > of * 6, "{kept} of {of}");
}

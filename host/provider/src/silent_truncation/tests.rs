use proptest::prelude::*;

use super::*;

fn sent(prompt_tokens: u64, certainty: CountBasis, window_tokens: u64) -> SentPrompt {
    SentPrompt {
        prompt_tokens,
        estimated_tokens: prompt_tokens,
        image_tokens: 0,
        basis: certainty,
        window_tokens,
    }
}

fn counted(input: u64, output: u64) -> TokenUsage {
    TokenUsage { input, output, ..TokenUsage::default() }.with_total()
}

fn judge(sent: &SentPrompt, input: u64) -> Option<SilentTruncation> {
    let usage = counted(input, 300);
    SilentTruncation::detect(sent, CountHistory::default(), &usage, StopReason::Stop)
}

/// A session of a server that counts whole prompts, after a prompt of this size.
fn whole_counts(tokens: u64) -> CountHistory {
    let size = |tokens| sent(tokens, CountBasis::Estimated, 0);
    let first =
        CountHistory::default().with_answer(&size(tokens - 100), &counted(tokens - 100, 5), true);
    first.with_answer(&size(tokens), &counted(tokens, 5), true)
}

#[test]
fn half_a_window_is_a_cut() {
    // As measured of Ollama 0.32 to 0.34: window, prompt, count.
    let seen = [
        (4_096, 12_000, 2_050),
        (4_096, 9_200, 2_051),
        (8_192, 9_200, 4_099),
        (32_768, 160_689, 16_387),
        (65_536, 120_000, 32_770),
        (24_576, 30_000, 12_291),
    ];
    for (window, prompt, count) in seen {
        for certainty in [CountBasis::Tokenizer, CountBasis::Anchored, CountBasis::Estimated] {
            let verdict = judge(&sent(prompt, certainty, window), count).expect("a cut");
            assert_eq!((verdict.kind, verdict.window_tokens), (TruncationKind::Cut, window));
            assert_eq!(verdict.lost_tokens(), prompt - count);
        }
    }
}

#[test]
fn an_estimate_that_errs_low_still_finds_the_cut() {
    // 4,400 tokens were sent, guessed as 3,500.
    assert!(judge(&sent(3_500, CountBasis::Estimated, 4_096), 2_050).is_some());
}

#[test]
fn a_full_window_is_a_cut() {
    let verdict = judge(&sent(9_000, CountBasis::Estimated, 8_192), 8_192).expect("a cut");
    assert_eq!(verdict.kind, TruncationKind::Cut);
    assert!(judge(&sent(9_000, CountBasis::Estimated, 8_192), 8_191).is_some());
}

#[test]
fn a_server_that_ignores_the_window_is_found_by_its_own() {
    // Reported of a coding agent: 131,072 in the config, 4,096 at the server.
    let verdict = judge(&sent(27_000, CountBasis::Estimated, 131_072), 2_051).expect("a cut");
    assert_eq!(verdict.window_tokens, 4_096);
    let verdict = judge(&sent(27_000, CountBasis::Estimated, 0), 2_051).expect("a cut");
    assert_eq!(verdict.window_tokens, 4_096);
    assert!(verdict.to_string().contains("raise num_ctx"), "{verdict}");
}

#[test]
fn more_than_the_window_was_sent_and_less_was_counted() {
    // The server dropped the oldest messages until the rest fitted.
    let verdict = judge(&sent(20_000, CountBasis::Estimated, 8_192), 7_012).expect("a cut");
    assert_eq!(verdict.kind, TruncationKind::Cut);
    assert!(judge(&sent(8_600, CountBasis::Tokenizer, 8_192), 7_012).is_some());
}

#[test]
fn an_estimate_within_its_error_is_not_a_cut() {
    assert_eq!(judge(&sent(12_000, CountBasis::Estimated, 8_192), 7_012), None);
    assert_eq!(judge(&sent(9_000, CountBasis::Anchored, 8_192), 7_012), None);
}

#[test]
fn an_old_server_that_omits_cached_tokens_is_not_a_cut() {
    // 30 turns of a session, each counted without the prefix.
    let mut counts = CountHistory::default();
    for turn in 1..=30u64 {
        let sent = sent(1_000 * turn, CountBasis::Anchored, 32_768);
        let usage = counted(400, 200);
        assert_eq!(SilentTruncation::detect(&sent, counts, &usage, StopReason::Stop), None);
        counts = counts.with_answer(&sent, &usage, true);
    }
}

#[test]
fn new_parts_of_one_size_are_not_a_cut_where_cached_tokens_are_omitted() {
    // Chunks of a file, each counted alone, with a factor that was learned from such counts.
    for factor_percent in [25, 40, 100] {
        for answer_tokens in [30, 6_000] {
            let mut counts = CountHistory::default();
            for turn in 1..=20u64 {
                let estimated_tokens = (1_500 + answer_tokens) * turn;
                let prompt_tokens =
                    if turn == 1 { 1_500 } else { 1_500 + 1_500 * factor_percent / 100 };
                let sent = SentPrompt {
                    estimated_tokens,
                    ..sent(prompt_tokens, CountBasis::Anchored, 131_072)
                };
                let usage = counted(1_500, answer_tokens);
                let verdict = SilentTruncation::detect(&sent, counts, &usage, StopReason::Stop);
                assert_eq!(verdict, None, "{factor_percent} {answer_tokens} {turn}");
                counts = counts.with_answer(&sent, &usage, true);
                assert!(!counts.counts_cached(), "{factor_percent} {answer_tokens} {turn}");
            }
        }
    }
}

/// Whether a server is known to count cached tokens, by its counts of prompts of which only the sizes are known.
fn is_proven(estimates_and_counts: impl IntoIterator<Item = (u64, u64)>) -> bool {
    let with = |counts: CountHistory, (estimate, count): (u64, u64)| {
        let sent = sent(estimate, CountBasis::Estimated, 131_072);
        counts.with_answer(&sent, &counted(count, 90), false)
    };
    estimates_and_counts.into_iter().fold(CountHistory::default(), with).counts_cached()
}

#[test]
fn counts_that_grow_with_the_prompt_prove_that_cached_tokens_are_counted() {
    for factor_percent in [40, 60, 80, 100, 150] {
        let honest = |turn: u64| (1_500 * turn, 1_500 * turn * factor_percent / 100);
        assert!(is_proven((1..=20).map(honest)), "{factor_percent}");
        assert!(!is_proven((1..=3).map(honest)), "{factor_percent}: too few");
    }
}

#[test]
fn counts_of_new_parts_prove_nothing() {
    let sizes = |new: fn(u64) -> u64| {
        (1..=30).scan(0, move |sum, turn| {
            *sum += new(turn);
            Some((*sum, new(turn)))
        })
    };
    assert!(!is_proven(sizes(|_| 1_500)));
    assert!(!is_proven(sizes(|turn| 100 * turn)));
    assert!(!is_proven(sizes(|turn| 1 << (turn / 2))));
    // A prompt that is cut has the same count again.
    assert!(!is_proven((1..=30).map(|turn| (20_000 + 300 * turn, 8_194 + turn % 3))));
}

#[test]
fn a_low_count_withdraws_the_proof() {
    // The cache has expired before each of these, and then it has not.
    let slow = (1..=20).map(|turn| (1_500 * turn, 1_500 * turn));
    assert!(is_proven(slow.clone()));
    assert!(!is_proven(slow.clone().chain([(31_500, 1_500)])));
    // The same request again.
    assert!(!is_proven(slow.clone().chain([(30_000, 5)])));
    // A smaller prompt has a smaller count.
    assert!(is_proven(slow.chain([(10_000, 9_500)])));
}

#[test]
fn a_new_part_may_have_the_size_of_a_cut_by_chance() {
    // The file that was just read has 2,050 tokens, and the server counts nothing else.
    let before = CountHistory::default().with_answer(
        &sent(20_000, CountBasis::Estimated, 32_768),
        &counted(20_000, 100),
        true,
    );
    let now = sent(22_300, CountBasis::Estimated, 32_768);
    let verdict = SilentTruncation::detect(&now, before, &counted(2_050, 9), StopReason::Stop);
    assert_eq!(verdict, None);
    // The same of a server that counts whole prompts is a cut.
    let before = whole_counts(20_000);
    let verdict = SilentTruncation::detect(&now, before, &counted(2_050, 9), StopReason::Stop);
    assert_eq!(verdict.map(|verdict| verdict.window_tokens), Some(4_096));
}

#[test]
fn a_large_new_part_does_not_teach_that_the_cache_is_counted() {
    // 1,000 tokens, then a file of 3,000: an old server counts 1,000 and 3,000.
    let first = sent(1_000, CountBasis::Estimated, 0);
    let counts = CountHistory::default().with_answer(&first, &counted(1_000, 5), true);
    let second = sent(4_000, CountBasis::Estimated, 0);
    let counts = counts.with_answer(&second, &counted(3_000, 5), true);
    let third = sent(4_100, CountBasis::Estimated, 32_768);
    let verdict = SilentTruncation::detect(&third, counts, &counted(90, 5), StopReason::Stop);
    assert_eq!(verdict, None);
}

#[test]
fn a_prompt_that_grew_and_is_counted_smaller_was_cut() {
    let before = whole_counts(7_900);
    let now = sent(8_300, CountBasis::Anchored, 131_072);
    let verdict = SilentTruncation::detect(&now, before, &counted(5_100, 9), StopReason::Stop);
    let verdict = verdict.expect("a cut");
    assert_eq!((verdict.kind, verdict.window_tokens), (TruncationKind::Cut, 7_900));
    assert!(verdict.to_string().contains("raise num_ctx"), "{verdict}");
    // After a compaction a smaller count is expected.
    let now = sent(2_600, CountBasis::Estimated, 131_072);
    let usage = counted(2_700, 9);
    assert_eq!(
        SilentTruncation::detect(&now, before.reset_sizes(), &usage, StopReason::Stop),
        None
    );
}

#[test]
fn a_template_that_drops_old_thinking_is_not_a_cut() {
    let before = whole_counts(8_000);
    let now = sent(8_200, CountBasis::Anchored, 32_768);
    let verdict = SilentTruncation::detect(&now, before, &counted(6_500, 9), StopReason::Stop);
    assert_eq!(verdict, None);
}

#[test]
fn cheap_images_are_not_a_cut() {
    // Twenty images at 2,000 tokens in the estimate, at 256 in the model.
    let prompt = SentPrompt {
        prompt_tokens: 41_000,
        estimated_tokens: 41_000,
        image_tokens: 40_000,
        basis: CountBasis::Estimated,
        window_tokens: 16_384,
    };
    assert_eq!(judge(&prompt, 6_150), None);
    assert_eq!(
        SilentTruncation::detect(
            &prompt,
            whole_counts(9_000),
            &counted(6_150, 1),
            StopReason::Stop
        ),
        None
    );
}

#[test]
fn a_count_of_zero_proves_nothing() {
    assert_eq!(judge(&sent(100_000, CountBasis::Tokenizer, 4_096), 0), None);
}

#[test]
fn a_full_window_without_an_answer_has_no_room() {
    let prompt = sent(260_000, CountBasis::Estimated, 262_144);
    let usage = counted(260_500, 0);
    let judge = |usage: &TokenUsage, stop| {
        SilentTruncation::detect(&prompt, CountHistory::default(), usage, stop)
            .map(|found| found.kind)
    };
    assert_eq!(judge(&usage, StopReason::Length), Some(TruncationKind::NoAnswerBudget));
    assert_eq!(judge(&usage, StopReason::Stop), None);
    assert_eq!(judge(&counted(260_500, 12), StopReason::Length), None);
    assert_eq!(judge(&counted(200_000, 0), StopReason::Length), None);
    let cached = TokenUsage { input: 500, cache_read: 260_000, ..TokenUsage::default() };
    assert_eq!(judge(&cached, StopReason::Length), Some(TruncationKind::NoAnswerBudget));
}

#[test]
fn more_than_the_window_is_an_overrun() {
    let usage =
        TokenUsage { input: 30_000, cache_read: 110_000, output: 9, ..TokenUsage::default() };
    let prompt = sent(120_000, CountBasis::Anchored, 131_072);
    let verdict =
        SilentTruncation::detect(&prompt, CountHistory::default(), &usage, StopReason::Stop)
            .unwrap();
    assert_eq!((verdict.kind, verdict.counted_tokens), (TruncationKind::Overrun, 140_000));
    assert_eq!(verdict.lost_tokens(), 0);
    assert!(verdict.to_string().contains("compact"), "{verdict}");
}

#[test]
fn the_message_names_the_numbers_and_the_remedy() {
    let verdict = judge(&sent(160_689, CountBasis::Estimated, 32_768), 16_387).unwrap();
    insta::assert_snapshot!(verdict.to_string(), @"the server read 16,387 of about 160,689 tokens and silently dropped about 144,302, probably with the system prompt; raise num_ctx (the window of this model in the config) above 32,768, or compact");
}

/// A session of a server that silently reads no more than its own window; the config has a
/// larger one. How many prompts were cut before that was found, and the window that was concluded.
fn found(window: u64, left: u64, first: u64, step: u64, error_percent: u64) -> Option<(u64, u64)> {
    let (mut truth, mut counts, mut cuts) = (first, CountHistory::default(), 0);
    let mut before = None;
    for _ in 0..1_500 {
        let estimate = |tokens: u64| tokens * error_percent / 100;
        let (prompt_tokens, certainty) = match before {
            // As sessions count: the last count plus an estimate of the new part.
            Some(count) => (count + estimate(step), CountBasis::Anchored),
            None => (estimate(truth), CountBasis::Estimated),
        };
        let sent = SentPrompt {
            estimated_tokens: estimate(truth),
            ..sent(prompt_tokens, certainty, 131_072)
        };
        let input = if truth > window { left } else { truth };
        cuts += u64::from(truth > window);
        let usage = counted(input, 40);
        if let Some(verdict) = SilentTruncation::detect(&sent, counts, &usage, StopReason::Stop) {
            assert_eq!(verdict.kind, TruncationKind::Cut);
            return Some((cuts, verdict.window_tokens));
        }
        counts = counts.with_answer(&sent, &usage, before.is_some());
        before = (input * 10 > prompt_tokens * 3 || before.is_some()).then_some(input);
        truth += step;
    }
    None
}

#[test]
fn a_window_of_any_size_is_found_by_the_second_cut() {
    for window in [4_000, 5_000, 12_288, 20_480, 30_000, 100_000] {
        for step in [90, 400, 3_000] {
            for error_percent in [60, 100, 170] {
                for first in [700, window + 500, window * 3, window * 6] {
                    let case = (window, step, error_percent, first);
                    let is_beyond_config = first * error_percent / 100 > 131_072;
                    if step * error_percent / 100 >= window / 4 || is_beyond_config {
                        // So much may be all that the server has counted: the rest was cached.
                        continue;
                    }
                    let (cuts, held) = found(window, window, first, step, error_percent)
                        .unwrap_or_else(|| panic!("{case:?}: never"));
                    assert!(cuts <= 2 && held == window, "{case:?}: {cuts} cuts, {held}");
                    // Half of a window is left.
                    let left = window - (window - 4) / 2;
                    let (cuts, held) = found(window, left, first, step, error_percent)
                        .unwrap_or_else(|| panic!("{case:?}: never, half"));
                    assert!(cuts <= 2 && held <= window, "{case:?}: {cuts} cuts, {held}, half");
                }
            }
        }
    }
}

#[test]
fn a_server_that_always_counts_the_same_cuts_nothing() {
    let mut counts = CountHistory::default();
    for turn in 1..=30u64 {
        let sent = sent(900 * turn, CountBasis::Estimated, 131_072);
        let usage = counted(10, 200);
        assert_eq!(SilentTruncation::detect(&sent, counts, &usage, StopReason::Stop), None);
        counts = counts.with_answer(&sent, &usage, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A server that reads everything, and an estimate within its error: never a detection.
    #[test]
    fn an_honest_count_is_never_accused(
        steps in prop::collection::vec((50u64..1_500, 55u64..190), 1..40),
        leaves_out_cached in any::<bool>(),
    ) {
        let window = 131_072;
        let (mut truth, mut guess, mut counts) = (700u64, 700u64, CountHistory::default());
        for (step, error_percent) in steps {
            truth += step;
            guess += step * error_percent / 100;
            let sent = sent(guess, CountBasis::Estimated, window);
            let input = if leaves_out_cached { step } else { truth };
            let usage = counted(input, 40);
            let verdict = SilentTruncation::detect(&sent, counts, &usage, StopReason::Stop);
            prop_assert_eq!(verdict, None, "{:?} {:?} {}", sent, counts, input);
            counts = counts.with_answer(&sent, &usage, true);
        }
    }

    /// A server that cuts by halves is found at once, in a session that was honest before.
    #[test]
    fn a_cut_is_found_in_the_turn_it_happens(
        window in prop::sample::select(vec![4_096u64, 8_192, 16_384, 32_768, 40_960]),
        over in 0u64..50_000,
        error_percent in 80u64..140,
        kept in 4u64..=5,
    ) {
        let mut counts = CountHistory::default();
        for part in 1..=8 {
            let size = window * part / 10;
            let sent = sent(size, CountBasis::Estimated, window);
            counts = counts.with_answer(&sent, &counted(size, 10), true);
        }
        let sent = sent((window + over) * error_percent / 100, CountBasis::Estimated, window);
        let usage = counted(window - (window - kept) / 2, 10);
        let verdict = SilentTruncation::detect(&sent, counts, &usage, StopReason::Stop);
        prop_assert_eq!(verdict.map(|verdict| verdict.kind), Some(TruncationKind::Cut));
    }
}

#[test]
fn the_same_cut_twice_is_found_though_the_first_was_believed() {
    // 17,000 tokens were sent and 16,384 counted, which an estimate allows; then more was sent.
    let first = sent(17_000, CountBasis::Anchored, 32_000);
    assert_eq!(judge(&first, 16_384), None);
    let before = CountHistory::default().with_answer(&first, &counted(16_384, 300), true);
    let judge = |prompt, certainty, input| {
        let usage = counted(input, 300);
        let sent = sent(prompt, certainty, 32_000);
        SilentTruncation::detect(&sent, before, &usage, StopReason::Stop)
    };
    let verdict = judge(17_200, CountBasis::Anchored, 16_384).expect("a cut");
    assert_eq!((verdict.kind, verdict.window_tokens), (TruncationKind::Cut, 16_384));
    assert_eq!(judge(17_200, CountBasis::Anchored, 17_050), None, "it grew");
    assert_eq!(judge(16_384, CountBasis::Anchored, 16_384), None, "it was the same again");
    assert_eq!(judge(17_200, CountBasis::Estimated, 16_384), None, "it may be another prompt");
}

#[test]
fn a_count_far_below_the_prompt_is_not_of_all_of_it() {
    let prompt = sent(60_000, CountBasis::Anchored, 100_000);
    assert!(prompt.may_be_read_whole(&counted(50_000, 9)));
    assert!(!prompt.may_be_read_whole(&counted(9_000, 9)));
    let estimated = sent(60_000, CountBasis::Estimated, 100_000);
    assert!(estimated.may_be_read_whole(&counted(31_000, 9)));
}

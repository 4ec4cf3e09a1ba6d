//! Accounts of made-up providers that count by a factor of their own.

use proptest::prelude::*;

use super::*;
use ctxhost_session::{RecordBody, Session, SessionHeader};

fn model(id: &str) -> ModelName {
    ModelName::new("p", id)
}

fn account() -> TokenAccounting {
    TokenAccounting::new(AccountingSettings::default(), model("m"), 100_000)
}

fn part(number: u64, estimate_tokens: u64) -> SizePart {
    SizePart::new(&number.to_string(), estimate_tokens)
}

/// So many parts of a thousand estimated tokens each.
fn parts(count: u64) -> Vec<SizePart> {
    (0..count).map(|number| part(number, 1_000)).collect()
}

impl TokenAccounting {
    fn limit_factor(&self) -> f64 {
        self.rates().0.text
    }

    fn usual_factor(&self) -> f64 {
        self.rates().1.text
    }
}

fn counted_and(counted_tokens: u64, estimated_tokens: u64) -> TokenCount {
    TokenCount { counted_tokens, ..TokenCount::estimated(estimated_tokens) }
}

fn usage(input: u64, cache_read: u64, cache_write: u64) -> TokenUsage {
    TokenUsage { input, cache_read, cache_write, output: 777, ..TokenUsage::default() }
}

#[test]
fn an_unknown_model_is_estimated_with_a_margin() {
    let account = account();
    let size = account.count(&account.request_size(parts(10)));
    assert_eq!(size, TokenCount::estimated(10_000));
    assert_eq!((account.expected(size), account.upper_bound(size)), (10_000, 12_000));
}

#[test]
fn what_the_provider_counted_is_not_estimated_again() {
    let mut account = account();
    let sent = account.request_size(parts(10));
    let reported = usage(1_000, 9_000, 3_000);
    assert_eq!(
        account.record_usage(
            &model("m"),
            &sent,
            &reported,
            StopReason::Stop,
            CachedTokens::Counted
        ),
        CountTrust::Anchored
    );
    let next = account.count(&account.request_size(parts(12)));
    assert_eq!(next, counted_and(13_000, 2_000));
    assert_eq!(account.upper_bound(next), 13_000 + 2_600);
    // The very same request is known to the token.
    assert_eq!(account.upper_bound(account.count(&sent)), 13_000);
}

#[test]
fn a_request_that_begins_otherwise_is_estimated_whole() {
    let mut account = account();
    let sent = account.request_size(parts(10));
    account.record_usage(
        &model("m"),
        &sent,
        &usage(10_000, 0, 0),
        StopReason::Stop,
        CachedTokens::Counted,
    );
    let mut changed = parts(12);
    changed[3] = part(99, 5);
    let shorter = parts(9);
    for prompt in [changed, shorter] {
        let estimate = TokenCount::of_parts(&prompt).estimated_tokens;
        assert_eq!(account.count(&account.request_size(prompt)), TokenCount::estimated(estimate));
    }
}

#[test]
fn system_and_tools_count() {
    let account = account();
    let with = [SizePart::from_text("be good"), SizePart::from_text("[{}]"), part(1, 10)];
    assert_eq!(account.request_size(with).estimate_tokens(), 2 + 1 + 10);
}

#[test]
fn no_count_from_before_a_compaction_is_trusted() {
    let mut account = account();
    let before = account.request_size(parts(10));
    account.record_usage(
        &model("m"),
        &before,
        &usage(10_000, 0, 0),
        StopReason::Stop,
        CachedTokens::Counted,
    );
    let in_flight = account.request_size(parts(11));
    account.invalidate_anchors();
    // The same words again, by chance: the count is not used all the same.
    assert_eq!(account.count(&account.request_size(parts(10))), TokenCount::estimated(10_000));
    let late = account.record_usage(
        &model("m"),
        &in_flight,
        &usage(11_000, 0, 0),
        StopReason::Stop,
        CachedTokens::Counted,
    );
    assert_eq!(late, CountTrust::LearnedOnly);
    assert_eq!(account.count(&account.request_size(parts(11))), TokenCount::estimated(11_000));
    let after = account.request_size(parts(2));
    account.record_usage(
        &model("m"),
        &after,
        &usage(2_500, 0, 0),
        StopReason::Stop,
        CachedTokens::Counted,
    );
    assert_eq!(account.count(&account.request_size(parts(3))).counted_tokens, 2_500);
}

#[test]
fn each_model_has_its_window_its_factor_and_its_count() {
    let mut account = account();
    for _ in 0..5 {
        let sent = account.request_size(parts(10));
        account.record_usage(
            &model("m"),
            &sent,
            &usage(20_000, 0, 0),
            StopReason::Stop,
            CachedTokens::Counted,
        );
    }
    account.use_model(model("n"), 8_000);
    assert_eq!(account.window_tokens(), 8_000);
    let size = account.count(&account.request_size(parts(10)));
    assert_eq!((size, account.upper_bound(size)), (TokenCount::estimated(10_000), 12_000));
    account.use_model(model("m"), 100_000);
    assert_eq!(account.count(&account.request_size(parts(10))).counted_tokens, 20_000);
    assert_eq!(account.upper_bound(TokenCount::estimated(1_000)), 2_000);
}

#[test]
fn counts_that_say_nothing_change_nothing() {
    let mut account = account();
    let sent = account.request_size(parts(10));
    let ask = |account: &mut TokenAccounting, reported: TokenUsage, stop| {
        account.record_usage(&model("m"), &sent, &reported, stop, CachedTokens::Counted)
    };
    assert_eq!(ask(&mut account, usage(9_000, 0, 0), StopReason::Aborted), CountTrust::Ignored);
    assert_eq!(ask(&mut account, usage(9_000, 0, 0), StopReason::Error), CountTrust::Ignored);
    assert_eq!(ask(&mut account, usage(0, 0, 0), StopReason::Stop), CountTrust::Ignored);
    // A server that cut the prompt to its real window.
    assert_eq!(ask(&mut account, usage(2_048, 0, 0), StopReason::Stop), CountTrust::Doubtful);
    assert_eq!(account.count(&sent), TokenCount::estimated(10_000));
    assert_eq!(account.limit_factor(), 1.2);
}

#[test]
fn a_count_that_may_lack_cached_tokens_teaches_no_small_factor() {
    let mut account = account();
    let record = |account: &mut TokenAccounting, count: u64, tokens: u64| {
        let sent = account.request_size(parts(count));
        account.record_usage(
            &model("m"),
            &sent,
            &usage(tokens, 0, 0),
            StopReason::Stop,
            CachedTokens::Unknown,
        )
    };
    for (count, tokens) in [(4, 4_000), (6, 2_000), (8, 2_000), (10, 2_000), (12, 2_000)] {
        record(&mut account, count, tokens);
    }
    assert_eq!((account.usual_factor(), account.limit_factor()), (1.0, 1.2));
    // The first count is of the whole prompt; the others are less than it.
    let size = account.count(&account.request_size(parts(12)));
    assert_eq!(size, counted_and(4_000, 8_000));
    assert_eq!(record(&mut account, 14, 9_000), CountTrust::Anchored);
    assert_eq!(record(&mut account, 16, 7_900), CountTrust::Doubtful);
    // That it has at least so many is certain.
    for _ in 0..9 {
        record(&mut account, 16, 24_000);
    }
    assert_eq!(account.usual_factor(), 1.5);
}

#[test]
fn limits_follow_the_upper_quantile_and_targets_the_median() {
    let mut account = account();
    for tenths in [10, 10, 10, 10, 10, 11, 11, 12, 15, 30] {
        let sent = account.request_size(parts(10));
        account.record_usage(
            &model("m"),
            &sent,
            &usage(tenths * 1_000, 0, 0),
            StopReason::Stop,
            CachedTokens::Counted,
        );
    }
    assert_eq!((account.usual_factor(), account.limit_factor()), (1.0, 1.5));
}

#[test]
fn old_counts_are_forgotten_small_requests_and_wild_counts_teach_little() {
    let mut account = account();
    let record = |account: &mut TokenAccounting, count: u64, counted: u64| {
        let sent = account.request_size((0..count).map(|number| part(number, 100)));
        account.record_count(&model("m"), &sent, counted)
    };
    assert_eq!(
        record(&mut account, 4, 1_600),
        CountTrust::Anchored,
        "counted, and too small to learn"
    );
    assert_eq!(account.limit_factor(), 1.2);
    (0..40).for_each(|_| assert_eq!(record(&mut account, 10, 100_000), CountTrust::Anchored));
    assert_eq!(account.limit_factor(), 4.0, "cut to what is believed");
    (0..40).for_each(|_| assert_eq!(record(&mut account, 10, 900), CountTrust::Anchored));
    assert_eq!((account.usual_factor(), account.limit_factor()), (0.9, 0.9));
}

#[test]
fn settings_are_strict() {
    let parse = toml::from_str::<AccountingSettings>;
    assert_eq!(parse("").unwrap(), AccountingSettings::default());
    assert!(parse("quantile = 0.9").is_err());
}

/// What may happen to an account.
#[derive(Clone, Debug)]
enum Event {
    /// A turn that adds so many estimated tokens, counted by this factor in hundredths.
    Turn {
        tokens: u64,
        hundredths: u64,
        split: u64,
    },
    Compaction,
    OtherModel(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1_u64..50_000, 1_u64..800, 0_u64..100)
            .prop_map(|(tokens, hundredths, split)| Event::Turn { tokens, hundredths, split }),
        1 => Just(Event::Compaction),
        1 => (0_u8..3).prop_map(Event::OtherModel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_laws_of_sizes(events in proptest::collection::vec(event(), 1..40), ask in 0_u64..u64::MAX / 2) {
        let settings = AccountingSettings::default();
        let mut account = account();
        let mut sent: Vec<SizePart> = Vec::new();
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Event::Turn { tokens, hundredths, split } => {
                    sent.push(part(number as u64, tokens));
                    let prompt = account.request_size(sent.clone());
                    let size = account.count(&prompt);
                    prop_assert!(account.expected(size) <= account.upper_bound(size));
                    let counted = (prompt.estimate_tokens() * hundredths).div_ceil(100);
                    // However the provider splits it, each token counts once.
                    let cached = counted * split / 100;
                    let reported = usage(counted - cached, cached - cached / 2, cached / 2);
                    let current = account.model().clone();
                    let trust = account.record_usage(&current, &prompt, &reported, StopReason::ToolUse, CachedTokens::Counted);
                    let size = account.count(&prompt);
                    if trust == CountTrust::Anchored {
                        prop_assert_eq!(size, counted_and(counted, 0));
                        prop_assert_eq!(account.upper_bound(size), counted);
                    } else {
                        prop_assert_eq!(trust, CountTrust::Doubtful);
                    }
                }
                Event::Compaction => {
                    account.invalidate_anchors();
                    let estimate = TokenCount::of_parts(&sent).estimated_tokens;
                    prop_assert_eq!(account.count(&account.request_size(sent.clone())), TokenCount::estimated(estimate));
                    sent.truncate(1);
                }
                Event::OtherModel(id) => account.use_model(model(&id.to_string()), 1_000),
            }
            let (usual, limit) = (account.usual_factor(), account.limit_factor());
            prop_assert!(settings.min_factor <= usual && usual <= limit && limit <= settings.max_factor);
            for share in [0.0, 0.4, 1.0] {
                let fitting = account.fitting_estimated_tokens(ask, share);
                let size = TokenCount::estimated_with(fitting, share);
                prop_assert!(fitting == 0 || account.upper_bound(size) <= ask);
            }
        }
    }

    /// A provider that always counts alike is known after a few turns: upper and expected are exact but for rounding.
    #[test]
    fn a_steady_provider_is_learned(hundredths in 30_u64..390, turns in 3_usize..40) {
        let mut account = account();
        for turn in 0..turns {
            let prompt = account.request_size((0..=turn as u64).map(|number| part(number, 10_000)));
            let counted = prompt.estimate_tokens() * hundredths / 100;
            account.record_count(&model("m"), &prompt, counted);
        }
        let size = TokenCount::estimated(1_000);
        for found in [account.upper_bound(size), account.expected(size)] {
            prop_assert!(found.abs_diff(hundredths * 10) <= 1, "{} for {}", found, hundredths);
        }
    }
}

#[test]
fn a_restart_restores_the_factors_of_each_model() {
    let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
    let mut account = account();
    let mut stored = 0;
    let mut answer = |account: &mut TokenAccounting, id: &str, counted: u64| {
        let sent = account.request_size(parts(10));
        account.record_usage(
            &model(id),
            &sent,
            &usage(counted, 0, 0),
            StopReason::Stop,
            CachedTokens::Counted,
        );
        if let Some(record) = account.unstored_record(&model(id)) {
            session.append_at(record, 0).unwrap();
            account.mark_stored(&model(id));
            stored += 1;
        }
    };
    for _ in 0..40 {
        answer(&mut account, "m", 8_000);
        answer(&mut account, "other", 30_000);
    }
    answer(&mut account, "m", 8_100);
    assert_eq!(stored, 2, "what hardly changes is not stored again");
    let mut again = TokenAccounting::new(AccountingSettings::default(), model("m"), 100_000);
    again.restore(&session);
    assert_eq!((again.limit_factor(), again.usual_factor()), (0.8, 0.8));
    assert!(again.unstored_record(&model("m")).is_none());
    again.use_model(model("other"), 100_000);
    assert_eq!(again.limit_factor(), 3.0);
    again.use_model(model("unknown"), 100_000);
    assert_eq!(again.limit_factor(), 1.2);
    again.mark_unstored();
    assert!(again.unstored_record(&model("m")).is_some(), "another session has no record of it");
}

#[test]
fn a_stated_window_is_known_after_a_restart_until_another_one_is_configured() {
    let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
    let mut account = account();
    let window = |is_stated| LearnedWindow { tokens: 20_000, is_stated, known_tokens: 200_000 };
    account.learn_window(&model("m"), window(false));
    assert!(account.unstored_record(&model("m")).is_none(), "an estimate is not stored");
    account.learn_window(&model("m"), window(true));
    session.append_at(account.unstored_record(&model("m")).unwrap(), 0).unwrap();
    account.mark_stored(&model("m"));
    assert!(account.unstored_record(&model("m")).is_none());
    let mut again = super::tests::account();
    again.restore(&session);
    assert_eq!(again.learned_window(&model("m"), 200_000), Some(window(true)));
    for known_tokens in [32_768, 200_001] {
        assert_eq!(again.learned_window(&model("m"), known_tokens), None);
    }
    assert_eq!(again.learned_window(&model("other"), 200_000), None);
    assert!(again.unstored_record(&model("m")).is_none(), "it is stored already");
}

#[test]
fn records_with_other_content_are_left_out() {
    let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
    for data in [
        serde_json::json!(null),
        serde_json::json!({ "provider": "p", "model": "m", "factors": ["x", 1e300, -4, null, 0.8] }),
        serde_json::json!({ "provider": "p", "model": "m", "window": { "tokens": 0, "knownTokens": "x" } }),
        serde_json::json!({ "provider": 7, "model": "m", "factors": [0.8, 0.8, 0.8] }),
    ] {
        session.append_at(RecordBody::custom("ctxhost.tokens", &data), 0).unwrap();
    }
    let mut account = account();
    account.restore(&session);
    assert!((0.25..=4.0).contains(&account.limit_factor()), "{}", account.limit_factor());
}

/// Records counts of requests with so many estimated tokens of text, and of images and files.
fn record_counts(account: &mut TokenAccounting, counts: &[(u64, u64, u64)], cached: CachedTokens) {
    for (number, (text, attachments, counted)) in counts.iter().enumerate() {
        let whole = part(number as u64, text + attachments).with_attachments(*attachments);
        let sent = account.request_size([whole]);
        account.record_usage(&model("m"), &sent, &usage(*counted, 0, 0), StopReason::Stop, cached);
    }
}

#[test]
fn what_a_provider_adds_to_each_request_is_not_taken_for_a_factor() {
    let mut account = account();
    // Cached content of 20,000 tokens, and a tokenizer that agrees with the estimate.
    let counts: Vec<_> = (1..9).map(|turn| (turn * 2_000, 0, 20_000 + turn * 2_000)).collect();
    record_counts(&mut account, &counts, CachedTokens::Counted);
    assert_eq!((account.usual_factor(), account.limit_factor()), (1.0, 1.0));
    assert_eq!(account.upper_bound(TokenCount::estimated(50_000)), 70_000);
    assert_eq!(account.fitting_estimated_tokens(100_000, 0.0), 80_000);
    // A counted part has it already.
    assert_eq!(account.upper_bound(counted_and(36_000, 1_000)), 37_000);
}

#[test]
fn a_tokenizer_that_counts_more_is_not_taken_for_a_constant_part() {
    let mut account = account();
    let counts: Vec<_> = (1..9).map(|turn| (turn * 2_000, 0, turn * 3_000)).collect();
    record_counts(&mut account, &counts, CachedTokens::Counted);
    assert_eq!(account.upper_bound(TokenCount::estimated(50_000)), 75_000);
}

#[test]
fn a_server_that_cuts_its_prompts_has_no_constant_part() {
    let mut account = account();
    let counts: Vec<_> = (1..16).map(|turn| (turn * 1_000, 0, (turn * 1_000).min(6_000))).collect();
    record_counts(&mut account, &counts, CachedTokens::Counted);
    assert_eq!(account.rates().0.hidden_tokens, 0);
}

#[test]
fn the_first_count_shows_what_images_cost() {
    for cached in [CachedTokens::NotYet, CachedTokens::Counted] {
        let mut account = account();
        assert!(!account.knows_attachments());
        // Eighty images of 85 tokens with one sentence.
        record_counts(&mut account, &[(1_000, 160_000, 7_800)], cached);
        assert!(account.knows_attachments());
        let size = TokenCount { attachment_tokens: 160_000, ..TokenCount::estimated(161_000) };
        assert!((6_500..9_500).contains(&account.upper_bound(size)), "{cached:?}");
        // Text costs what it did.
        assert_eq!(account.limit_factor(), 1.2);
        assert!(account.fitting_estimated_tokens(100_000, 160.0 / 161.0) > 1_000_000);
    }
}

#[test]
fn a_count_that_may_lack_cached_images_teaches_nothing_about_them() {
    let mut account = account();
    record_counts(&mut account, &[(1_000, 160_000, 7_800)], CachedTokens::Unknown);
    assert!(!account.knows_attachments());
}

#[test]
fn few_images_are_part_of_the_factor_of_the_text() {
    let mut account = account();
    record_counts(&mut account, &[(20_000, 2_000, 22_000); 5], CachedTokens::Counted);
    assert_eq!(account.limit_factor(), 1.0);
    assert!(!account.knows_attachments());
}

#[test]
fn a_session_of_an_older_version_keeps_its_factors() {
    let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
    let data = serde_json::json!({ "provider": "p", "model": "m", "factors": [0.8, 0.8, 0.8] });
    session.append_at(RecordBody::custom("ctxhost.tokens", &data), 0).unwrap();
    let mut account = account();
    account.restore(&session);
    assert_eq!((account.usual_factor(), account.limit_factor()), (0.8, 0.8));
}

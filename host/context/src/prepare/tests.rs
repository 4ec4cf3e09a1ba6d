//! Requests of engines that use their budget up.

use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use std::sync::Arc;

use super::*;
use crate::settings::ContextSettings;
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::{EngineEnvironment, EngineSpec, EngineTimeouts, HostClock, OnEngineError};
use ctxhost_invariants::PinnedEntries;
use ctxhost_session::{RecordBody, Session, SessionHeader};

/// Takes every frame that fits, newest first, to the last token of its budget, by the sizes that entries
/// state. What must stay it takes first; it never needs a compaction.
struct Packer;

impl ContextEngine for Packer {
    const INFO: Info = Info::new("packer", "Packer", "1.0.0");

    fn create(_: ctxhost_engine_api::Host, _: Value) -> Result<Self> {
        Ok(Packer)
    }

    async fn assemble(&self, view: Transcript, request: AssembleRequest) -> Result<Plan> {
        // The invariants reinsert the pinned entries; an empty plan shows which these are.
        let invariant_settings = InvariantSettings::default();
        let nothing =
            invariants::enforce(&view, Plan::default(), request.budget, &invariant_settings);
        let must_stay = nothing.map_err(|it| EngineError::failed(it.to_string()))?.plan;
        let mut kept: Vec<bool> = vec![false; view.len()];
        for range in must_stay.ops.iter().map(|op| op.action.range()) {
            range.for_each(|seq| kept[seq as usize] = true);
        }
        let size = |seq: u64| view.get(seq).map_or(0, |entry| entry.tokens());
        let stays: u64 = (0..view.len() as u64).filter(|seq| kept[*seq as usize]).map(size).sum();
        let mut left = request.budget.saturating_sub(stays);
        let mut end = view.len() as u64;
        while let Some(last) = end.checked_sub(1) {
            let frame = view.cut_at_or_before(last)..end;
            end = frame.start;
            let tokens = view.tokens(frame.clone());
            if !kept[frame.start as usize] && tokens <= left {
                left -= tokens;
                frame.for_each(|seq| kept[seq as usize] = true);
            }
        }
        let mut plan = Plan::default();
        for seq in (0..view.len() as u64).filter(|seq| kept[*seq as usize]) {
            plan.keep(seq..seq + 1);
        }
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

#[tokio::test]
async fn an_engine_that_packs_to_the_last_token_is_never_replaced() {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let packer = [EngineSpec::linked::<Packer>(json!({}))];
    let stack =
        ActiveEngine::open(&packer, &legacy, OnEngineError::Fallback, &environment).unwrap();
    let settings = ContextSettings::from_config(&ctxhost_config::Config::default());
    let (invariant_settings, settings, engine) =
        (settings.invariants.clone(), Arc::new(settings), Arc::new(stack));
    let mut unanswered = 0;
    for _ in 0..200 {
        let generated = transcripts().new_tree(&mut runner).unwrap().current();
        let session = Session::in_memory(SessionHeader::new(None, "/", 1));
        let mut context = Context::new(session, engine.clone(), settings.clone());
        for entry in &generated.entries {
            if let Ok(body) = RecordBody::message(&entry.raw) {
                context.append([body]).unwrap();
            }
        }
        let view = context.view();
        let anchors = PinnedEntries::from_transcript(&view);
        unanswered += usize::from(anchors.added_tokens() > 0);
        let least =
            invariants::enforce(&view, Plan::default(), 0, &invariant_settings).unwrap().tokens;
        let total = view.total_tokens() + anchors.added_tokens();
        for share in [0, 3, 6, 9] {
            // What must stay and what the host may add have to fit, or no engine could help.
            let smallest = least + anchors.added_tokens();
            let budget_tokens = smallest + total.saturating_sub(smallest) * share / 10;
            let budget = Some(Budget { tokens: budget_tokens, ..Budget::default() });
            let target = Target { budget, ..Target::default() };
            let prompt = context.prepare(&target).await.unwrap();
            assert_eq!((prompt.engine.as_str(), &prompt.fallback), ("packer", &None));
            assert!(prompt.checked.tokens <= budget_tokens);
            // The host may have shortened a request that takes most of the budget.
            assert!(prompt.compactions.iter().all(|outcome| outcome.engine == "host"));
        }
    }
    assert!(unanswered > 20, "only {unanswered} of the transcripts had unanswered calls");
}

/// A context of the bundled engine with a question, its answer, and a newest message of this size.
fn with_newest_message(tokens: u64) -> Context {
    let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let engine = ActiveEngine::open(&[], &legacy, OnEngineError::Fallback, &environment).unwrap();
    let settings = ContextSettings::from_config(&ctxhost_config::Config::default());
    let session = Session::in_memory(SessionHeader::new(None, "/", 1));
    let mut context = Context::new(session, Arc::new(engine), Arc::new(settings));
    let newest = "word ".repeat(tokens as usize * 4 / 5);
    for (role, text) in [("user", "a question"), ("assistant", "an answer"), ("user", &newest)] {
        let raw = json!({"role": role, "content": [{"type": "text", "text": text}]});
        context.append([RecordBody::message(&raw.to_string()).unwrap()]).unwrap();
    }
    context
}

#[tokio::test]
async fn the_newest_message_is_cut_only_after_a_provider_has_counted() {
    let target = Target {
        window_tokens: 20_000,
        reserve_tokens: Some(1_500),
        is_reserve_usable: true,
        ..Target::default()
    };
    let mut context = with_newest_message(17_500);
    let view = context.view();
    let newest = view.last().unwrap();
    let prompt = context.prepare(&target).await.unwrap();
    // Above the budget by the upper estimate, below the window by the expected size.
    assert!(context.budget(&target).without_reserve().tokens < newest.tokens());
    assert!(matches!(prompt.checked.items(&view).last(), Some(PlanItem::Kept(_))), "{prompt:?}");
    assert!(prompt.checked.tokens <= 20_000);

    // A refusal has bounded the conversation.
    let refused = Target { max_tokens: Some(12_000), ..target.clone() };
    let prompt = context.prepare(&refused).await.unwrap();
    assert!(!matches!(prompt.checked.items(&view).last(), Some(PlanItem::Kept(_))), "{prompt:?}");
    assert!(prompt.checked.tokens <= 12_000);

    // More than the window: no provider could accept it.
    let mut context = with_newest_message(30_000);
    let view = context.view();
    let prompt = context.prepare(&target).await.unwrap();
    assert!(!matches!(prompt.checked.items(&view).last(), Some(PlanItem::Kept(_))));
    assert!(prompt.checked.tokens <= context.budget(&target).tokens);
}

/// Keeps everything and finds nothing to compact.
struct Keeper;

impl ContextEngine for Keeper {
    const INFO: Info = Info::new("keeper", "Keeper", "1.0.0");

    fn create(_: ctxhost_engine_api::Host, _: Value) -> Result<Self> {
        Ok(Keeper)
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Nothing { reason: "all of it matters".into() })
    }
}

#[tokio::test]
async fn attempts_of_one_request_open_no_breaker() {
    let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let keeper = [EngineSpec::linked::<Keeper>(json!({}))];
    let engine =
        ActiveEngine::open(&keeper, &legacy, OnEngineError::Fallback, &environment).unwrap();
    let settings = Arc::new(ContextSettings::from_config(&ctxhost_config::Config::default()));
    let session = Session::in_memory(SessionHeader::new(None, "/", 1));
    let mut context = Context::new(session, Arc::new(engine), settings);
    for (role, text) in [("user", "Mend it."), ("assistant", "Reading."), ("user", "Go on.")] {
        let message = json!({ "role": role, "content": text.repeat(100) }).to_string();
        context.append([RecordBody::message(&message).unwrap()]).unwrap();
    }
    let budget = Some(Budget { tokens: context.view().total_tokens() - 1, ..Budget::default() });
    let target = Target { budget, ..Target::default() };
    for request in 1..=4 {
        let prompt = context.prepare(&target).await.unwrap();
        let tried = |outcome: &&CompactionOutcome| {
            matches!(outcome.verdict, CompactionVerdict::Rejected { .. })
        };
        let attempts = prompt.compactions.iter().filter(tried).count();
        // The default breaker opens after three failures in a row.
        assert_eq!(attempts, if request <= 3 { 3 } else { 0 }, "request {request}");
    }
}

/// A bundled engine that answers no request.
struct Broken;

impl ContextEngine for Broken {
    const INFO: Info = Info::new("broken", "Broken", "1.0.0");

    fn create(_: ctxhost_engine_api::Host, _: Value) -> Result<Self> {
        Ok(Broken)
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        let mut plan = Plan::default();
        // Refused: providers accept no empty text.
        plan.keep(0..view.len() as u64).insert(Role::User, "", 0..0);
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Err(EngineError::failed("cannot compact"))
    }
}

#[tokio::test]
async fn a_failure_of_the_bundled_engine_does_not_end_the_session() {
    let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    let broken = EngineSpec::linked::<Broken>(json!({}));
    let open = |on_error| ActiveEngine::open(&[], &broken, on_error, &environment).unwrap();
    let settings = ContextSettings::from_config(&ctxhost_config::Config::default());
    let settings = Arc::new(settings);
    for (on_error, budget_tokens, kept) in [
        (OnEngineError::Fallback, 20_000, Some(41)),
        (OnEngineError::Fallback, 2_000, Some(0)),
        (OnEngineError::Fail, 20_000, None),
    ] {
        let session = Session::in_memory(SessionHeader::new(None, "/", 1));
        let mut context = Context::new(session, Arc::new(open(on_error)), settings.clone());
        for number in 0..41 {
            let role = if number % 2 == 0 { "user" } else { "assistant" };
            let raw = json!({"role": role, "content": format!("{number} {}", "word ".repeat(200))});
            context.append([RecordBody::message(&raw.to_string()).unwrap()]).unwrap();
        }
        let budget = Some(Budget { tokens: budget_tokens, ..Budget::default() });
        let prompt = context.prepare(&Target { budget, ..Target::default() }).await;
        let Some(kept) = kept else {
            assert!(matches!(prompt, Err(ContextError::Slot(_))), "{on_error:?}");
            continue;
        };
        let prompt = prompt.unwrap();
        assert!(prompt.checked.tokens <= budget_tokens, "{}", prompt.checked.tokens);
        assert!(prompt.checked.items(&prompt.view).len() >= kept);
        assert_eq!(prompt.engine, EMERGENCY_TRIM);
        let why = prompt.fallback.unwrap();
        assert!(why.contains("broken") && why.contains("empty text"), "{why}");
    }
}

/// Keeps everything, and puts text before the system prompt.
struct Adder {
    addition: String,
}

impl ContextEngine for Adder {
    const INFO: Info = Info::new("adder", "Adder", "1.0.0");

    fn create(_: ctxhost_engine_api::Host, config: Value) -> Result<Self> {
        let words = config["words"].as_u64().unwrap_or_default();
        Ok(Adder { addition: "word ".repeat(words as usize) })
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        let mut plan = Plan::keep_all(view.len());
        plan.extras.system_prompt_addition = Some(self.addition.clone());
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

#[tokio::test]
async fn text_before_the_system_prompt_is_counted_and_limited() {
    let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let settings = Arc::new(ContextSettings::from_config(&ctxhost_config::Config::default()));
    for (words, is_refused) in [(80, false), (10_000, true)] {
        let adder = [EngineSpec::linked::<Adder>(json!({ "words": words }))];
        let engine =
            ActiveEngine::open(&adder, &legacy, OnEngineError::Fallback, &environment).unwrap();
        let session = Session::in_memory(SessionHeader::new(None, "/", 1));
        let mut context = Context::new(session, Arc::new(engine), settings.clone());
        let message = json!({ "role": "user", "content": "Mend it." }).to_string();
        context.append([RecordBody::message(&message).unwrap()]).unwrap();
        let budget = Some(Budget { tokens: 20_000, ..Budget::default() });
        let target = Target { window_tokens: 32_000, budget, ..Target::default() };
        let prompt = context.prepare(&target).await.unwrap();
        if is_refused {
            assert_eq!(prompt.system_addition(), None);
            assert!(prompt.fallback.unwrap().contains("12,500 tokens"), "{:?}", prompt.engine);
            continue;
        }
        assert_eq!(
            (prompt.system_addition().unwrap().len(), prompt.system_addition_tokens()),
            (400, 100)
        );
        assert_eq!(prompt.checked.tokens, prompt.view.total_tokens() + 100);
        assert_eq!(prompt.notes, [PlanNote::new("system prompt", "100 tokens before it")]);
    }
}

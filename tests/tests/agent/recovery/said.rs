//! Refusals in wordings that no scripted dialect has.

use std::time::Instant;

use ctxhost_agent::TurnError;
use ctxhost_agent::event::EventKind;
use ctxhost_dialects::FailureReason;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Fault, Model, ScriptedServer, Seen};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::ConfigText;

use super::talker;

const WINDOW_TOKENS: u64 = 64_000;

const DEEPSEEK_OUTPUT: &str = r#"{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 4096]","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#;

const LITELLM: &str = r#"{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - This model's maximum context length is 64000 tokens. However, your messages resulted in 70107 tokens. Please reduce the length of the messages.. Received Model Group=m\nAvailable Model Group Fallbacks=None","type":null,"param":null,"code":"400"}}"#;

#[tokio::test]
async fn an_overflow_without_numbers_keeps_what_there_is_room_for() {
    let (mut stage, server, before) = reported(8, 400, NO_NUMBERS).await;
    stage.say("And the end?").await.unwrap();
    assert_eq!(stage.recoveries(), [FailureReason::ContextOverflow]);
    let sizes: Vec<u64> = since(&server, before).iter().map(|seen| seen.prompt_tokens).collect();
    let [first, second] = sizes[..] else { panic!("{sizes:?}") };
    // The floor of `invariants.room_floor_share`.
    assert!(second < first && second * 10 >= first * 3, "{sizes:?}");
}

const NO_NUMBERS: &str = r#"{"error":{"message":"The input is too long.","type":"invalid_request_error","code":"context_length_exceeded"}}"#;

const GROQ_CEILING: &str = r#"{"error":{"message":"Request too large for model `m` in organization `org_01` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 17210, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing","type":"tokens","code":"rate_limit_exceeded"}}"#;

const VLLM_OUTPUT: &str = r#"{"object":"error","message":"'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 64000 tokens and your request has 59000 input tokens (8192 > 64000 - 59000).","type":"BadRequestError","param":null,"code":400}"#;

const TGI_SUM: &str = r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 64000. Given: 63500 `inputs` tokens and 8192 `max_new_tokens`","error_type":"validation"}"#;

const TGI_INPUT: &str = r#"{"error":"Input validation error: `inputs` must have less than 60000 tokens. Given: 63500","error_type":"validation"}"#;

const BARE: &str =
    r#"{"error":{"message":"Your prompt is too long.","type":"invalid_request_error"}}"#;

/// A conversation of `turns` turns, and then one whose first request is answered with this.
async fn reported(turns: usize, status: u16, body: &'static str) -> (Stage, ScriptedServer, usize) {
    reported_within(WINDOW_TOKENS, turns, status, body).await
}

/// The same with another window in the config; 0 for none.
async fn reported_within(
    window_tokens: u64,
    turns: usize,
    status: u16,
    body: &'static str,
) -> (Stage, ScriptedServer, usize) {
    let model = Model { max_output_tokens: 16_000, ..Model::new(WINDOW_TOKENS) };
    let server = talker(Wire::OpenAiChat, model);
    let config = ConfigText::new().agent("max_output_tokens = 8192");
    let config = config.provider("fake", Wire::OpenAiChat, &server.url(), window_tokens);
    let place = config.workplace();
    let mut stage = Stage::open(&place).await;
    for n in 0..turns {
        stage.say(&format!("Tell me more, {n}")).await.unwrap();
    }
    let before = server.requests().len();
    server.fail_next(Fault::Says { status, body });
    // The workplace is to outlive the stage.
    std::mem::forget(place);
    (stage, server, before)
}

fn since(server: &ScriptedServer, before: usize) -> Vec<Seen> {
    assert_eq!(server.broken(), []);
    server.requests().split_off(before)
}

fn said(stage: &mut Stage) -> Vec<String> {
    let said = stage.last_turn().iter().filter_map(|what| match what {
        EventKind::Recovering { provider_message: said, .. } => Some(said.clone()),
        _ => None,
    });
    said.collect()
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_asked_for_as_long_as_it_may_be() {
    let (mut stage, server, before) = reported(4, 400, DEEPSEEK_OUTPUT).await;
    stage.say("And the end?").await.unwrap();
    assert_eq!(stage.recoveries(), [FailureReason::OutputLimit]);
    assert!(said(&mut stage)[0].contains("valid range of max_tokens is [1, 4096]"));
    let requests = since(&server, before);
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].output_tokens, 4_096);
    assert_eq!(requests[1].prompt_tokens, requests[0].prompt_tokens);
    assert!(stage.compactions().is_empty());
}

#[tokio::test]
async fn what_fits_beside_the_prompt_is_asked_for_and_nothing_is_left_out() {
    let (mut stage, server, before) = reported(4, 400, VLLM_OUTPUT).await;
    stage.say("And the end?").await.unwrap();
    assert_eq!(stage.recoveries(), [FailureReason::ContextOverflow]);
    let requests = since(&server, before);
    assert_eq!(requests.len(), 2);
    assert!((2_048..5_000).contains(&requests[1].output_tokens), "{}", requests[1].output_tokens);
}

#[tokio::test]
async fn overflows_in_other_words_are_made_smaller() {
    for (status, body) in [(400, LITELLM), (422, TGI_SUM), (422, TGI_INPUT)] {
        let (mut stage, server, before) = reported(8, status, body).await;
        stage.say("And the end?").await.unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(stage.recoveries(), [FailureReason::ContextOverflow], "{body}");
        let requests = since(&server, before);
        assert_eq!(requests.len(), 2, "{body}");
        assert!(requests[1].prompt_tokens < requests[0].prompt_tokens, "{body}");
    }
}

#[tokio::test]
async fn a_ceiling_of_a_minute_is_fitted_into_and_not_waited_for() {
    let (mut stage, server, before) = reported(8, 413, GROQ_CEILING).await;
    let began = Instant::now();
    stage.say("And the end?").await.unwrap();
    assert!(began.elapsed().as_secs() < 20);
    assert_eq!(stage.recoveries(), [FailureReason::ContextOverflow]);
    let requests = since(&server, before);
    assert_eq!(requests.len(), 2);
    let all = requests[1].prompt_tokens + requests[1].output_tokens;
    assert!(all <= 12_000, "{all}");
    // It is no window: the next turn may have more.
    stage.say("Once more?").await.unwrap();
    let last = since(&server, before).pop().unwrap();
    assert_eq!(last.output_tokens, requests[0].output_tokens);
}

#[tokio::test]
async fn a_small_request_is_not_folded_for_a_sentence_without_numbers() {
    let (mut stage, server, before) = reported(2, 400, BARE).await;
    let error = stage.say("And the end?").await.unwrap_err();
    assert!(matches!(error, TurnError::Provider(_) | TurnError::Models(_)), "{error:?}");
    assert!(error.to_string().contains("Your prompt is too long."), "{error}");
    assert_eq!(since(&server, before).len(), 1);
    assert!(stage.compactions().is_empty());
    stage.say("Are you back?").await.unwrap();
}

#[tokio::test]
async fn a_sentence_without_numbers_is_believed_where_no_window_is_known() {
    let (mut stage, server, before) = reported_within(0, 10, 400, BARE).await;
    stage.say("And the end?").await.unwrap();
    assert_eq!(stage.recoveries(), [FailureReason::ContextOverflow]);
    let requests = since(&server, before);
    assert_eq!(requests.len(), 2);
    assert!(requests[1].prompt_tokens < requests[0].prompt_tokens);
    // Far below what local servers load a model with, it has another cause.
    let (mut stage, server, before) = reported_within(0, 2, 400, BARE).await;
    stage.say("And the end?").await.unwrap_err();
    assert_eq!(since(&server, before).len(), 1);
}

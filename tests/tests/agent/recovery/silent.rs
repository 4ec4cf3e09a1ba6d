//! Silent truncation by Ollama is detected, reported and corrected.

use ctxhost_agent::event::EventKind;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, OverflowForm};
use ctxhost_tests::stage::Stage;

use super::{talker, workplace};

/// What the server really holds; the config says 32,000.
const TRUE_WINDOW_TOKENS: u64 = 16_384;

#[tokio::test]
async fn a_silent_truncation_is_named_and_later_requests_fit() {
    let server = talker(Wire::Ollama, Model::new(TRUE_WINDOW_TOKENS));
    let place = workplace(Wire::Ollama, &server, "");
    let mut stage = Stage::open(&place).await;
    let mut reported = None;
    for n in 0..20 {
        stage.say(&format!("Tell me more, {n}")).await.unwrap();
        let message = stage.last_turn().iter().find_map(|what| match what {
            EventKind::SilentTruncation { message } => Some(message.clone()),
            _ => None,
        });
        if let Some(message) = message.filter(|_| reported.is_none()) {
            assert!(message.contains("num_ctx"), "{message}");
            reported = Some((server.requests().len(), message));
        }
    }
    let (since, message) = reported.expect("the truncation was never noticed");
    let requests = server.requests();
    let cut = |seen: &&ctxhost_tests::scripted::Seen| {
        seen.answered == Answered::Overflow(OverflowForm::Silent)
    };
    let sizes: Vec<(u64, u64)> =
        requests.iter().map(|seen| (seen.prompt_tokens, seen.output_tokens)).collect();
    assert!(requests[..since].iter().filter(cut).count() <= 2, "noticed late: {message} {sizes:?}");
    assert_eq!(requests[since..].iter().filter(cut).count(), 0, "{message} {sizes:?}");
    assert!(requests.len() > since + 5);
    assert_eq!(server.broken(), []);
}

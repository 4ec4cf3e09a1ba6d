//! One request to the summariser, with retries and typed failures.

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Completion, CompletionRequest, EngineError, ErrorKind, Result};
use ctxhost_engine_kit::summariser::WrittenSummary;
pub(super) use ctxhost_engine_kit::summariser::is_final;
use ctxhost_text::hash;

use super::inputs::LegacyCompaction;
use crate::settings::CompactionSettings;

/// Inputs below this size may get longer summaries, in weighted characters.
// Five headings alone are longer than a few short messages.
const SHORT_INPUT_CHARS: u64 = 2_000;

/// A model's summary.
#[derive(Clone, Debug)]
pub(super) struct ModelSummary {
    pub(super) text: String,
    pub(super) model: String,
    pub(super) notes: Vec<String>,
}

impl ModelSummary {
    fn from_completion(answer: Completion, input_chars: u64) -> Result<ModelSummary> {
        let WrittenSummary { text, writer, notes } = WrittenSummary::from_completion(&answer)?;
        // A model that continues the conversation instead of summarising it answers at length.
        if weighted_chars(&text) > input_chars.max(SHORT_INPUT_CHARS) {
            return Err(EngineError::failed("the summary is longer than its input"));
        }
        Ok(ModelSummary { text, model: writer, notes })
    }

    pub(super) fn with_notes(mut self, notes: Vec<String>) -> ModelSummary {
        self.notes.extend(notes);
        self
    }
}

/// Whether a retry can help. A timeout is not retried: the model would be too slow again.
fn may_pass(error: &EngineError) -> bool {
    matches!(
        error.kind,
        ErrorKind::ModelEmpty
            | ErrorKind::ModelRateLimited
            | ErrorKind::ModelFailed
            | ErrorKind::ModelToolCall
    )
}

/// Sends the request, with retries after temporary failures. `name` seeds the jitter, so that the
/// pauses of parts differ but are the same in every run.
pub(super) async fn request_with_retries(
    inputs: &LegacyCompaction<'_>,
    request: CompletionRequest,
    name: &str,
) -> Result<ModelSummary> {
    let LegacyCompaction { host, settings, request: call, .. } = inputs;
    let settings = &settings.compaction;
    let input_chars = weighted_chars(&request.prompt);
    let tries = settings.request_tries.max(1);
    let mut done = 0;
    loop {
        let answer = host.complete(call.call, request.clone()).await;
        done += 1;
        match answer.and_then(|answer| ModelSummary::from_completion(answer, input_chars)) {
            Ok(summary) => return Ok(summary),
            Err(error) if done == tries || !may_pass(&error) => return Err(error),
            // Checked before the pause, which a cancelled caller would wait for.
            Err(_) if host.is_cancelled(call.call) => {
                return Err(EngineError::new(ErrorKind::Cancelled, "the compaction was cancelled"));
            }
            Err(_) => host.sleep(pause_ms(settings, done, name)).await,
        }
    }
}

/// The pause after attempt `done`: doubled each time, plus jitter.
fn pause_ms(settings: &CompactionSettings, done: u32, name: &str) -> u64 {
    let doublings = done.saturating_sub(1).min(32);
    let pause = settings.backoff_ms.saturating_mul(1 << doublings).min(settings.backoff_limit_ms);
    // Seeded by the name, so that a replay pauses as long as the session did.
    let jitter = settings.backoff_jitter * hash::hash_fraction(&format!("{name}/{done}"));
    (pause as f64 * (1.0 + jitter)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_with_a_steady_jitter() {
        let settings = CompactionSettings::default();
        let pauses: Vec<u64> = (1..=6).map(|done| pause_ms(&settings, done, "entry")).collect();
        for (pause, base) in pauses.iter().zip([500, 1_000, 2_000, 4_000, 5_000, 5_000]) {
            assert!((base..base + base / 5 + 1).contains(pause), "{pause} of {base}");
        }
        let again: Vec<u64> = (1..=6).map(|done| pause_ms(&settings, done, "entry")).collect();
        assert_eq!(pauses, again);
        assert_ne!(pause_ms(&settings, 1, "another"), pauses[0]);
    }

    #[test]
    fn each_failure_is_typed() {
        let answer = |text: &str| Completion { text: text.into(), ..Completion::default() };
        assert_eq!(
            ModelSummary::from_completion(answer(" \n"), 9_000).unwrap_err().kind,
            ErrorKind::ModelEmpty
        );
        assert!(ModelSummary::from_completion(answer(&"x".repeat(2_001)), 10).is_err());
        assert_eq!(ModelSummary::from_completion(answer("x"), 10).unwrap().model, "model");
        for (kind, passes) in [
            (ErrorKind::ModelTimeout, false),
            (ErrorKind::ModelLength, false),
            (ErrorKind::ModelAuth, false),
            (ErrorKind::ModelRateLimited, true),
            (ErrorKind::ModelToolCall, true),
        ] {
            assert_eq!(may_pass(&EngineError::new(kind, "")), passes, "{kind:?}");
        }
    }
}

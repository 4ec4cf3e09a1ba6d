//! The summary of a middle, by a model or extractive.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{EngineError, ErrorKind, Result};
use ctxhost_engine_kit::summariser::{self, EXTRACTIVE, WrittenSummary};
use ctxhost_text::truncate::cap_with_marker;

use crate::compaction::HeadTailCompaction;
use crate::cut::MiddleCut;
use crate::notes::{self, HEADINGS};
use crate::prompt;

/// Size of the envelope, in weighted characters.
const ENVELOPE_CHARS: u64 = 240;

/// The extractive summary of a cut.
pub(crate) fn extractive_summary(
    inputs: &HeadTailCompaction<'_>,
    cut: &MiddleCut,
) -> WrittenSummary {
    let limit_chars = cut.section_chars(inputs.own_chars()).saturating_sub(ENVELOPE_CHARS);
    let text = notes::write_notes(inputs.transcript, &cut.middle, limit_chars);
    WrittenSummary::new(text, EXTRACTIVE)
}

/// A model's summary of a cut, of at most `room_tokens`.
pub(crate) async fn model_summary(
    inputs: &HeadTailCompaction<'_>,
    cut: &MiddleCut,
    room_tokens: u64,
) -> Result<WrittenSummary> {
    let request = prompt::summary_request(inputs, &cut.middle, cut.summary_tokens);
    let mut summary =
        summariser::request_summary(inputs.host, inputs.request.call, request).await?;
    check(&summary.text, cut.middle.tokens())?;
    let limit_chars = chars_of(room_tokens);
    // Files come from the ledger: models forget or invent them.
    let whole = notes::insert_files(&summary.text, inputs.transcript, &cut.middle, limit_chars);
    summary.text = cap_with_marker(&whole, limit_chars).into_owned();
    Ok(summary)
}

/// Refuses an answer that is not a summary.
fn check(text: &str, middle_tokens: u64) -> Result<()> {
    let refuse = |message: String| Err(EngineError::new(ErrorKind::ModelFailed, message));
    if let Some(heading) = HEADINGS.iter().find(|heading| !text.contains(**heading)) {
        return refuse(format!("the summary has no section {heading:?}"));
    }
    if tokens::estimate(text) >= middle_tokens {
        return refuse(format!(
            "the summary is longer than the {middle_tokens} tokens it replaces"
        ));
    }
    Ok(())
}

fn chars_of(tokens: u64) -> u64 {
    tokens.saturating_mul(tokens::CHARS_PER_TOKEN).saturating_sub(ENVELOPE_CHARS)
}

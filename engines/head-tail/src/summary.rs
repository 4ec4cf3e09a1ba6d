//! Who writes the summary: a model where there is one and it may be asked, else nobody but the
//! conversation itself.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Completion, EngineError, ErrorKind, LogLevel, Result, capability};
use ctxhost_engine_kit::redact::redact;
use ctxhost_engine_kit::summary::unwrap;
use ctxhost_engine_kit::text::cap;

use crate::compaction::Desk;
use crate::cut::Cut;
use crate::notes::{self, HEADINGS};
use crate::prompt;

/// Names a summary that was made without a model.
const EXTRACTIVE: &str = "extractive";
/// What the envelope around a summary takes, in weighted characters.
const ENVELOPE_CHARS: u64 = 240;

/// A summary and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// The text, without its envelope.
    pub(crate) text: String,
    /// `extractive`, or the name of the model.
    pub(crate) writer: String,
    /// What became of the model; `None` where none was asked.
    pub(crate) model: Option<Result<()>>,
}

/// Tells the middle of a cut. `room_tokens` is what a model's words may take at most.
pub(crate) async fn tell(
    desk: &Desk<'_>,
    cut: &Cut,
    room_tokens: u64,
    may_ask: bool,
) -> Result<Story> {
    let limit_chars = chars_of(cut.summary_tokens);
    let extractive = |model| Story {
        text: notes::write(desk.transcript, &cut.middle, limit_chars),
        writer: EXTRACTIVE.into(),
        model,
    };
    if !may_ask || !has_model(desk) {
        return Ok(extractive(None));
    }
    match ask(desk, cut, chars_of(room_tokens)).await {
        Ok((text, writer)) => Ok(Story { text, writer, model: Some(Ok(())) }),
        Err(error) if is_final(&error) => Err(error),
        Err(error) => {
            desk.host.log(LogLevel::Warn, &format!("the summary failed: {error}"));
            Ok(extractive(Some(Err(error))))
        }
    }
}

fn chars_of(tokens: u64) -> u64 {
    tokens.saturating_mul(tokens::CHARS_PER_TOKEN).saturating_sub(ENVELOPE_CHARS)
}

fn has_model(desk: &Desk<'_>) -> bool {
    let offers = |name: &String| name == capability::COMPLETE;
    desk.settings.use_model && desk.host.info().capabilities.iter().any(offers)
}

/// An error after which nothing else may be tried.
fn is_final(error: &EngineError) -> bool {
    matches!(error.kind, ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::Dead)
}

async fn ask(desk: &Desk<'_>, cut: &Cut, limit_chars: u64) -> Result<(String, String)> {
    let request = prompt::request(desk, &cut.middle, cut.summary_tokens);
    let answer = desk.host.complete(desk.request.call, request).await?;
    let text = checked(desk, &answer, &cut.middle)?;
    let whole = notes::with_files(&text, desk.transcript, &cut.middle, limit_chars);
    let writer = if answer.model.is_empty() { "model".into() } else { answer.model };
    Ok((cap(&whole, limit_chars).into_owned(), writer))
}

/// An answer that is no summary is a failure, not a bad summary.
fn checked(desk: &Desk<'_>, answer: &Completion, middle: &[Range<u64>]) -> Result<String> {
    let text = redact(unwrap(&answer.text)).trim().to_owned();
    let refuse = |kind, message: String| Err(EngineError::new(kind, message));
    if text.is_empty() {
        return refuse(ErrorKind::ModelEmpty, "the summariser answered nothing".into());
    }
    if let Some(heading) = HEADINGS.iter().find(|heading| !text.contains(**heading)) {
        return refuse(ErrorKind::ModelFailed, format!("the summary has no section {heading:?}"));
    }
    let middle_tokens: u64 = middle.iter().map(|gap| desk.transcript.tokens(gap.clone())).sum();
    if tokens::estimate(&text) >= middle_tokens {
        return refuse(
            ErrorKind::ModelFailed,
            format!("the summary is longer than the {middle_tokens} tokens it stands for"),
        );
    }
    Ok(text)
}

//! Requests summaries from a model, cleans the answers and types the failures.

use std::future::Future;

use ctxhost_engine_api::{
    CallId, Completion, CompletionRequest, EngineError, ErrorKind, Host, LogLevel, Result,
    capability,
};

use crate::chunks::{MessageGroup, oldest_part};
use crate::store::has_capability;
use ctxhost_text::redact::redact;

/// Retries after a prompt that was too long, each without the oldest groups.
const OVERFLOW_TRIES: u32 = 3;
/// Each retry drops one part in this many of the tokens.
// Providers rarely report by how much a prompt is too long.
const OVERFLOW_PARTS: u64 = 5;

/// Writer name of a summary that was made without a model.
pub const EXTRACTIVE: &str = "extractive";

/// A summary and its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenSummary {
    /// The text without its envelope.
    pub text: String,
    /// [`EXTRACTIVE`], the name of a model, or another source.
    pub writer: String,
    /// Problems to report to users.
    pub notes: Vec<String>,
}

impl WrittenSummary {
    /// Creates a summary without notes.
    pub fn new(text: impl Into<String>, writer: impl Into<String>) -> WrittenSummary {
        WrittenSummary { text: text.into(), writer: writer.into(), notes: Vec::new() }
    }

    /// The answer of a model without its analysis, envelope and secrets.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ModelEmpty`] if nothing is left.
    pub fn from_completion(answer: &Completion) -> Result<WrittenSummary> {
        let text = redact(&summary_in(&answer.text)).trim().to_owned();
        if text.is_empty() {
            return Err(EngineError::new(
                ErrorKind::ModelEmpty,
                "the summariser returned an empty answer",
            ));
        }
        // Some servers do not return the name of the model.
        let writer = if answer.model.is_empty() { "model" } else { &answer.model };
        Ok(WrittenSummary::new(text, writer))
    }
}

/// Whether the host offers a model.
pub fn has_model(host: &Host) -> bool {
    has_capability(host, capability::COMPLETE)
}

/// Whether an error forbids every further attempt.
pub fn is_final(error: &EngineError) -> bool {
    matches!(error.kind, ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::Dead)
}

/// Requests a summary once.
///
/// # Errors
///
/// The host's, and those of [`WrittenSummary::from_completion`].
pub async fn request_summary(
    host: &Host,
    call: CallId,
    request: CompletionRequest,
) -> Result<WrittenSummary> {
    WrittenSummary::from_completion(&host.complete(call, request).await?)
}

/// Requests the summary of groups; if the prompt is too long, retries without the oldest groups.
/// Also returns the groups that were summarised.
///
/// # Errors
///
/// As [`request_summary`], also for a prompt that stays too long.
pub async fn request_summary_dropping_oldest<'a>(
    host: &Host,
    call: CallId,
    groups: &'a [MessageGroup],
    request: impl Fn(&[MessageGroup]) -> CompletionRequest,
) -> Result<(WrittenSummary, &'a [MessageGroup])> {
    let mut shown = groups;
    let mut tries_left = OVERFLOW_TRIES;
    loop {
        match request_summary(host, call, request(shown)).await {
            Ok(summary) => return Ok((summary, shown)),
            Err(error) => {
                let oldest = oldest_part(shown, OVERFLOW_PARTS);
                // Any other failure is the same with a shorter prompt.
                let may_help = error.kind == ErrorKind::ModelOverflow && tries_left > 0;
                let rest = shown.get(oldest..).filter(|rest| may_help && !rest.is_empty());
                shown = rest.ok_or(error)?;
                tries_left -= 1;
            }
        }
    }
}

/// Awaits a model's summary. A failure that allows a fallback is logged and returned as the inner
/// error.
///
/// # Errors
///
/// A failure that forbids every further attempt.
pub async fn attempt<T>(
    host: &Host,
    summary: impl Future<Output = Result<T>>,
) -> Result<Result<T>> {
    match summary.await {
        Ok(summary) => Ok(Ok(summary)),
        Err(error) if is_final(&error) => Err(error),
        Err(error) => {
            host.log(LogLevel::Warn, &failure_note(&error));
            Ok(Err(error))
        }
    }
}

/// The note of a summary whose model failed.
pub fn failure_note(error: &EngineError) -> String {
    format!("model failed, extractive summary instead: {error}")
}

/// Extracts the summary from an answer: drops the hidden analysis and the tags.
fn summary_in(answer: &str) -> String {
    // Models mention the tags inside their analysis, so it is removed before the tags are searched.
    let mut shown = answer.to_owned();
    if let Some((before, rest)) = answer.split_once("<analysis>") {
        let after = rest.split_once("</analysis>").map_or("", |(_, after)| after);
        shown = format!("{before}{after}");
    }
    // Both tags are optional: a cut answer has no closing one, some models write none.
    let inner = shown.split_once("<summary>").map_or(shown.as_str(), |(_, rest)| rest);
    let inner = inner.rsplit_once("</summary>").map_or(inner, |(summary, _)| summary);
    inner.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::{ScriptedHost, block_on};

    use super::*;

    fn requested(answer: Result<&str>) -> Result<WrittenSummary> {
        let host = ScriptedHost::new();
        host.script(answer.map(|text| Completion { text: text.into(), ..Completion::default() }));
        block_on(request_summary(&host.handle(), CallId::default(), CompletionRequest::default()))
    }

    #[test]
    fn the_analysis_goes_and_the_tags_around_the_summary() {
        for (answer, summary) in [
            (
                "<analysis>\nhm <summary>no</summary>\n</analysis>\n<summary>\n## 1\n</summary>",
                "## 1",
            ),
            ("## 1\nplain", "## 1\nplain"),
            ("<summary>cut off", "cut off"),
            ("<analysis>never ends <summary>x</summary>", ""),
        ] {
            assert_eq!(summary_in(answer), summary, "{answer}");
        }
    }

    #[test]
    fn an_answer_has_no_secret_and_a_writer() {
        let summary = requested(Ok("<summary>\ntoken=abcdef123456\n</summary>")).unwrap();
        assert_eq!(
            (summary.text.as_str(), summary.writer.is_empty()),
            ("token=[redacted:credential]", false)
        );
        assert_eq!(requested(Ok("<analysis>hm")).unwrap_err().kind, ErrorKind::ModelEmpty);
    }

    #[test]
    fn a_prompt_too_long_goes_without_the_oldest_groups() {
        let groups: Vec<MessageGroup> =
            (0..10).map(|at| MessageGroup { range: at..at + 1, tokens: 10 }).collect();
        let outcome = |overflows: usize, groups: &[MessageGroup]| {
            let host = ScriptedHost::new();
            let too_long = || Err(EngineError::new(ErrorKind::ModelOverflow, "too long"));
            (0..overflows).for_each(|_| host.script(too_long()));
            host.answer_always("summary");
            let (handle, request) =
                (host.handle(), |_: &[MessageGroup]| CompletionRequest::default());
            let requested =
                request_summary_dropping_oldest(&handle, CallId::default(), groups, request);
            block_on(requested).map(|(_, outcome)| outcome.len())
        };
        assert_eq!((outcome(0, &groups).unwrap(), outcome(3, &groups).unwrap()), (10, 4));
        assert_eq!(outcome(4, &groups).unwrap_err().kind, ErrorKind::ModelOverflow);
        assert!(outcome(1, &groups[..1]).is_err(), "nothing would be left");
    }

    #[test]
    fn only_what_leaves_another_way_is_answered_inside() {
        let host = ScriptedHost::new();
        let outcome = |kind| {
            let failed = async move { Err::<(), _>(EngineError::new(kind, "no")) };
            block_on(attempt(&host.handle(), failed))
        };
        assert_eq!(outcome(ErrorKind::Cancelled).unwrap_err().kind, ErrorKind::Cancelled);
        let inside = outcome(ErrorKind::ModelTimeout).unwrap().unwrap_err();
        assert_eq!(failure_note(&inside), "model failed, extractive summary instead: no");
        assert!(block_on(attempt(&host.handle(), async { Ok(1) })).unwrap().is_ok());
    }
}

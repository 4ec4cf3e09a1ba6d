//! Writes a summary with a model if there is one, else extractively, and checks its quality.
//!
//! A summary is never a text that only states that there is none.

use std::borrow::Cow;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{EngineError, Flags, LogLevel, Result, Role};
use ctxhost_engine_kit::dialogue::{has_dialogue, is_assent};
use ctxhost_engine_kit::summariser::{EXTRACTIVE, attempt, failure_note, has_model};
use ctxhost_engine_kit::summary::{
    ExcerptRole, MessageExcerpt, SummarySections, extract_sections_before, merge,
    merge_earlier_summaries, message_excerpts, with_later_changes,
};
use ctxhost_text::identifiers::MAX_IDENTIFIERS;
use ctxhost_text::injected_text::request_text;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::cap_with_marker;

use super::appendix;
use super::fallbacks::{SummaryInput, summarise_with_fallbacks};
use super::inputs::LegacyCompaction;
use super::model_request::ModelSummary;
use super::prompt::PromptTemplate;
use super::quality::{SummaryExpectations, check_summary, has_all_sections};
use super::summary_task::SummaryTask;
use crate::settings::{IdentifierPolicy, SummariserChoice, share_of};

/// Size of the envelope, in weighted characters.
const ENVELOPE_CHARS: u64 = 240;
/// Maximum share of the room for the appendix.
const APPENDIX_SHARE: f64 = 0.5;
/// Maximum share of the room for checked identifiers.
const IDENTIFIER_SHARE: f64 = 0.25;

/// A summary that passed its check, and its origin.
#[derive(Clone, Debug)]
pub(crate) struct CheckedSummary {
    /// The text without its envelope.
    pub(crate) text: String,
    /// `extractive`, or the name of the model.
    pub(crate) writer: String,
    /// Identifiers it repeats exactly.
    pub(crate) identifiers: Vec<String>,
    /// Problems to report to users.
    pub(crate) notes: Vec<String>,
}

/// Writes a summary. If the quality guard refuses it, an extractive summary replaces it if the
/// conversation must shrink; otherwise the compaction fails.
pub(crate) async fn write_summary(
    inputs: &LegacyCompaction<'_>,
    task: &SummaryTask,
) -> Result<CheckedSummary> {
    let summariser = FoldSummariser::new(inputs, task);
    let mut notes = Vec::new();
    if summariser.wants_model() {
        match attempt(inputs.host, summariser.summarise_with_model()).await? {
            Ok(Ok(summary)) => return Ok(summary),
            // Nothing forces a compaction now, so the history is worth more than a weak summary.
            Ok(Err(reasons)) if !inputs.is_over_target() => return Err(refused_error(&reasons)),
            Ok(Err(reasons)) => {
                let note = replaced_note(&reasons);
                inputs.host.log(LogLevel::Warn, &note);
                notes.push(note);
            }
            Err(error) => notes.push(failure_note(&error)),
        }
    }
    summariser.summarise_extractively(notes)
}

struct FoldSummariser<'a> {
    inputs: &'a LegacyCompaction<'a>,
    task: &'a SummaryTask,
    excerpts: Vec<MessageExcerpt<'a>>,
    earlier: Option<SummarySections>,
    /// The user's messages behind the history.
    later_requests: Vec<String>,
    /// Whether the model has answered since, so that no request is pending.
    is_answered_later: bool,
    room_chars: u64,
}

impl<'a> FoldSummariser<'a> {
    fn new(inputs: &'a LegacyCompaction<'a>, task: &'a SummaryTask) -> Self {
        FoldSummariser {
            inputs,
            task,
            excerpts: message_excerpts(inputs.transcript, task.history.gaps()),
            earlier: merge_earlier_summaries(inputs.transcript, task.history.gaps()),
            later_requests: later_requests(inputs, task),
            is_answered_later: is_answered_after(inputs, task),
            room_chars: task.limit_chars.saturating_sub(ENVELOPE_CHARS),
        }
    }

    /// Heartbeats and calls without text are not worth a request.
    fn wants_model(&self) -> bool {
        let LegacyCompaction { host, settings, transcript, .. } = self.inputs;
        let wanted = settings.compaction.summariser;
        let has = has_model(host);
        if wanted == SummariserChoice::Model && !has {
            host.log(LogLevel::Warn, "compaction.summariser is \"model\", but the host has no model; using an extractive summary");
        }
        wanted != SummariserChoice::Extractive
            && has
            && has_dialogue(transcript, self.task.history.gaps())
    }

    fn summarise_extractively(&self, notes: Vec<String>) -> Result<CheckedSummary> {
        let mut sections = self.extracted();
        let appendix = self.appendix();
        let room_chars = self.task.section_chars().saturating_sub(ENVELOPE_CHARS);
        sections.fit(room_chars.saturating_sub(weighted_chars(&appendix) + 2));
        let text = self.with_ledger(&sections.render(), &appendix);
        let expected = SummaryExpectations {
            // Pseudonyms are not derived from the sections, so they cannot be compared.
            identifiers: if self.is_anonymised() { vec![] } else { sections.identifiers.clone() },
            latest_request: sections
                .requests
                .first()
                .map(|request_text| self.inputs.anonymised(request_text).into_owned()),
            ..SummaryExpectations::default()
        };
        let reasons = check_summary(&text, &expected);
        if !reasons.is_empty() {
            return Err(refused_error(&reasons));
        }
        let identifiers = expected.identifiers;
        Ok(CheckedSummary { text, writer: EXTRACTIVE.into(), identifiers, notes })
    }

    /// The sections of the history, merged with earlier summaries.
    fn extracted(&self) -> SummarySections {
        let newer = extract_sections_before(&self.excerpts, self.is_answered_later);
        let mut sections = match &self.earlier {
            Some(older) => merge(older.clone(), newer),
            None => newer,
        };
        let rules = std::mem::take(&mut sections.constraints);
        sections.constraints =
            with_later_changes(rules, self.later_requests.iter().map(String::as_str));
        // The request of a split turn is kept word for word; as a pending one it would be done twice.
        if self.task.is_turn_prefix || self.is_answered_later {
            sections.requests.clear();
        }
        sections
    }

    /// A summary, or the reasons of the last refusal.
    async fn summarise_with_model(&self) -> Result<Result<CheckedSummary, Vec<String>>> {
        let settings = &self.inputs.settings.compaction;
        let expected = self.expectations();
        let input = SummaryInput::for_task(self.inputs, self.task, self.earlier.as_ref());
        let mut template = self.template();
        let mut reasons = Vec::new();
        for _ in 0..settings.quality_tries() {
            // The reasons of the last refusal go into the next prompt, as data.
            template.feedback = std::mem::take(&mut reasons);
            let answer = summarise_with_fallbacks(self.inputs, &input, &template).await?;
            let text = self.complete_text(&answer);
            if settings.quality_guard {
                reasons = check_summary(&text, &expected);
            }
            if reasons.is_empty() {
                let identifiers = expected.identifiers;
                let summary =
                    CheckedSummary { text, writer: answer.model, identifiers, notes: answer.notes };
                return Ok(Ok(summary));
            }
        }
        Ok(Err(reasons))
    }

    fn template(&self) -> PromptTemplate {
        let settings = &self.inputs.settings.compaction;
        let request = self.inputs.request;
        let focus = request.custom_instructions.as_deref().unwrap_or(&settings.custom_instructions);
        // Truncated before redaction, whose time grows with the length.
        let focus = focus.chars().take(settings.custom_instructions_chars).collect::<String>();
        PromptTemplate {
            model: settings.model.clone(),
            max_output_tokens: share_of(request.reserve_tokens, settings.output_share),
            focus: self.inputs.anonymised(&redact(&focus)).into_owned(),
            feedback: Vec::new(),
            session: self.session_to_continue(),
            is_turn_prefix: self.task.is_turn_prefix,
            is_answered_later: self.is_answered_later,
            policy: settings.identifier_policy,
            identifier_instructions: settings.identifier_instructions.clone(),
        }
    }

    /// The session whose live conversation the summary request continues; empty for none.
    fn session_to_continue(&self) -> String {
        let settings = &self.inputs.settings.compaction;
        // The live conversation contains exact names, and more than the prefix of a split turn.
        let may = settings.reuse_live_prefix
            && !self.task.is_turn_prefix
            && settings.identifier_policy != IdentifierPolicy::Anonymize;
        if may { self.inputs.request.session.id.clone() } else { String::new() }
    }

    fn expectations(&self) -> SummaryExpectations {
        let requests =
            self.excerpts.iter().rev().filter(|excerpt| excerpt.role == ExcerptRole::User);
        let latest =
            requests.map(|request_text| request_text.text.as_ref()).find(|text| !is_assent(text));
        let sections = self.extracted();
        let open = sections.requests.first();
        let newest = self.inputs.transcript.newest_user_message().map(|entry| redact(entry.text()));
        let anonymised = |text: Cow<'_, str>| self.inputs.anonymised(&text).into_owned();
        SummaryExpectations {
            identifiers: self.expected_identifiers(&sections),
            latest_request: latest.map(|request_text| anonymised(request_text.into())),
            open_request: open.map(|request_text| anonymised(request_text.into())),
            retained_request: newest.filter(|_| self.task.is_turn_prefix).map(anonymised),
        }
    }

    fn expected_identifiers(&self, sections: &SummarySections) -> Vec<String> {
        if self.inputs.settings.compaction.identifier_policy != IdentifierPolicy::Strict {
            return Vec::new();
        }
        let mut identifiers = sections.identifiers.clone();
        identifiers.truncate(MAX_IDENTIFIERS);
        // A short summary cannot repeat all identifiers; those that do not fit are not demanded.
        let mut room = share_of(self.room_chars, IDENTIFIER_SHARE);
        identifiers.retain(|identifier| {
            let fits = weighted_chars(identifier) <= room;
            room = room.saturating_sub(weighted_chars(identifier));
            fits
        });
        identifiers
    }

    fn complete_text(&self, answer: &ModelSummary) -> String {
        let appendix = self.appendix();
        let notes = answer.notes.join("\n");
        let room = self.body_chars(&appendix).saturating_sub(weighted_chars(&notes) + 2);
        self.with_ledger(&joined(&fit_sections(&answer.text, room), &notes), &appendix)
    }

    fn is_anonymised(&self) -> bool {
        self.inputs.settings.compaction.identifier_policy == IdentifierPolicy::Anonymize
    }

    fn appendix(&self) -> String {
        let limit_chars = share_of(self.room_chars, APPENDIX_SHARE);
        let settings = &self.inputs.settings.compaction;
        appendix::render(self.inputs.transcript, self.task, settings, limit_chars)
    }

    /// Sections, ledger and appendix.
    fn with_ledger(&self, body: &str, appendix: &str) -> String {
        let shown = joined(body, appendix);
        let limits = self.task.limits_beside(weighted_chars(&shown) + ENVELOPE_CHARS);
        let blocks = self.task.ledger.render(limits, &shown);
        self.inputs.anonymised(&joined(&joined(body, &blocks), appendix)).into_owned()
    }

    fn body_chars(&self, appendix: &str) -> u64 {
        self.room_chars.saturating_sub(weighted_chars(appendix) + 2)
    }
}

/// The user's messages behind the history.
fn later_requests(inputs: &LegacyCompaction<'_>, task: &SummaryTask) -> Vec<String> {
    let end = task.history.gaps().last().map_or(0, |gap| gap.end);
    let later = inputs.transcript.range(end..inputs.transcript.len() as u64);
    let requests = later.filter(|entry| entry.is_user_message());
    requests.map(|entry| redact(&request_text(&entry)).into_owned()).collect()
}

/// Whether a final answer follows the history.
fn is_answered_after(inputs: &LegacyCompaction<'_>, task: &SummaryTask) -> bool {
    let end = task.history.gaps().last().map_or(0, |gap| gap.end);
    let later = inputs.transcript.range(end..inputs.transcript.len() as u64);
    let mut answers = later.filter(|entry| entry.role() == Role::Assistant);
    answers.any(|entry| !entry.has(Flags::TOOL_CALLS) && !entry.text().trim().is_empty())
}

/// Fits a model's sections into `room_chars`: lines are dropped before sections.
fn fit_sections(text: &str, room_chars: u64) -> Cow<'_, str> {
    // Without the sections the text cannot be parsed; it is cut and left to the quality guard.
    if weighted_chars(text) <= room_chars || !has_all_sections(text) {
        return cap_with_marker(text, room_chars);
    }
    let mut sections = SummarySections::parse(text);
    sections.fit(room_chars);
    Cow::Owned(sections.render())
}

fn joined(body: &str, rest: &str) -> String {
    match (body.is_empty(), rest.is_empty()) {
        (_, true) => body.to_owned(),
        (true, _) => rest.to_owned(),
        _ => format!("{body}\n\n{rest}"),
    }
}

fn refused_error(reasons: &[String]) -> EngineError {
    EngineError::failed(format!("{}; the history is kept", failed_check(reasons)))
}

fn replaced_note(reasons: &[String]) -> String {
    format!("{}; using an extractive summary instead", failed_check(reasons))
}

fn failed_check(reasons: &[String]) -> String {
    format!("the summary failed its quality check ({})", reasons.join("; "))
}

//! Who writes the summary: a model where there is one, else the conversation's own sentences, and
//! never a text that only says that there is no summary.
//!
//! The ladder: everything, without oversized messages, the part that was told before a failure, the
//! conversation's own sentences. Between any two steps the quality guard looks.

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{CompletionRequest, EngineError, ErrorKind, LogLevel, Result, capability};
use ctxhost_engine_kit::chunks::{Group, prune_oldest};
use ctxhost_engine_kit::identifiers::MAX_IDENTIFIERS;
use ctxhost_engine_kit::redact::redact;
use ctxhost_engine_kit::summary::{
    Passage, Sections, Speaker, carried, extract, merge, passages, unwrap,
};
use ctxhost_engine_kit::text::cap;

use super::chunks::{divide, frames, without_oversized};
use super::cut::Fold;
use super::prompt::{Frame, conversation};
use super::quality::{Expectations, audit};
use super::{Desk, appendix};
use crate::settings::{IdentifierPolicy, Summariser, share_of};

/// What the envelope around a summary takes, in weighted characters.
const ENVELOPE_CHARS: u64 = 240;
/// At most this share of the room goes to what follows the sections.
const APPENDIX_SHARE: f64 = 0.5;
/// At most this share of the room goes to identifiers that are checked.
const IDENTIFIER_SHARE: f64 = 0.25;
/// Names a summary that was made without a model.
const EXTRACTIVE: &str = "extractive";
/// The try from which older history is told without a model, so that little is left to fail.
const LAST_TRY: u32 = 3;

/// A summary and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// The text, without its envelope.
    pub(crate) text: String,
    /// `extractive`, or the name of the model.
    pub(crate) writer: String,
    /// The names it repeats exactly.
    pub(crate) identifiers: Vec<String>,
    /// What did not go as it should, for people.
    pub(crate) notes: Vec<String>,
}

/// Tells a fold.
pub(crate) async fn tell(desk: &Desk<'_>, fold: &Fold) -> Result<Story> {
    let teller = Teller::new(desk, fold);
    let mut notes = Vec::new();
    if teller.has_model() {
        match teller.tell_by_model().await {
            Ok(story) => return Ok(story),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => {
                let note = format!("told without a model: {error}");
                desk.host.log(LogLevel::Warn, &note);
                notes.push(note);
            }
        }
    }
    teller.tell_extractively(notes)
}

/// An error after which nothing else may be tried.
fn is_final(error: &EngineError) -> bool {
    matches!(error.kind, ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::Dead)
}

struct Teller<'a> {
    desk: &'a Desk<'a>,
    fold: &'a Fold,
    passages: Vec<Passage<'a>>,
    carried: Option<Sections>,
    room_chars: u64,
}

impl<'a> Teller<'a> {
    fn new(desk: &'a Desk<'a>, fold: &'a Fold) -> Self {
        Teller {
            desk,
            fold,
            passages: passages(desk.transcript, &fold.gaps),
            carried: carried(desk.transcript, &fold.gaps),
            room_chars: fold.limit_chars.saturating_sub(ENVELOPE_CHARS),
        }
    }

    fn has_model(&self) -> bool {
        let wanted = self.desk.settings.compaction.summariser;
        let has =
            self.desk.host.info().capabilities.iter().any(|name| name == capability::COMPLETE);
        if wanted == Summariser::Model && !has {
            self.desk.host.log(LogLevel::Warn, "compaction.summariser is \"model\" and the host offers none; telling without a model");
        }
        wanted != Summariser::Extractive && has
    }

    // --- without a model ---

    fn tell_extractively(&self, notes: Vec<String>) -> Result<Story> {
        let mut sections = self.extracted();
        let appendix = self.appendix();
        sections.fit(self.body_chars(&appendix));
        let text = joined(&sections.render(), &appendix);
        let expected = Expectations {
            identifiers: sections.identifiers.clone(),
            latest_ask: sections.asks.first().cloned(),
        };
        let reasons = audit(&text, &expected);
        if !reasons.is_empty() {
            return Err(refused(&reasons));
        }
        let identifiers = sections.identifiers;
        Ok(Story { text, writer: EXTRACTIVE.into(), identifiers, notes })
    }

    /// The sections of the fold with those of earlier summaries.
    fn extracted(&self) -> Sections {
        let newer = extract(&self.passages);
        match &self.carried {
            Some(older) => merge(older.clone(), newer),
            None => newer,
        }
    }

    // --- with a model ---

    async fn tell_by_model(&self) -> Result<Story> {
        let settings = &self.desk.settings.compaction;
        let expected = self.expectations();
        let mut frame = self.frame();
        let mut reasons = Vec::new();
        for _ in 0..settings.quality_tries() {
            frame.feedback = std::mem::take(&mut reasons);
            let told = self.climb(&frame).await?;
            let text = self.finished(&told);
            if settings.quality_guard {
                reasons = audit(&text, &expected);
            }
            if reasons.is_empty() {
                let identifiers = expected.identifiers;
                return Ok(Story { text, writer: told.model, identifiers, notes: told.notes });
            }
        }
        Err(refused(&reasons))
    }

    fn frame(&self) -> Frame {
        let settings = &self.desk.settings.compaction;
        let request = self.desk.request;
        let focus = request.custom_instructions.as_deref().unwrap_or(&settings.custom_instructions);
        Frame {
            model: settings.model.clone(),
            max_output_tokens: share_of(request.reserve_tokens, settings.output_share),
            focus: redact(focus).chars().take(settings.custom_instructions_chars).collect(),
            feedback: Vec::new(),
            is_turn_prefix: self.fold.is_turn_prefix,
        }
    }

    fn expectations(&self) -> Expectations {
        let settings = &self.desk.settings.compaction;
        let mut identifiers = self.extracted().identifiers;
        identifiers.truncate(MAX_IDENTIFIERS);
        let mut room = share_of(self.room_chars, IDENTIFIER_SHARE);
        identifiers.retain(|identifier| {
            let fits = weighted_chars(identifier) <= room;
            room = room.saturating_sub(weighted_chars(identifier));
            fits
        });
        if settings.identifier_policy == IdentifierPolicy::Off {
            identifiers.clear();
        }
        let asks = self.passages.iter().rev().find(|passage| passage.speaker == Speaker::User);
        Expectations { identifiers, latest_ask: asks.map(|ask| ask.text.to_string()) }
    }

    /// Everything, then without what is oversized, then what was told before the failure.
    async fn climb(&self, frame: &Frame) -> Result<Told> {
        let (previous, all) = self.material();
        let mut partial = None;
        let error = match self.stages(&all, previous.as_deref(), frame, &mut partial).await {
            Ok(told) => return Ok(told),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => error,
        };
        let desk = self.desk;
        let (fine, omitted) = without_oversized(
            desk.transcript,
            &all,
            desk.request.model.window_tokens,
            &desk.settings.compaction,
        );
        if !omitted.is_empty() && !fine.is_empty() {
            match self.stages(&fine, previous.as_deref(), frame, &mut partial).await {
                Ok(told) => return Ok(told.with_notes(omitted)),
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => {}
            }
        }
        partial.ok_or(error)
    }

    /// What a model reads: the summary of what came before, and the frames to tell. In the last try
    /// older history is told without a model first, so that little is left that can fail.
    fn material(&self) -> (Option<String>, Vec<Group>) {
        let desk = self.desk;
        let mut all = frames(desk.transcript, self.fold);
        let mut older = self.carried.clone();
        if desk.request.attempt >= LAST_TRY {
            let settings = &desk.settings.compaction;
            let budget = share_of(desk.request.model.window_tokens, settings.history_share);
            let pruned = prune_oldest(&all, budget, settings.parts);
            let rest = all.split_off(pruned.groups);
            let dropped: Vec<_> = all.iter().map(|group| group.range.clone()).collect();
            let told = extract(&passages(desk.transcript, &dropped));
            older = Some(older.map_or(told.clone(), |older| merge(older, told)));
            all = rest;
        }
        let previous = older.filter(|sections| *sections != Sections::default());
        (previous.map(|sections| sections.render()), all)
    }

    async fn stages(
        &self,
        frames: &[Group],
        previous: Option<&str>,
        frame: &Frame,
        partial: &mut Option<Told>,
    ) -> Result<Told> {
        let desk = self.desk;
        let window_tokens = desk.request.model.window_tokens;
        let parts = divide(frames, window_tokens, &desk.settings.compaction);
        let count: usize = parts.iter().map(Vec::len).sum();
        let mut done = 0;
        let mut told_parts: Vec<Told> = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let mut so_far = previous.filter(|_| at == 0).map(str::to_owned);
            let mut told = None;
            for chunk in part {
                let limit = desk.settings.compaction.prompt_result_chars;
                let text = conversation(desk.transcript, chunk, limit);
                let request = frame.summarise(&text, so_far.as_deref());
                let answer = self.ask(request, done, count).await?;
                done += 1;
                so_far = Some(answer.text.clone());
                *partial = Some(answer.clone().with_notes(vec![partial_note(done, count)]));
                told = Some(answer);
            }
            told_parts.extend(told);
        }
        match told_parts.len() {
            0 => Err(EngineError::failed("no message is left to summarise")),
            1 => told_parts.pop().ok_or_else(|| EngineError::failed("no part was told")),
            _ => {
                let texts: Vec<String> = told_parts.into_iter().map(|told| told.text).collect();
                self.ask(frame.merge(&texts), done, count + 1).await
            }
        }
    }

    /// One request, tried again after a failure that may pass.
    async fn ask(&self, request: CompletionRequest, done: usize, count: usize) -> Result<Told> {
        let Desk { host, settings, request: call, .. } = self.desk;
        let settings = &settings.compaction;
        let permille = u32::try_from(done * 1_000 / count.max(1)).unwrap_or(1_000);
        let mut pause_ms = settings.backoff_ms;
        let mut tries = settings.request_tries.max(1);
        loop {
            host.progress(call.call, permille, &format!("summary {} of {count}", done + 1));
            let answer = host.complete(call.call, request.clone()).await;
            tries -= 1;
            match answer.and_then(Told::of) {
                Ok(told) => return Ok(told),
                Err(error) if tries == 0 || !may_pass(&error) => return Err(error),
                Err(_) if host.is_cancelled(call.call) => {
                    return Err(EngineError::new(
                        ErrorKind::Cancelled,
                        "the compaction was cancelled",
                    ));
                }
                Err(_) => host.sleep(pause_ms).await,
            }
            pause_ms = (pause_ms * 2).min(settings.backoff_limit_ms);
        }
    }

    // --- both ---

    fn finished(&self, told: &Told) -> String {
        let appendix = self.appendix();
        let notes = told.notes.join("\n");
        let room = self.body_chars(&appendix).saturating_sub(weighted_chars(&notes) + 2);
        joined(&joined(&cap(&told.text, room), &notes), &appendix)
    }

    fn appendix(&self) -> String {
        let limit_chars = share_of(self.room_chars, APPENDIX_SHARE);
        let settings = &self.desk.settings.compaction;
        appendix::render(self.desk.transcript, self.fold, settings, limit_chars)
    }

    fn body_chars(&self, appendix: &str) -> u64 {
        self.room_chars.saturating_sub(weighted_chars(appendix) + 2)
    }
}

/// What a model said.
#[derive(Clone, Debug)]
struct Told {
    text: String,
    model: String,
    notes: Vec<String>,
}

impl Told {
    fn of(answer: ctxhost_engine_api::Completion) -> Result<Told> {
        let text = redact(unwrap(&answer.text)).trim().to_owned();
        if text.is_empty() {
            return Err(EngineError::new(ErrorKind::ModelEmpty, "the summariser answered nothing"));
        }
        let model = if answer.model.is_empty() { "model".into() } else { answer.model };
        Ok(Told { text, model, notes: Vec::new() })
    }

    fn with_notes(mut self, notes: Vec<String>) -> Told {
        self.notes.extend(notes);
        self
    }
}

fn partial_note(done: usize, count: usize) -> String {
    format!("[Partial summary: chunks 1-{done} of {count} were summarised]")
}

fn joined(body: &str, rest: &str) -> String {
    match (body.is_empty(), rest.is_empty()) {
        (_, true) => body.to_owned(),
        (true, _) => rest.to_owned(),
        _ => format!("{body}\n\n{rest}"),
    }
}

fn refused(reasons: &[String]) -> EngineError {
    EngineError::failed(format!(
        "the summary failed its quality check ({}); the history is kept",
        reasons.join("; ")
    ))
}

/// Whether another try can help.
fn may_pass(error: &EngineError) -> bool {
    matches!(
        error.kind,
        ErrorKind::ModelTimeout
            | ErrorKind::ModelEmpty
            | ErrorKind::ModelRateLimited
            | ErrorKind::ModelFailed
            | ErrorKind::ModelToolCall
    )
}

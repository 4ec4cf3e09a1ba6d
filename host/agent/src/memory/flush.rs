//! A silent turn before a compaction: the model says what should outlive it.

use std::time::Duration;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Trigger};

use crate::event::EventKind;
use crate::model_messages::ModelMessages;
use crate::turn::AgentTurn;
use ctxhost_context::emergency_trim_plan;
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::{ChatMessage, ModelRequest, ThinkingLevel};
use ctxhost_invariants as invariants;

/// Failures in a row after which a session asks for notes no more.
const MAX_FAILURES: u32 = 3;

/// How long an answer may take: somebody may be waiting for the compaction behind it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest answer, in provider tokens: a page of notes.
const MAX_OUTPUT_TOKENS: u64 = 1_024;

/// What the model says when there is nothing to note.
const NO_NOTES: &str = "NONE";

/// What it is asked, behind the conversation as it is.
const NOTES_REQUEST: &str = "This conversation is about to be shortened. Do not answer it and do not go on \
    with the task now. Write down what a later session in this folder should know: decisions and their \
    reasons, what the person wants, facts that were hard to find, what is left to do. Short points, \
    names and paths exact, no passwords, no keys. If there is nothing worth it, say NONE.";

/// What was noted.
struct FlushedNotes {
    chars: usize,
    usage: TokenUsage,
}

impl AgentTurn {
    /// Whether notes are to be saved before the next compaction.
    pub(crate) fn needs_notes(&self) -> bool {
        let memory = &self.guard.active().notes;
        self.state.compaction.memory_flush
            && self.state.memory_notes.is_some()
            && memory.failures < MAX_FAILURES
            && memory.flushed_epoch != Some(self.session().view().epoch())
    }

    /// Saves notes, where that is owed. Whatever goes wrong, the compaction goes on.
    pub(crate) async fn save_notes(&mut self) {
        if !self.needs_notes() {
            return;
        }
        let epoch = self.session().view().epoch();
        self.guard.active_mut().notes.flushed_epoch = Some(epoch);
        let noted = self.request_notes().await;
        let memory = &mut self.guard.active_mut().notes;
        let what = match noted {
            Ok(FlushedNotes { chars, usage }) => {
                memory.failures = 0;
                EventKind::NotesSaved { chars, usage }
            }
            Err(why) => {
                memory.failures += 1;
                EventKind::NotesFailed { why, is_last: memory.failures >= MAX_FAILURES }
            }
        };
        self.guard.emit(what);
    }

    async fn request_notes(&mut self) -> Result<FlushedNotes, String> {
        let shared = self.state.clone();
        let notes = shared.memory_notes.as_ref().ok_or("there is no memory")?;
        let request = self.notes_request().await?;
        let provider = &self.cursor.model().provider;
        let client = shared.clients.get(provider).ok_or("there is no provider")?;
        // Nobody hears this answer while it comes.
        let mut unheard = |_: ctxhost_dialects::StreamPart<'_>| {};
        let asking = tokio::time::timeout(ANSWER_TIMEOUT, client.generate(&request, &mut unheard));
        let answer = self.guard.lock().yield_permit_during(asking).await;
        let answer = answer.map_err(|_| "the model took too long")?.map_err(|e| e.to_string())?;
        let text = answer.text();
        let is_nothing = text.trim().trim_end_matches('.').eq_ignore_ascii_case(NO_NOTES);
        if is_nothing || text.trim().is_empty() {
            return Ok(FlushedNotes { chars: 0, usage: answer.usage });
        }
        let cwd = self.session().session().header().cwd();
        let written = notes.append(cwd, &text, shared.clock().now_ms());
        let written =
            written.map_err(|error| format!("the notes could not be written: {error}"))?;
        Ok(FlushedNotes { chars: written.chars().count(), usage: answer.usage })
    }

    /// The conversation word for word, so that the provider knows its beginning already, or what fits of
    /// it; then the question. No tools: nothing is done now.
    async fn notes_request(&mut self) -> Result<ModelRequest, String> {
        let (target, _) = self.target(Trigger::Threshold).await;
        let context = self.guard.context();
        let (view, model) = (context.view(), context.model_ref(&target));
        let system = self.system_prompt();
        let free_tokens = model.window_tokens.saturating_sub(MAX_OUTPUT_TOKENS);
        let beside_tokens = tokens::estimate(&system) + tokens::estimate(NOTES_REQUEST);
        let room_tokens = context.room_tokens(&target, free_tokens).saturating_sub(beside_tokens);
        let plan = match view.total_tokens() <= room_tokens {
            true => Plan::keep_all(view.len()),
            false => emergency_trim_plan(&view, room_tokens, &self.state.context.invariants)
                .map_err(|error| error.to_string())?,
        };
        let lawful = invariants::enforce(&view, plan, room_tokens, &self.state.context.invariants)
            .map_err(|violation| violation.to_string())?;
        let projection = ModelMessages::from_items(&lawful.items(&view), self.session().images());
        let mut messages = projection.messages;
        if self.retry.without_thinking {
            messages.iter_mut().for_each(ChatMessage::strip_provider_content);
        }
        messages.push(ChatMessage::from_user_text(NOTES_REQUEST));
        let system = std::iter::once(system).chain(projection.system);
        let system: Vec<String> = system.filter(|text| !text.is_empty()).collect();
        Ok(ModelRequest {
            model: model.id,
            system: system.join("\n\n"),
            messages,
            tools: Vec::new(),
            max_output_tokens: MAX_OUTPUT_TOKENS,
            window_tokens: model.window_tokens,
            thinking: ThinkingLevel::Off,
            temperature: None,
            cache_key: self.guard.session_id().to_owned(),
        })
    }
}

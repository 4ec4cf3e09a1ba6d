//! Requests notes from the model before a compaction, outside of the conversation.

use std::time::Duration;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Trigger};

use crate::event::EventKind;
use crate::model_messages::ModelMessages;
use crate::turn::agent_turn::AgentTurn;
use ctxhost_context::emergency_trim_plan;
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::{ChatMessage, ModelRequest, ThinkingLevel};
use ctxhost_invariants as invariants;

/// Consecutive failures after which a session stops requesting notes.
const MAX_FAILURES: u32 = 3;

/// The time limit of a request: a user may be waiting for the compaction.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum length of the notes, in provider tokens: about a page.
const MAX_OUTPUT_TOKENS: u64 = 1_024;

/// The model's answer if there is nothing to note.
const NO_NOTES: &str = "NONE";

/// The request, appended to the unchanged conversation.
const NOTES_REQUEST: &str = "This conversation is about to be shortened. Do not answer it and do not go on \
    with the task now. Write down what a later session in this folder should know: decisions and their \
    reasons, what the user wants, facts that were hard to find, what is left to do. Short points, \
    names and paths exact, no passwords, no keys. If there is nothing worth it, say NONE.";

fn timeout_message() -> String {
    format!("the model did not answer within {} s", ANSWER_TIMEOUT.as_secs())
}

/// Saved notes.
struct FlushedNotes {
    chars: usize,
    usage: TokenUsage,
}

impl AgentTurn {
    /// Whether notes are due before the next compaction.
    pub(crate) fn needs_notes(&self) -> bool {
        let memory = &self.guard.active().notes;
        self.state.compaction.memory_flush
            && self.state.memory_notes.is_some()
            && memory.failures < MAX_FAILURES
            && memory.flushed_epoch != Some(self.session().view().epoch())
    }

    /// Saves notes if they are due. An error is only an event: the compaction proceeds.
    pub(crate) async fn save_notes(&mut self) {
        if !self.needs_notes() {
            return;
        }
        let epoch = self.session().view().epoch();
        // Before the request: a failed one is not repeated for the same compaction.
        self.guard.active_mut().notes.flushed_epoch = Some(epoch);
        let outcome = self.request_notes().await;
        let memory = &mut self.guard.active_mut().notes;
        let kind = match outcome {
            Ok(FlushedNotes { chars, usage }) => {
                memory.failures = 0;
                EventKind::NotesSaved { chars, usage }
            }
            Err(why) => {
                memory.failures += 1;
                EventKind::NotesFailed { why, is_last: memory.failures >= MAX_FAILURES }
            }
        };
        self.guard.emit(kind);
    }

    async fn request_notes(&mut self) -> Result<FlushedNotes, String> {
        let state = self.state.clone();
        let notes = state.memory_notes.as_ref().ok_or("no memory is configured")?;
        let request = self.notes_request().await?;
        let provider = &self.cursor.model().provider;
        let client = state.clients.get(provider).ok_or("the model's provider is not configured")?;
        // The answer is not part of the conversation, so its parts emit no events.
        let mut ignore = |_: ctxhost_dialects::StreamPart<'_>| {};
        let call = tokio::time::timeout(ANSWER_TIMEOUT, client.generate(&request, &mut ignore));
        let answer = self.guard.lock().yield_permit_during(call).await;
        let answer = answer.map_err(|_| timeout_message())?.map_err(|e| e.to_string())?;
        let text = answer.text();
        let has_none = text.trim().trim_end_matches('.').eq_ignore_ascii_case(NO_NOTES);
        if has_none || text.trim().is_empty() {
            return Ok(FlushedNotes { chars: 0, usage: answer.usage });
        }
        let cwd = self.session().session().header().cwd();
        let written = notes.append(cwd, &text, state.clock().now_ms());
        let written = written.map_err(|error| format!("cannot write the notes file: {error}"))?;
        Ok(FlushedNotes { chars: written.chars().count(), usage: answer.usage })
    }

    /// The request for notes: the conversation, or what fits of it, and the instruction. Without tools, so that the model
    /// writes notes instead of working on.
    async fn notes_request(&mut self) -> Result<ModelRequest, String> {
        let (target, _) = self.target(Trigger::Threshold).await;
        let context = self.guard.context();
        let (view, model) = (context.view(), context.model_ref(&target));
        let system = self.system_prompt();
        let free_tokens = model.window_tokens.saturating_sub(MAX_OUTPUT_TOKENS);
        let overhead_tokens = tokens::estimate(&system) + tokens::estimate(NOTES_REQUEST);
        let room_tokens = context.room_tokens(&target, free_tokens).saturating_sub(overhead_tokens);
        // The whole conversation if possible: the provider has it cached as a prefix.
        let plan = if view.total_tokens() <= room_tokens {
            Plan::keep_all(view.len())
        } else {
            emergency_trim_plan(&view, room_tokens, &self.state.context.invariants)
                .map_err(|error| error.to_string())?
        };
        let checked = invariants::enforce(&view, plan, room_tokens, &self.state.context.invariants)
            .map_err(|violation| violation.to_string())?;
        let converted = ModelMessages::from_items(&checked.items(&view), self.session().images());
        let mut messages = converted.messages;
        if self.retry.without_thinking {
            messages.iter_mut().for_each(ChatMessage::strip_provider_content);
        }
        messages.push(ChatMessage::from_user_text(NOTES_REQUEST));
        let system = std::iter::once(system).chain(converted.system);
        let system: Vec<String> = system.filter(|text| !text.is_empty()).collect();
        Ok(ModelRequest {
            model: model.id,
            system: system.join("\n\n"),
            messages,
            tools: Vec::new(),
            max_output_tokens: MAX_OUTPUT_TOKENS,
            window_tokens: model.window_tokens,
            // Thinking would use up the short answer.
            thinking: ThinkingLevel::Off,
            temperature: None,
            // The key of the session, for which the provider has the prefix cached.
            cache_key: self.guard.session_id().to_owned(),
        })
    }
}

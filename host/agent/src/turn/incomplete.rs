//! Answers without their end: cut off at the output limit, ended by the provider, or interrupted by the user.
//!
//! A model cannot see how its answer ended, so the session gets a message that says it.

use std::mem;
use std::sync::Arc;

use ctxhost_engine_api::transcript::tokens::group_thousands;
use parking_lot::Mutex;

use super::agent_turn::AgentTurn;
use crate::error::TurnError;
use crate::event::EventKind;
use ctxhost_dialects::message::StopReason;
use ctxhost_dialects::{AssistantMessage, ChatBlock, ChatMessage, StreamPart};
use ctxhost_session::{RecordBody, SessionError};

/// The custom type of the messages about incomplete answers.
const MESSAGE_TYPE: &str = "ctxhost.incomplete_answer";

/// Bytes of an interrupted answer that are kept; models write much less, and a server may never end.
const MOST_TEXT_BYTES: usize = 1 << 20;
/// Calls of an answer that are named.
const MOST_TOOLS: usize = 64;

/// What of an answer has arrived.
#[derive(Debug, Default)]
pub(super) struct ReceivedParts {
    text: String,
    /// The tools of the calls that have started.
    tools: Vec<String>,
}

impl ReceivedParts {
    pub(super) fn add(&mut self, part: &StreamPart<'_>) {
        match part {
            StreamPart::Text(text) => {
                let room = MOST_TEXT_BYTES.saturating_sub(self.text.len());
                self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
            }
            StreamPart::ToolCall { .. } if self.tools.len() >= MOST_TOOLS => {}
            StreamPart::ToolCall { name } => self.tools.push((*name).to_owned()),
            // Its signature comes last, and it cannot be sent back without one.
            StreamPart::Thinking(_) => {}
        }
    }
}

/// An answer while it arrives. Dropped before its end, it records the text so far: the user has read it.
pub(super) struct ArrivingAnswer<'a> {
    pub(super) turn: &'a mut AgentTurn,
    api: &'static str,
    parts: Arc<Mutex<ReceivedParts>>,
}

impl<'a> ArrivingAnswer<'a> {
    pub(super) fn new(turn: &'a mut AgentTurn, api: &'static str) -> ArrivingAnswer<'a> {
        ArrivingAnswer { turn, api, parts: Arc::default() }
    }

    pub(super) fn parts(&self) -> Arc<Mutex<ReceivedParts>> {
        self.parts.clone()
    }

    /// Ends the answer, complete or failed; returns the tools of the calls that had started.
    pub(super) fn finish(self) -> Vec<String> {
        mem::take(&mut *self.parts.lock()).tools
    }
}

impl Drop for ArrivingAnswer<'_> {
    fn drop(&mut self) {
        let ReceivedParts { text, tools } = mem::take(&mut *self.parts.lock());
        if text.trim().is_empty() {
            return;
        }
        if let Err(error) = self.turn.record_interrupted(text, &tools, self.api) {
            tracing::warn!(%error, "cannot record the interrupted answer; its text is lost");
        }
    }
}

impl AgentTurn {
    /// Records the text of an answer that was interrupted. Calls that had started are left out: none of them ran.
    fn record_interrupted(
        &mut self,
        text: String,
        tools: &[String],
        api: &str,
    ) -> Result<(), SessionError> {
        let chars = text.chars().count() as u64;
        let now_ms = self.state.clock().now_ms();
        let model = self.cursor.model();
        let answer = AssistantMessage {
            provider: model.provider.clone(),
            model: model.id.clone(),
            stop_reason: StopReason::Aborted,
            timestamp: now_ms,
            ..AssistantMessage::new(api, vec![ChatBlock::text(text)])
        };
        let note = match tools {
            [] => "[The user interrupted your answer above before its end.]".to_owned(),
            tools => format!(
                "[The user interrupted your answer above before its end. {} did not run.]",
                describe_calls("Its", tools)
            ),
        };
        let session = self.guard.active_mut().context.session_mut();
        let answer = RecordBody::from_message(&ChatMessage::Assistant(answer))?;
        session.append_all([answer, custom_message(&note)], now_ms)?;
        session.sync()?;
        let chars = group_thousands(chars);
        let why = format!(
            "interrupted; the session keeps the {chars} characters of the answer so far; send `continue` to resume"
        );
        self.guard.emit(EventKind::AnswerIncomplete { why });
        Ok(())
    }

    /// Reports an answer that ended before its end, to the user and, if calls were lost, to the model.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoText`] if the answer has no text.
    pub(super) fn report_incomplete(&mut self, answer: &AssistantMessage) -> Result<(), TurnError> {
        let why = match answer.stop_reason {
            StopReason::Length => self.report_cut(answer)?,
            StopReason::Error => format!(
                "the provider ended the answer before its end (stop reason `{}`); change the message, or use another \
                 model",
                answer.raw_stop_reason
            ),
            _ => return Ok(()),
        };
        if answer.text().trim().is_empty() {
            return Err(TurnError::NoText { model: self.cursor.model().to_string(), why });
        }
        self.guard.emit(EventKind::AnswerIncomplete { why });
        Ok(())
    }

    /// Describes an answer that reached the output limit. Its calls do not run, since the last one may lack arguments.
    fn report_cut(&mut self, answer: &AssistantMessage) -> Result<String, SessionError> {
        let called = answer.tool_calls().map(|call| call.name.clone());
        // Decoders drop an incomplete call, which has started all the same.
        let lost = match mem::take(&mut self.started_calls) {
            started if started.is_empty() => called.collect(),
            started => started,
        };
        let limit = self.describe_output_limit(answer.usage.output);
        if lost.is_empty() {
            return Ok(format!(
                "the answer was cut off at the output limit, {limit}; send `continue`, or raise the limit"
            ));
        }
        let calls = describe_calls("Its", &lost);
        let note = format!(
            "[Your answer above was cut off at the output limit, {limit}. {calls} did not run. Call again with less \
             text in one call.]"
        );
        let now_ms = self.state.clock().now_ms();
        let session = self.guard.active_mut().context.session_mut();
        session.append_all([custom_message(&note)], now_ms)?;
        let calls = describe_calls("its", &lost);
        Ok(format!(
            "the answer was cut off at the output limit, {limit}; {calls} did not run; send `continue`, or raise the \
             limit"
        ))
    }

    /// The limit of the last request, with its setting.
    fn describe_output_limit(&self, output_tokens: u64) -> String {
        let configured_tokens = self.state.settings.max_output_tokens;
        let configured = group_thousands(configured_tokens);
        let limit = if self.asked_output_tokens < configured_tokens {
            let asked = group_thousands(self.asked_output_tokens);
            format!("{asked} tokens in this request (agent.max_output_tokens is {configured})")
        } else {
            format!("{configured} tokens (agent.max_output_tokens)")
        };
        // Servers may have a lower limit of their own.
        if (1..self.asked_output_tokens).contains(&output_tokens) {
            format!("{limit}, after {} tokens", group_thousands(output_tokens))
        } else {
            limit
        }
    }
}

fn custom_message(text: &str) -> RecordBody {
    RecordBody::custom_message(MESSAGE_TYPE, text, true)
}

/// `Its call of a`, `Its calls of a, b`.
fn describe_calls(whose: &str, tools: &[String]) -> String {
    let noun = if tools.len() == 1 { "call" } else { "calls" };
    format!("{whose} {noun} of {}", tools.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ctxhost_session::Session;
    use serde_json::json;

    use super::*;
    use crate::Runtime;
    use crate::testing::{
        Answer, RecordingEngine, ScriptedProvider, builder, config, newest, session,
    };

    async fn runtime(name: &str, client: &Arc<ScriptedProvider>) -> Runtime {
        let config = config("[agent]\nmax_output_tokens = 2000\n");
        builder(&config, client, RecordingEngine::spec(name, json!({}))).build().await.unwrap()
    }

    /// What the runtime reports of incomplete answers.
    fn reports(runtime: &Runtime) -> Arc<Mutex<Vec<String>>> {
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = reports.clone();
        runtime.add_listener(Arc::new(move |event| {
            if let EventKind::AnswerIncomplete { why } = &event.kind {
                log.lock().push(why.clone());
            }
        }));
        reports
    }

    fn texts(client: &ScriptedProvider) -> Vec<String> {
        let requests = client.requests.lock().unwrap();
        let text = |message: &ChatMessage| match message.content().first() {
            Some(ChatBlock::Text { text, .. }) => text.clone(),
            _ => String::new(),
        };
        requests.last().unwrap().messages.iter().map(text).collect()
    }

    #[tokio::test]
    async fn a_text_that_is_cut_off_names_the_limit() {
        let client = ScriptedProvider::new(|_| Answer::Cut("The first half", None));
        let runtime = runtime("cut-text", &client).await;
        let folder = tempfile::tempdir().unwrap();
        let id = session(&runtime, &folder);
        let reports = reports(&runtime);
        let reply = runtime.send(&id, "Write it").await.unwrap();
        assert_eq!(reply.message.text(), "The first half");
        let expected = "the answer was cut off at the output limit, 2,000 tokens \
                        (agent.max_output_tokens); send `continue`, or raise the limit";
        assert_eq!(*reports.lock(), [expected]);
        runtime.send(&id, "continue").await.unwrap();
        assert_eq!(texts(&client), ["Write it", "The first half", "continue"]);
    }

    #[tokio::test]
    async fn a_call_that_is_cut_off_is_named_to_the_user_and_the_model() {
        let client = ScriptedProvider::new(|_| Answer::Cut("I write it.", Some("write_file")));
        let runtime = runtime("cut-call", &client).await;
        let folder = tempfile::tempdir().unwrap();
        let id = session(&runtime, &folder);
        let reports = reports(&runtime);
        runtime.send(&id, "Write it").await.unwrap();
        assert!(reports.lock()[0].contains("its call of write_file did not run"), "{reports:?}");
        runtime.send(&id, "continue").await.unwrap();
        let texts = texts(&client);
        assert_eq!(texts.len(), 4, "{texts:?}");
        assert!(texts[2].contains("Its call of write_file did not run"), "{texts:?}");
    }

    #[tokio::test]
    async fn a_cut_answer_without_text_is_an_error() {
        for (name, tool) in [("cut-only", Some("write_file")), ("cut-nothing", None)] {
            let client = ScriptedProvider::new(move |_| Answer::Cut("", tool));
            let runtime = runtime(name, &client).await;
            let folder = tempfile::tempdir().unwrap();
            let id = session(&runtime, &folder);
            let error = runtime.send(&id, "Write it").await.unwrap_err().to_string();
            assert!(error.contains("scripted/model"), "{error}");
            assert!(error.contains("2,000 tokens (agent.max_output_tokens)"), "{error}");
            assert_eq!(error.contains("write_file"), tool.is_some(), "{error}");
        }
    }

    #[tokio::test]
    async fn an_interrupted_answer_is_kept_and_the_model_knows_it() {
        let client = ScriptedProvider::new(|request| match newest(request).as_str() {
            "Tell me" => Answer::Unfinished("Once upon a", Some("write_file")),
            _ => Answer::Text("a time".into()),
        });
        let runtime = runtime("interrupted", &client).await;
        let folder = tempfile::tempdir().unwrap();
        let id = session(&runtime, &folder);
        let reports = reports(&runtime);
        let turn = runtime.send(&id, "Tell me");
        assert!(tokio::time::timeout(Duration::from_millis(300), turn).await.is_err());
        assert!(reports.lock()[0].contains("keeps the 11 characters"), "{reports:?}");
        runtime.send(&id, "continue").await.unwrap();
        let texts = texts(&client);
        assert_eq!((texts.len(), texts[1].as_str()), (4, "Once upon a"), "{texts:?}");
        assert!(texts[2].contains("interrupted your answer"), "{texts:?}");
        runtime.shutdown().await;
        drop(runtime);
        let file = std::fs::read_to_string(folder.path().join("session.jsonl")).unwrap();
        assert_eq!(file.matches(r#""stopReason":"aborted""#).count(), 1, "{file}");
        Session::open(&folder.path().join("session.jsonl")).unwrap();
    }

    #[tokio::test]
    async fn an_interruption_before_any_text_records_nothing() {
        let client = ScriptedProvider::new(|_| Answer::Unfinished("", None));
        let runtime = runtime("silent", &client).await;
        let folder = tempfile::tempdir().unwrap();
        let id = session(&runtime, &folder);
        let turn = runtime.send(&id, "Tell me");
        assert!(tokio::time::timeout(Duration::from_millis(200), turn).await.is_err());
        let file = std::fs::read_to_string(folder.path().join("session.jsonl")).unwrap();
        assert!(!file.contains("aborted") && !file.contains("incomplete_answer"), "{file}");
    }
}

//! Nodes written by the configured model, in the background and never required.
//!
//! A node of the first depth is written from the entries of its leaves, a deeper one from the nodes
//! below. The extract stays until the model's text passed the checks.

use ctxhost_engine_api::{CallId, EngineError, ErrorKind, Host, Result, SessionRef, Transcript};
use ctxhost_engine_kit::prompt::{RULES, SummaryPrompt};
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::summariser::{attempt, has_model, request_summary};
use ctxhost_text::redact::redacted_ends;
use ctxhost_text::search::distinct_terms;
use ctxhost_text::truncate::{head_and_tail, one_line};

use crate::node::NodeId;
use crate::session::DagSession;
use crate::settings::Settings;

/// Of a longer entry, in weighted characters, a model reads head and end.
const HEAD_CHARS: u64 = 1_200;
const END_CHARS: u64 = 400;
/// All of a request, in weighted characters: twelve thousand tokens.
const REQUEST_CHARS: u64 = 48_000;
/// Share of a text's terms that its sources must have.
// A model that refuses, or writes about something else, shares far fewer.
const COMMON_TERMS_SHARE: f64 = 0.4;
/// Upper limit of an answer, as a multiple of the text that is kept of it.
const ANSWER_FACTOR: u64 = 3;

/// A node to write, and what it is written from.
struct WritingTask {
    id: NodeId,
    fingerprint: u64,
    source: String,
}

/// Has the model write some nodes; returns how many were written.
pub(crate) async fn write_nodes(
    host: &Host,
    sessions: &SessionMap<DagSession>,
    transcript: &Transcript,
    (call, session, now_ms): (CallId, &SessionRef, i64),
    settings: &Settings,
) -> Result<u64> {
    let mut written = 0;
    if !has_model(host) {
        return Ok(0);
    }
    for _ in 0..settings.model_nodes {
        let task = sessions.with_session(session, |state| {
            let limit = u32::try_from(settings.breaker_failures).unwrap_or(u32::MAX);
            let open = state.model_failures.open_ms(now_ms, limit, settings.breaker_cooldown_ms);
            open.is_none().then(|| state.next_task(transcript, settings)).flatten()
        });
        let Some(task) = task else { break };
        let text = attempt(host, write(host, call, &task, settings)).await?;
        sessions.with_session(session, |state| match text {
            Ok(text) => {
                state.model_failures.record_success();
                state.set_written(&task, text, settings);
                written += 1;
            }
            // The extractive text stays; a model only ever improves it.
            Err(_) => state.model_failures.record_failure(now_ms),
        });
    }
    Ok(written)
}

async fn write(
    host: &Host,
    call: CallId,
    task: &WritingTask,
    settings: &Settings,
) -> Result<String> {
    let limit_tokens = settings.node_text_tokens;
    let mut prompt = SummaryPrompt::default();
    prompt.add_text(format!(
        "Summarise this part of a conversation in one paragraph of at most {limit_tokens} tokens: what the user asked, what was decided and done, what failed, what is open. {RULES}"
    ));
    prompt.add_data("part", &task.source);
    let request = prompt.to_request(&settings.model, limit_tokens * ANSWER_FACTOR);
    let text = one_line(&request_summary(host, call, request).await?.text);
    check(&text, &task.source).map(|()| text)
}

/// Refuses a text that is not about its source.
fn check(text: &str, source: &str) -> Result<()> {
    let source = distinct_terms(source);
    let terms = distinct_terms(text);
    let common = terms.iter().filter(|term| source.contains(term)).count();
    if (common as f64) < terms.len() as f64 * COMMON_TERMS_SHARE || common == 0 {
        let message =
            format!("the summary shares {common} of {} terms with its source", terms.len());
        return Err(EngineError::new(ErrorKind::ModelEmpty, message));
    }
    Ok(())
}

impl DagSession {
    /// The oldest node above the leaves that no model has written, deepest last.
    fn next_task(&self, transcript: &Transcript, settings: &Settings) -> Option<WritingTask> {
        let levels = self.tree.levels().iter().enumerate().skip(1);
        // Leaves stay extractive: there are many, and their sources are one call away.
        let mut open = levels.flat_map(|(depth, level)| {
            let nodes = level.iter().enumerate().filter(|(_, node)| node.written.is_none());
            nodes.map(move |(index, _)| NodeId { depth, index })
        });
        open.find_map(|id| {
            let source = self.source_text(transcript, id, settings);
            let fingerprint = self.tree.get(id)?.fingerprint;
            (!source.is_empty()).then_some(WritingTask { id, fingerprint, source })
        })
    }

    fn source_text(&self, transcript: &Transcript, id: NodeId, settings: &Settings) -> String {
        let mut parts = Vec::new();
        for source in self.tree.sources(id, settings) {
            if source.depth > 0 || source.index < self.folded {
                parts.extend(self.tree.get(source).map(|node| node.text.clone()));
                continue;
            }
            let live = self.index.groups().get(source.index).cloned().unwrap_or_default();
            for entry in transcript.range(u64::from(live.start)..u64::from(live.end)) {
                let text = redacted_ends(entry.text(), HEAD_CHARS, END_CHARS, "\n[…]\n");
                parts.push(format!("[{}]\n{}", entry.role().name(), text));
            }
        }
        head_and_tail(&parts.join("\n"), REQUEST_CHARS / 2, REQUEST_CHARS / 2, "\n[…]\n")
            .into_owned()
    }

    fn set_written(&mut self, task: &WritingTask, text: String, settings: &Settings) {
        let id = task.id;
        // The transcript may have changed while the model wrote.
        let node = self.tree.get_mut(id).filter(|node| node.fingerprint == task.fingerprint);
        let Some(node) = node else { return };
        node.written = Some(text);
        node.render(settings.node_text_tokens);
        self.rendered_lines.get_mut().remove(&id);
        self.mark_changed(id.depth, id.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_about_something_else_is_refused() {
        let source = "The user asked to move the cache to src/cache.rs and to run the tests.";
        assert!(check("The cache was moved to src/cache.rs.", source).is_ok());
        assert!(check("I cannot help with this request, sorry.", source).is_err());
        assert!(check("", source).is_err());
    }
}

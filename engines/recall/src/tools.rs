//! The engine's tools: search the history, and expand an entry.

use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::{
    EngineError, ErrorKind, Result, ToolAnswer, ToolCallRequest, ToolSpec, Transcript,
};
use ctxhost_engine_kit::retrieval::{
    EXPAND, SEARCH, SearchQuery, failure, number_argument, render_entry, search_limit, search_tool,
    text_argument,
};
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::clip;

use crate::session::RecallSession;

/// Maximum length of an expanded entry, in weighted characters: two thousand tokens.
const EXPAND_CHARS: u64 = 8_000;
/// Maximum neighbours of an expanded entry.
const MOST_AROUND: u64 = 5;

/// The tool definitions for the model.
pub(crate) fn tool_specs() -> Vec<ToolSpec> {
    vec![
        search_tool(
            "Search this conversation, including the entries that were left out and what compactions removed. Answers excerpts with the ids of their entries.",
        ),
        ToolSpec {
            name: EXPAND.into(),
            description:
                "Show one entry of this conversation in full, with its neighbours if wanted.".into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "The id that context_search answered." },
                    "around": { "type": "integer", "minimum": 0, "maximum": MOST_AROUND },
                },
                "required": ["id"],
            }),
        },
    ]
}

impl RecallSession {
    /// Answers a tool call.
    pub(crate) fn call_tool(
        &self,
        transcript: &Transcript,
        request: &ToolCallRequest,
    ) -> Result<ToolAnswer> {
        let arguments = &request.arguments;
        match request.name.as_str() {
            SEARCH => Ok(self.search_text(transcript, arguments)),
            EXPAND => {
                let around = number_argument(arguments, "around").unwrap_or(0).min(MOST_AROUND);
                Ok(expanded(self, transcript, text_argument(arguments, "id"), around))
            }
            other => Err(EngineError::new(
                ErrorKind::Unsupported,
                format!("engine recall has no tool {other:?}"),
            )),
        }
    }

    fn search_text(&self, transcript: &Transcript, arguments: &Value) -> ToolAnswer {
        let (query, limit) = match search_limit(arguments) {
            Ok(query) => query,
            Err(answer) => return answer,
        };
        let query = SearchQuery::new(query, "");
        let mut hits = self.index.hits(transcript, &query, limit, |_| String::new());
        if let Some(folded) = &self.folded {
            let index = &folded.session.index;
            hits.extend(index.hits(&folded.transcript, &query, limit, |_| String::new()));
            // The sort is stable: of equal hits the one that was not folded comes first.
            hits.sort_by(|left, right| right.0.total_cmp(&left.0));
        }
        let lines: Vec<String> =
            hits.into_iter().take(limit as usize).map(|(_, line)| line).collect();
        let text = if lines.is_empty() { "nothing found".into() } else { lines.join("\n") };
        ToolAnswer { text, is_error: false }
    }

    /// The transcript that contains an entry, and its position: the live one, or the folded entries.
    fn find_entry<'t>(
        &'t self,
        transcript: &'t Transcript,
        id: &str,
    ) -> Option<(&'t Transcript, u64)> {
        let all = [Some(transcript), self.folded.as_ref().map(|folded| &folded.transcript)];
        all.into_iter().flatten().find_map(|transcript| {
            let entry = transcript.iter().find(|entry| entry.id() == id)?;
            Some((transcript, entry.seq()))
        })
    }
}

fn expanded(session: &RecallSession, transcript: &Transcript, id: &str, around: u64) -> ToolAnswer {
    let Some((transcript, seq)) = session.find_entry(transcript, id) else {
        return failure(&format!(
            "no entry {id:?} in this conversation; take an id that {SEARCH} answered"
        ));
    };
    let range = seq.saturating_sub(around)..seq.saturating_add(around + 1);
    let share_chars = EXPAND_CHARS / (2 * around + 1);
    let shown = transcript.range(range).map(|entry| {
        format!(
            "[{} {}]\n{}",
            entry.id(),
            entry.role().name(),
            clip(&redact(&render_entry(&entry)), share_chars)
        )
    });
    ToolAnswer { text: shown.collect::<Vec<_>>().join("\n"), is_error: false }
}

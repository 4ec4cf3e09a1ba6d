//! The engine's tools: search the history, and expand an entry.

use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::{
    EngineError, ErrorKind, Result, ToolAnswer, ToolCallRequest, ToolSpec, Transcript,
};
use ctxhost_engine_kit::redact::{SecretRanges, redact};
use ctxhost_engine_kit::text::{clip, one_line};

use crate::ranking::SearchQuery;
use crate::session::RecallSession;

/// Names of the tools.
const SEARCH: &str = "context_search";
const EXPAND: &str = "context_expand";
/// Hits of a search: default and maximum.
const HITS: u64 = 8;
const MOST_HITS: u64 = 30;
/// Length of a hit, in weighted characters.
const HIT_CHARS: u64 = 400;
/// Maximum length of an expanded entry, in weighted characters: two thousand tokens.
const EXPAND_CHARS: u64 = 8_000;
/// Maximum neighbours of an expanded entry.
const MOST_AROUND: u64 = 5;

/// The tool definitions for the model.
pub(crate) fn tool_specs() -> Vec<ToolSpec> {
    vec![
        ToolSpec {
            name: SEARCH.into(),
            description: "Search this conversation, including everything that is no longer in view and what compactions removed. Answers excerpts with the ids of their entries.".into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "query": { "type": "string", "description": "Words, names or paths to look for." },
                    "limit": { "type": "integer", "minimum": 1, "maximum": MOST_HITS },
                },
                "required": ["query"],
            }),
        },
        ToolSpec {
            name: EXPAND.into(),
            description: "Show one entry of this conversation in full, with its neighbours if wanted.".into(),
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
        let text =
            |name: &str| request.arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| request.arguments.get(name).and_then(Value::as_u64);
        match request.name.as_str() {
            SEARCH => {
                let limit = number("limit").unwrap_or(HITS).clamp(1, MOST_HITS);
                Ok(self.search_text(transcript, text("query"), limit))
            }
            EXPAND => {
                let around = number("around").unwrap_or(0).min(MOST_AROUND);
                Ok(expanded(self, transcript, text("id"), around))
            }
            other => Err(EngineError::new(
                ErrorKind::Unsupported,
                format!("engine recall has no tool {other:?}"),
            )),
        }
    }

    fn search_text(&self, transcript: &Transcript, query: &str, limit: u64) -> ToolAnswer {
        if query.trim().is_empty() {
            return failure("query is empty; give words, names or paths to look for");
        }
        let query = SearchQuery::new(query, "");
        let mut hits = self.hits(transcript, &query, limit);
        if let Some(folded) = &self.folded {
            hits.extend(folded.session.hits(&folded.transcript, &query, limit));
            // The sort is stable: of equal hits the one that was not folded comes first.
            hits.sort_by(|left, right| right.0.total_cmp(&left.0));
        }
        let lines: Vec<String> =
            hits.into_iter().take(limit as usize).map(|(_, line)| line).collect();
        let text = if lines.is_empty() { "nothing found".into() } else { lines.join("\n") };
        ToolAnswer { text, is_error: false }
    }

    /// The best slices for a query with their scores, as lines.
    fn hits(&self, transcript: &Transcript, query: &SearchQuery, limit: u64) -> Vec<(f32, String)> {
        let ranked = self.rank(query).into_iter().filter(|(_, score)| *score > 0.0);
        let lines = ranked.take(limit as usize).filter_map(|(number, score)| {
            let slice = self.slices.get(number as usize)?;
            let entry = transcript.get(u64::from(slice.entry))?;
            // Searched in the whole text, so that a part of a secret is recognised.
            let mut text = String::new();
            SecretRanges::new(entry.text()).quote(slice.range(), &mut text);
            let text = clip(&one_line(&text), HIT_CHARS).into_owned();
            Some((score, format!("[{} {}] {text}", entry.id(), entry.role().name())))
        });
        lines.collect()
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
        let calls = entry.tool_calls();
        let calls = calls
            .iter()
            .map(|call| format!("\n{} {}", call.name, call.arguments))
            .collect::<String>();
        format!(
            "[{} {}]\n{}",
            entry.id(),
            entry.role().name(),
            clip(&redact(&format!("{}{calls}", entry.text())), share_chars)
        )
    });
    ToolAnswer { text: shown.collect::<Vec<_>>().join("\n"), is_error: false }
}

fn failure(message: &str) -> ToolAnswer {
    ToolAnswer { text: message.to_owned(), is_error: true }
}

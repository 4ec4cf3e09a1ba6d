//! The tools of a retrieving engine: `context_search`, and what it shares with `context_expand`.

use ctxhost_engine_api::{Entry, ToolAnswer, ToolSpec, Transcript};
use serde_json::{Value, json};

use ctxhost_text::redact::SecretRanges;
use ctxhost_text::truncate::{clip, one_line};

use super::history_index::{HistoryIndex, TextSlice};
use super::query::SearchQuery;

/// Names of the tools.
pub const SEARCH: &str = "context_search";
/// Shows what an id leads to.
pub const EXPAND: &str = "context_expand";
/// Length of a hit, in weighted characters.
pub const HIT_CHARS: u64 = 400;
/// Hits of a search: default and maximum.
const HITS: u64 = 8;
const MOST_HITS: u64 = 30;

/// The definition of `context_search`.
pub fn search_tool(description: &str) -> ToolSpec {
    ToolSpec {
        name: SEARCH.into(),
        description: description.into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "Words, names or paths to look for." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MOST_HITS },
            },
            "required": ["query"],
        }),
    }
}

/// The query of a call and the number of hits it wants.
///
/// # Errors
///
/// The answer to a call without a query.
pub fn search_limit(arguments: &Value) -> Result<(&str, u64), ToolAnswer> {
    let query = text_argument(arguments, "query");
    if query.trim().is_empty() {
        return Err(failure("query is empty; give words, names or paths to look for"));
    }
    Ok((query, number_argument(arguments, "limit").unwrap_or(HITS).clamp(1, MOST_HITS)))
}

impl HistoryIndex {
    /// The best slices for a query with their scores, as lines: `[id role] text`, with what `place` adds to
    /// the role.
    pub fn hits(
        &self,
        transcript: &Transcript,
        query: &SearchQuery,
        limit: u64,
        place: impl Fn(&TextSlice) -> String,
    ) -> Vec<(f32, String)> {
        let ranked = self.rank(query).slices;
        let ranked = ranked.iter().filter(|(_, score)| *score > 0.0);
        let lines = ranked.take(limit as usize).filter_map(|(number, score)| {
            let slice = self.slices.get(number as usize)?;
            let entry = transcript.get(u64::from(slice.entry))?;
            // Searched in the whole text, so that a part of a secret is recognised.
            let mut text = String::new();
            SecretRanges::new(entry.text()).quote(slice.range(), &mut text);
            let text = clip(&one_line(&text), HIT_CHARS).into_owned();
            let (id, role, place) = (entry.id(), entry.role().name(), place(slice));
            Some((score, format!("[{id} {role}{place}] {text}")))
        });
        lines.collect()
    }
}

/// The text of an entry and its calls.
pub fn render_entry(entry: &Entry<'_>) -> String {
    let calls = entry.tool_calls();
    let calls = calls.iter().map(|call| format!("\n{} {}", call.name, call.arguments));
    format!("{}{}", entry.text(), calls.collect::<String>())
}

/// An argument of a call; empty without it.
pub fn text_argument<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number of a call.
pub fn number_argument(arguments: &Value, name: &str) -> Option<u64> {
    arguments.get(name).and_then(Value::as_u64)
}

/// An answer that says why there is none.
pub fn failure(message: &str) -> ToolAnswer {
    ToolAnswer { text: message.to_owned(), is_error: true }
}

//! The terms to search for: the prompt's, and with less weight those of the running calls.

use std::borrow::Cow;
use std::collections::HashSet;

use ctxhost_engine_api::Transcript;

use crate::cuts::trailing_frame;
use ctxhost_text::injected_text::request_text;
use ctxhost_text::search::for_each_term;

use super::HistoryIndex;

/// Weight of terms from the context.
const CONTEXT_WEIGHT: f32 = 0.3;
/// Bytes of the newest calls that are added to the query.
const CONTEXT_BYTES: usize = 1_000;

/// A weighted set of terms.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    pub(super) terms: Vec<(u64, f32)>,
}

impl SearchQuery {
    /// The terms of a prompt, and with less weight those of the current work.
    pub fn new(prompt: &str, context: &str) -> SearchQuery {
        let mut seen = HashSet::new();
        let mut terms = Vec::new();
        for (text, weight) in [(prompt, 1.0), (context, CONTEXT_WEIGHT)] {
            for_each_term(text, |term| {
                // A term in both parts counts with the weight of the prompt.
                if seen.insert(term) {
                    terms.push((term, weight));
                }
            });
        }
        SearchQuery { terms }
    }
}

impl HistoryIndex {
    /// The prompt, or the newest user message inside a tool loop.
    pub fn query_words<'t>(&self, transcript: &'t Transcript, prompt: &'t str) -> Cow<'t, str> {
        if !prompt.trim().is_empty() {
            return prompt.into();
        }
        let newest = self.newest_user.and_then(|seq| transcript.get(seq));
        newest.map_or_else(Cow::default, |entry| request_text(&entry))
    }

    /// Builds the query from the prompt and the current calls.
    pub fn build_query(&self, transcript: &Transcript, prompt: &str) -> SearchQuery {
        let prompt = self.query_words(transcript, prompt);
        let live = trailing_frame(transcript);
        let mut context = String::new();
        let running = transcript.range(live..transcript.len() as u64);
        for call in running.flat_map(|entry| entry.tool_calls()) {
            context.push_str(&call.arguments);
            context.push(' ');
        }
        // The newest calls may write whole files.
        context.truncate(context.floor_char_boundary(CONTEXT_BYTES));
        SearchQuery::new(&prompt, &context)
    }
}

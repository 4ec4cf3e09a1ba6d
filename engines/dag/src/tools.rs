//! The engine's tools: search the history, and expand a node or an entry to its sources.

use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{
    Entry, HistoryEntry, Host, SessionRef, ToolAnswer, ToolCallRequest, ToolSpec, Transcript,
    capability,
};
use ctxhost_engine_kit::retrieval::{
    EXPAND, SEARCH, SearchQuery, TextSlice, failure, number_argument, read_history, render_entry,
    search_limit, search_tool, text_argument,
};
use ctxhost_engine_kit::store::has_capability;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{clip, prefix};

use crate::node::{NodeId, ROOT};
use crate::session::DagSession;
use crate::settings::Settings;

/// Size of an answer in tokens: default and maximum.
const EXPAND_TOKENS: u64 = 2_000;
const MOST_TOKENS: u64 = 8_000;
/// Weighted characters of an entry's header.
const HEADER_CHARS: u64 = 60;

/// The tool definitions for the model.
pub(crate) fn tool_specs() -> Vec<ToolSpec> {
    vec![
        search_tool("Search this conversation, including what has left the view. Answers excerpts with the ids of their entries or summaries."),
        ToolSpec {
            name: EXPAND.into(),
            description: "Show the sources of a summary of this conversation (id such as d1-3, or root), or one of its entries in full.".into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "The id of a summary or an entry." },
                    "from": { "type": "integer", "minimum": 0, "description": "Where to continue a long entry, as the last answer said." },
                    "tokens": { "type": "integer", "minimum": 1, "maximum": MOST_TOKENS },
                },
                "required": ["id"],
            }),
        },
    ]
}

/// What an id of `context_expand` leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeSources {
    /// The lines of the nodes below.
    Nodes(Vec<String>),
    /// The ids of the entries of a leaf.
    Entries(Vec<String>),
}

impl DagSession {
    /// The sources of a node; `None` for an id that names no node.
    pub(crate) fn sources_of(&self, id: &str, settings: &Settings) -> Option<NodeSources> {
        let draft_id = NodeId::leaf(self.tree.leaves());
        let draft = || self.draft.finish(settings);
        let line = |id: NodeId| Some(self.tree.get(id)?.line(&id.to_string()));
        if id == ROOT {
            let cover = self.tree.cover(0..self.tree.leaves(), settings);
            let mut lines: Vec<String> = cover.into_iter().filter_map(line).collect();
            if !self.draft.is_empty() {
                lines.push(draft().line(&draft_id.to_string()));
            }
            return Some(NodeSources::Nodes(lines));
        }
        let id = NodeId::parse(id)?;
        if id.depth > 0 {
            self.tree.get(id)?;
            let below = self.tree.sources(id, settings);
            return Some(NodeSources::Nodes(below.into_iter().filter_map(line).collect()));
        }
        let leaf = self.tree.get(id).or_else(|| self.folded_draft_of(id)).cloned();
        let leaf = leaf.or_else(|| (id == draft_id && !self.draft.is_empty()).then(draft))?;
        Some(NodeSources::Entries(leaf.sources))
    }

    /// Answers a search.
    pub(crate) fn search(&self, transcript: &Transcript, arguments: &Value) -> ToolAnswer {
        let (query, limit) = match search_limit(arguments) {
            Ok(query) => query,
            Err(answer) => return answer,
        };
        let query = SearchQuery::new(query, "");
        let leaf = |slice: &TextSlice| format!(", in {}", NodeId::leaf(slice.group as usize));
        let mut hits = self.index.hits(transcript, &query, limit, leaf);
        let mut folded = self.folded_hits(&self.index.rank(&query));
        // Scores of leaves and slices are not comparable: folded leaves get half of the answer.
        let most_folded = if hits.is_empty() { limit } else { limit.div_ceil(2) } as usize;
        folded.truncate(most_folded);
        hits.truncate((limit as usize).saturating_sub(folded.len()));
        let lines = hits.into_iter().map(|(_, line)| line);
        let folded = folded.into_iter().map(NodeId::leaf);
        let folded = folded.filter_map(|id| Some(self.tree.get(id)?.line(&id.to_string())));
        let lines: Vec<String> = lines.chain(folded).collect();
        let text = if lines.is_empty() { "nothing found".into() } else { lines.join("\n") };
        ToolAnswer { text, is_error: false }
    }
}

/// Answers `context_expand` for an id whose sources are given, or for an entry.
pub(crate) async fn expand(
    host: &Host,
    transcript: &Transcript,
    request: &ToolCallRequest,
    sources: Option<NodeSources>,
) -> ToolAnswer {
    let id = text_argument(&request.arguments, "id").trim();
    let tokens = number_argument(&request.arguments, "tokens").unwrap_or(EXPAND_TOKENS);
    // The answer is a tool result itself: unbounded, it would fill the window that it is to relieve.
    let limit_chars = tokens.clamp(1, MOST_TOKENS) * 4;
    let from = number_argument(&request.arguments, "from").unwrap_or(0);
    let ids = match sources {
        Some(NodeSources::Nodes(lines)) => {
            return ToolAnswer { text: clip_lines(&lines, limit_chars), is_error: false };
        }
        Some(NodeSources::Entries(ids)) => ids,
        None => vec![id.to_owned()],
    };
    let found = find_entries(host, transcript, &request.session, &ids).await;
    if found.is_empty() {
        return failure(&format!(
            "no summary or entry {id:?} in this conversation; take an id of the outline, root, or one that {SEARCH} answered"
        ));
    }
    // Of several entries each gets a part; the rest of one is shown by its own id.
    let from = if ids.len() == 1 { from } else { 0 };
    let share_chars = limit_chars / found.len() as u64;
    let parts = found.iter().map(|entry| entry.render(from as usize, share_chars));
    ToolAnswer { text: parts.collect::<Vec<_>>().join("\n"), is_error: false }
}

/// The lines that fit; a node that does not fit is named.
fn clip_lines(lines: &[String], limit_chars: u64) -> String {
    let share_chars = limit_chars / (lines.len() as u64).max(1);
    let is_long = lines.iter().map(|line| weighted_chars(line)).sum::<u64>() > limit_chars;
    let shown = lines
        .iter()
        .map(|line| if is_long { clip(line, share_chars).into_owned() } else { line.clone() });
    shown.collect::<Vec<_>>().join("\n")
}

/// An entry as a tool shows it, without secrets.
struct ShownEntry {
    id: String,
    role: String,
    text: String,
}

impl ShownEntry {
    fn new(entry: &Entry<'_>) -> ShownEntry {
        ShownEntry {
            id: entry.id().to_owned(),
            role: entry.role().name().to_owned(),
            text: redact(&render_entry(entry)).into_owned(),
        }
    }

    /// A part of the text from a byte on, with the place of the rest.
    fn render(&self, from: usize, limit_chars: u64) -> String {
        let from = self.text.floor_char_boundary(from.min(self.text.len()));
        let rest = self.text.get(from..).unwrap_or_default();
        let shown = prefix(rest, limit_chars.saturating_sub(HEADER_CHARS).max(HEADER_CHARS), 1);
        let end = from + shown.len();
        let more = if end < self.text.len() {
            format!("\n[{} more bytes: {EXPAND} id {} from {end}]", self.text.len() - end, self.id)
        } else {
            String::new()
        };
        format!("[{} {}]\n{shown}{more}", self.id, self.role)
    }
}

impl From<HistoryEntry> for ShownEntry {
    fn from(entry: HistoryEntry) -> ShownEntry {
        ShownEntry { id: entry.id, role: entry.role, text: redact(&entry.text).into_owned() }
    }
}

/// Entries by id, from the live transcript and else from the host's history.
async fn find_entries(
    host: &Host,
    transcript: &Transcript,
    session: &SessionRef,
    ids: &[String],
) -> Vec<ShownEntry> {
    let is_wanted = |id: &str| ids.iter().any(|wanted| wanted == id);
    let live = transcript.iter().filter(|entry| is_wanted(entry.id()));
    let mut found: Vec<ShownEntry> = live.map(|entry| ShownEntry::new(&entry)).collect();
    if found.len() < ids.len() && has_capability(host, capability::HISTORY) {
        // What a failing host answered before is still of use.
        let (folded, _) = read_history(host, session, |entry| is_wanted(&entry.id)).await;
        let is_new = |entry: &HistoryEntry| !found.iter().any(|known| known.id == entry.id);
        let new: Vec<ShownEntry> =
            folded.into_iter().filter(is_new).map(ShownEntry::from).collect();
        found.extend(new);
    }
    let place = |id: &str| ids.iter().position(|wanted| wanted == id);
    // Live and folded entries come from two places, and a reader expects the order of the conversation.
    found.sort_by_key(|entry| place(&entry.id));
    found
}

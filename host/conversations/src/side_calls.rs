//! Phrases by which clients are recognized when they compact a conversation themselves.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Phrases of clients' summary requests, which no user writes. From request bodies recorded in November 2026, or
/// the client's published source.
const ASKS_FOR_SUMMARY: [(&str, &str); 17] = [
    ("Claude Code", "Your task is to create a detailed summary of the conversation so far"),
    ("Claude Code", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."),
    // Used if its provider has no compaction endpoint.
    ("Codex", "You are performing a CONTEXT CHECKPOINT COMPACTION"),
    ("opencode", "Provide a detailed prompt for continuing our conversation above"),
    ("opencode", "Create a new anchored summary from the conversation history"),
    ("Copilot", "Please create a detailed summary of the conversation so far"),
    ("Hermes", "You are a summarization agent creating a context checkpoint"),
    ("Qwen Code", "You are the component that summarizes a conversation when its context window"),
    (
        "Qwen Code",
        "First, reason in your <analysis> block. Then, produce the <state_snapshot> XML.",
    ),
    ("Gemini CLI", "First, reason in your scratchpad. Then, generate the <state_snapshot>."),
    (
        "Gemini CLI",
        "You are a specialized system component responsible for distilling chat history",
    ),
    ("Cline", "Summarize this session for continuation. Be concise and factual."),
    ("Cline", "The current conversation is rapidly running out of context. Now, your urgent task"),
    ("Pi, OpenClaw", "The messages above are a conversation to summarize"),
    ("Pi, OpenClaw", "The messages above are NEW conversation messages to incorporate"),
    ("Pi, OpenClaw", "This is the PREFIX of a turn that was too large to keep"),
    ("Crush", "Provide a detailed summary of our conversation above."),
];

/// Phrases at the start of a conversation that a client has summarized.
const FOLLOWS_SUMMARY: [(&str, &str); 7] = [
    ("Claude Code, Cline", "This session is being continued from a previous conversation"),
    ("Codex", "Another language model started to solve this problem and produced a summary"),
    (
        "Pi, OpenClaw",
        "The conversation history before this point was compacted into the following summary",
    ),
    ("Gemini CLI, Qwen Code", "<state_snapshot>"),
    ("Copilot", "Some of the conversation history has been summarized to free up context."),
    ("Hermes", "Earlier turns were compacted into the summary below"),
    // `^`: only at the start, since the phrase is short.
    ("Cline", "^Context summary:"),
];

/// Finds any phrase of a list in one pass: each message of a request is searched for all of them.
type PhraseSearcher = LazyLock<Option<AhoCorasick>>;

static ASKS_SEARCHER: PhraseSearcher = LazyLock::new(|| phrase_searcher(&ASKS_FOR_SUMMARY));
static FOLLOWS_SEARCHER: PhraseSearcher = LazyLock::new(|| phrase_searcher(&FOLLOWS_SUMMARY));

fn phrase_searcher(phrases: &[(&str, &str)]) -> Option<AhoCorasick> {
    AhoCorasick::new(phrases.iter().map(|(_, phrase)| phrase.trim_start_matches('^'))).ok()
}

fn may_contain(searcher: &PhraseSearcher, text: &str) -> bool {
    searcher.as_ref().is_none_or(|searcher| searcher.is_match(text))
}

/// Whether the JSON of an item may contain a summary request. Cheaper than parsing it.
pub fn may_ask_for_summary(json: &str) -> bool {
    may_contain(&ASKS_SEARCHER, json)
}

/// Whether the JSON of an item may contain a client's summary.
pub fn may_follow_summary(json: &str) -> bool {
    may_contain(&FOLLOWS_SEARCHER, json)
}

/// Whether a user text contains a client's summary request.
pub fn asks_for_summary(text: &str) -> bool {
    // Without `^`, so that a match is a phrase.
    may_contain(&ASKS_SEARCHER, text)
}

/// Whether a user text contains a client's summary.
pub fn follows_summary(text: &str) -> bool {
    FOLLOWS_SUMMARY.iter().any(|(_, phrase)| contains_phrase(text, phrase))
}

fn contains_phrase(text: &str, phrase: &str) -> bool {
    match phrase.strip_prefix('^') {
        Some(opening) => text.trim_start().starts_with(opening),
        None => text.contains(phrase),
    }
}

/// All phrases: of requests for a summary, and of summaries.
pub fn phrases() -> (Vec<&'static str>, Vec<&'static str>) {
    let phrase = |(_, phrase): &(&str, &'static str)| phrase.trim_start_matches('^');
    (ASKS_FOR_SUMMARY.iter().map(phrase).collect(), FOLLOWS_SUMMARY.iter().map(phrase).collect())
}

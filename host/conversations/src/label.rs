//! What a conversation is called on the dashboard: its first request, its client and its folder.

use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use ctxhost_engine_api::{Entry, Transcript};
use ctxhost_text::injected_text;
use ctxhost_text::redact::redact;

/// The longest title, in characters.
const TITLE_MAX_CHARS: usize = 72;

/// Characters of a request that are searched for secrets before it is cut to a title.
const SEARCHED_CHARS: usize = 2_000;

/// The longest client or folder name, in characters.
const NAME_MAX_CHARS: usize = 40;

/// The names of clients by the start of their `User-Agent`, in lower case.
const CLIENTS: [(&str, &str); 8] = [
    ("claude-cli", "Claude Code"),
    ("codex", "Codex"),
    ("opencode", "opencode"),
    ("geminicli", "Gemini CLI"),
    ("qwencode", "Qwen Code"),
    ("openclaw", "OpenClaw"),
    ("anthropic/", "Anthropic SDK"),
    ("openai/", "OpenAI SDK"),
];

/// How clients write their working folder into the system prompt or the first message, and what ends it.
const FOLDER_MARKS: [(&str, &[char]); 4] = [
    ("Primary working directory: ", &['\\', '\n', '"']),
    ("Working directory: ", &['\\', '\n', '"']),
    ("Current working directory: ", &['\\', '\n', '"']),
    ("<cwd>", &['<']),
];

/// What a conversation is called. All parts are empty where the client tells nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationLabel {
    /// The beginning of the user's first request.
    pub title: String,
    /// The client.
    pub client: String,
    /// The last part of its working folder.
    pub folder: String,
}

impl ConversationLabel {
    /// Reads it from a request and its conversation.
    pub fn read(headers: &HeaderMap, json: &str, view: &Transcript) -> ConversationLabel {
        let requests = view.iter().filter(Entry::is_user_message);
        let texts = requests.map(|entry| injected_text::user_text(entry.text()));
        let first = texts.into_iter().find(|text| !text.is_empty());
        ConversationLabel {
            title: first.map(|text| title(&text)).unwrap_or_default(),
            client: client_name(headers),
            folder: folder_name(json),
        }
    }
}

/// The beginning of a request, without secrets.
fn title(text: &str) -> String {
    // Before it is cut: a part of a secret is not recognized.
    let searched: String = text.chars().take(SEARCHED_CHARS).collect();
    shorten(&redact(&searched), TITLE_MAX_CHARS)
}

fn client_name(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let lower = agent.to_ascii_lowercase();
    let known = CLIENTS.iter().find(|(start, _)| lower.starts_with(start));
    let product = || agent.split(['/', ' ']).next().unwrap_or_default();
    shorten(known.map_or_else(product, |(_, name)| name), NAME_MAX_CHARS)
}

fn folder_name(json: &str) -> String {
    let path = FOLDER_MARKS.iter().find_map(|(mark, ends)| {
        let at = memchr::memmem::find(json.as_bytes(), mark.as_bytes())?;
        json.get(at + mark.len()..)?.split(*ends).next()
    });
    let name = path.and_then(|path| path.trim().trim_end_matches('/').rsplit('/').next());
    shorten(name.unwrap_or_default(), NAME_MAX_CHARS)
}

/// The first characters of a text, as one line.
fn shorten(text: &str, max_chars: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() > max_chars {
            let kept: String = line.chars().take(max_chars.saturating_sub(1)).collect();
            return format!("{}…", kept.trim_end());
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(agent: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(USER_AGENT, axum::http::HeaderValue::from_static(agent))])
    }

    #[test]
    fn clients_are_named_by_their_user_agent() {
        let of = |agent| client_name(&headers(agent));
        assert_eq!(of("claude-cli/2.0.1 (external, cli)"), "Claude Code");
        assert_eq!(of("codex_cli_rs/0.58.0 (Debian 12)"), "Codex");
        assert_eq!(of("OpenAI/Python 1.51.0"), "OpenAI SDK");
        assert_eq!(of("my-script/1"), "my-script");
        assert_eq!(client_name(&HeaderMap::new()), "");
    }

    #[test]
    fn the_folder_is_the_last_part_of_the_path() {
        let claude = r#"{"system":"<env>\nWorking directory: /home/ann/src/harbour\nIs it"}"#;
        assert_eq!(folder_name(claude), "harbour");
        assert_eq!(folder_name(r#"{"text":"<cwd>/srv/café/</cwd>"}"#), "café");
        assert_eq!(folder_name(r#"{"system":"no folder"}"#), "");
    }

    #[test]
    fn titles_are_one_short_line() {
        let secret = "Deploy key is password=hunter2secretX9 for staging";
        assert_eq!(title(secret), "Deploy key is password=[redacted:credential] for staging");
        assert_eq!(shorten(" Mend\n the  parser ", 72), "Mend the parser");
        let long = shorten(&"ä ".repeat(80), 10);
        assert_eq!(long, "ä ä ä ä ä…");
        assert_eq!(shorten(&"x".repeat(80), 10).chars().count(), 10);
    }
}

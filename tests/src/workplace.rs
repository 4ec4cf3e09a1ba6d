//! A working folder of an agent with scripted providers, and checks of its session.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_agent::RuntimeBuilder;
use ctxhost_config::Config;
use ctxhost_dialects::ChatMessage;
use ctxhost_engine_api::Plan;
use ctxhost_invariants::{InvariantSettings, enforce, verify};
use ctxhost_session::Session;
use tempfile::TempDir;

use crate::rules::Wire;

/// A folder with a config, a few files and a session.
#[derive(Debug)]
pub struct Workplace {
    folder: TempDir,
    config: String,
}

impl Workplace {
    /// A folder with two files in it, and this config.
    pub fn new(config: impl Into<String>) -> Workplace {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Workplace { folder, config: config.into() };
        fs::write(place.path().join("ctxhost.toml"), &place.config).expect("the config");
        fs::write(place.path().join("notes.txt"), "The number is 4711.\n").expect("a file");
        fs::write(place.path().join("long.txt"), "0123456789 abcdef\n".repeat(400))
            .expect("a long file");
        place
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The file of its session.
    pub fn session_path(&self) -> PathBuf {
        self.path().join("session.jsonl")
    }

    /// A runtime as its config says.
    pub fn runtime(&self) -> RuntimeBuilder {
        let config = Config::parse("ctxhost.toml", &self.config);
        RuntimeBuilder::from_config(
            &config.unwrap_or_else(|error| panic!("{error:?}\n{}", self.config)),
        )
    }

    /// Its session, read from the file.
    pub fn session(&self) -> Session {
        lawful_session(&self.session_path())
    }
}

/// The text of a config, put together from its tables.
#[derive(Clone, Debug, Default)]
pub struct ConfigText {
    models: Vec<String>,
    agent: String,
    tables: String,
}

impl ConfigText {
    /// A config without anything.
    pub fn new() -> ConfigText {
        ConfigText::default()
    }

    /// One more provider, with one model of this window. The first is asked first. It does not wait long
    /// before it asks again, so that tests end.
    #[must_use]
    pub fn provider(self, name: &str, wire: Wire, url: &str, window_tokens: u64) -> ConfigText {
        self.provider_with(name, wire, url, window_tokens, "")
    }

    /// The same with more settings of the provider, as lines. A window of 0 is not stated.
    #[must_use]
    pub fn provider_with(
        mut self,
        name: &str,
        wire: Wire,
        url: &str,
        window_tokens: u64,
        more: &str,
    ) -> ConfigText {
        let (dialect, model) = (wire.name(), model_of(wire));
        self.models.push(format!("{name}/{model}"));
        let _ = writeln!(
            self.tables,
            "[providers.{name}]\ndialect = \"{dialect}\"\nbase_url = \"{url}\"\nproxy = \"none\"\n\
             retry_pause_ms = 1\nretry_pause_max_ms = 4\n{more}\n"
        );
        if window_tokens > 0 {
            let _ = writeln!(
                self.tables,
                "[models.\"{name}/{model}\"]\nwindow_tokens = {window_tokens}\n"
            );
        }
        self
    }

    /// More settings of the agent, as lines.
    #[must_use]
    pub fn agent(mut self, lines: &str) -> ConfigText {
        let _ = writeln!(self.agent, "{lines}");
        self
    }

    /// More tables.
    #[must_use]
    pub fn tables(mut self, text: &str) -> ConfigText {
        let _ = writeln!(self.tables, "{text}");
        self
    }

    /// The folder with this config.
    pub fn workplace(self) -> Workplace {
        Workplace::new(self.to_string())
    }
}

impl std::fmt::Display for ConfigText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "[agent]")?;
        if let [first, others @ ..] = self.models.as_slice() {
            writeln!(f, "model = {first:?}\nfallbacks = {others:?}")?;
        }
        write!(f, "{}\n{}", self.agent, self.tables)
    }
}

/// A model that a dialect is usually spoken with.
pub fn model_of(wire: Wire) -> &'static str {
    match wire {
        Wire::OpenAiChat => "gpt-4.1",
        Wire::Responses => "gpt-5",
        Wire::Anthropic => "claude-sonnet-4-5",
        Wire::Gemini => "gemini-3-pro",
        Wire::Ollama => "qwen3:8b",
    }
}

/// A session that opens without a bad line, and of which the whole live transcript can be sent.
pub fn lawful_session(path: &Path) -> Session {
    let session = Session::read(path).unwrap_or_else(|error| panic!("{error}"));
    assert_lawful(&session);
    session
}

/// A session without a bad line, of which the whole live transcript can be sent.
pub fn assert_lawful(session: &Session) {
    assert!(session.problems().is_empty(), "{:?}", session.problems());
    let view = session.live(0).snapshot();
    let lawful =
        enforce(&view, Plan::keep_all(view.len()), u64::MAX, &InvariantSettings::default())
            .unwrap_or_else(|violation| panic!("{violation}"));
    let breaches = verify(&view, &lawful.items(&view), u64::MAX);
    assert!(breaches.is_empty(), "{breaches:?}");
}

/// All messages of a session file, oldest first, whatever was compacted since.
pub fn messages(session: &Session) -> Vec<ChatMessage> {
    let raws = session.branch().into_iter().filter_map(|record| record.message_raw());
    raws.filter_map(|raw| serde_json::from_str(raw).ok()).collect()
}

/// What the person said in a session, oldest first.
pub fn words(session: &Session) -> Vec<String> {
    let of_person = |message: ChatMessage| match message {
        ChatMessage::User(user) => Some(texts(&ChatMessage::User(user))),
        _ => None,
    };
    messages(session).into_iter().filter_map(of_person).collect()
}

/// What the model said in a session, oldest first; of an answer without text an empty one.
pub fn answers(session: &Session) -> Vec<String> {
    let of_model = |message: ChatMessage| match message {
        ChatMessage::Assistant(answer) => Some(answer.text()),
        _ => None,
    };
    messages(session).into_iter().filter_map(of_model).collect()
}

fn texts(message: &ChatMessage) -> String {
    let texts = message.content().iter().filter_map(|block| match block {
        ctxhost_dialects::ChatBlock::Text { text, .. } => Some(text.clone()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

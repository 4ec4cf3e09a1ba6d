//! Generated sessions through invariants, runtime and wire, to providers that check every request.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ctxhost_agent::{Runtime, RuntimeBuilder, TurnError};
use ctxhost_config::Config;
use ctxhost_dialects::{ChatBlock, ChatMessage};
use ctxhost_engine_api::ToolSpec;
use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_session::{RecordBody, Session, SessionError, SessionHeader};
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Step};
use ctxhost_tools::{CallContext, Tool, ToolOutput};
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::conversations::{Speaker, conversations};

/// A window into which every generated session fits.
const WINDOW_TOKENS: u64 = 400_000;

/// A provider that checks, and a runtime that asks one of its models.
struct House {
    server: ScriptedServer,
    runtime: Runtime,
}

impl House {
    async fn new(speaker: Speaker) -> House {
        let mut model = Model::new(WINDOW_TOKENS);
        model.binds_thinking = true;
        let server = ScriptedServer::start(speaker.wire, model).script(script());
        let config = Config::parse("ctxhost.toml", &config(speaker, &server.url())).unwrap();
        let builder =
            RuntimeBuilder::from_config(&config).without_builtin_tools().tool(Arc::new(Look));
        let name = format!("{}/{}", speaker.provider(), speaker.model());
        // An engine that changes nothing of what was sent: thinking here is bound to it.
        let builder = builder.engine("window").model(&name).window_tokens(WINDOW_TOKENS);
        House { server, runtime: builder.build().await.unwrap() }
    }

    /// The rules that were broken so far, each with the number of its request.
    fn broken(&self) -> Vec<String> {
        self.server.broken().iter().map(|(n, broken)| format!("request {n}: {broken}")).collect()
    }

    async fn say_in(&self, session: Session, words: &str) -> Result<(), TurnError> {
        let id = self.runtime.adopt_session(session)?;
        let outcome = self.runtime.send(&id, words).await;
        self.runtime.close_session(&id).await;
        outcome.map(drop)
    }
}

/// Every other request is answered with thinking and two calls, the others with thinking and text.
fn script() -> impl FnMut(&Ask<'_>) -> Vec<Step> + Send + 'static {
    |ask| {
        let look = |at: usize| Step::call("look", json!({ "at": format!("图 {}/{at}", ask.n) }));
        let thought = Step::think(format!("Thought {}: 思考 🤔", ask.n));
        match ask.n % 2 {
            0 => vec![thought, Step::say(format!("Looking, {}.", ask.n)), look(1), look(2)],
            _ => vec![thought, Step::say(format!("Done, {}.", ask.n))],
        }
    }
}

fn config(speaker: Speaker, url: &str) -> String {
    let version = match speaker.wire {
        Wire::OpenAiChat | Wire::Responses => "/v1",
        Wire::Anthropic | Wire::Gemini | Wire::Ollama => "",
    };
    format!(
        "[agent]\nthinking = \"low\"\n[providers.{}]\ndialect = \"{}\"\nbase_url = \"{url}{version}\"\nretries = 0\n",
        speaker.provider(),
        speaker.api(),
    )
}

/// A tool that shows a picture, or fails with one.
#[derive(Debug)]
struct Look;

impl Tool for Look {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "look".to_owned(),
            description: "Looks at something.".to_owned(),
            input_schema: json!({ "type": "object", "properties": { "at": { "type": "string" } },
                "required": ["at"] }),
        }
    }

    fn call<'a>(&'a self, arguments: &'a Value, _: &'a CallContext) -> BoxFuture<'a, ToolOutput> {
        let data = "iVBORw0KGgo=".to_owned();
        let image = ChatBlock::Image { data, mime_type: "image/png".to_owned() };
        let is_error = arguments["at"].as_str().is_some_and(|at| at.ends_with("/2"));
        Box::pin(async move { ToolOutput { blocks: vec![image], is_error } })
    }
}

/// One thread and one house for each dialect, for all cases.
fn houses() -> &'static (tokio::runtime::Runtime, Vec<House>) {
    static HOUSES: OnceLock<(tokio::runtime::Runtime, Vec<House>)> = OnceLock::new();
    HOUSES.get_or_init(|| {
        let tokio = tokio::runtime::Runtime::new().unwrap();
        let houses = tokio.block_on(async {
            let mut houses = Vec::new();
            for wire in Wire::ALL {
                houses.push(House::new(Speaker { wire, second: false }).await);
            }
            houses
        });
        (tokio, houses)
    })
}

fn session(number: u64, raws: &[String]) -> Session {
    let header = SessionHeader::new(Some(&format!("generated-{number}")), "/", 1_765_233_665_000);
    let mut session = Session::in_memory(header);
    for raw in raws {
        session.append_at(RecordBody::message(raw).unwrap(), 1_765_233_665_000).unwrap();
    }
    session
}

/// Says something in a session of these messages, once in each dialect.
fn check(number: u64, raws: &[String]) -> Result<(), TestCaseError> {
    let (tokio, houses) = houses();
    for house in houses {
        let before = house.broken().len();
        let sent = tokio.block_on(house.say_in(session(number, raws), "And now?"));
        let broken = house.broken().split_off(before);
        prop_assert!(broken.is_empty(), "{}", broken.join("\n"));
        prop_assert!(sent.is_ok(), "{sent:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_session_holds_can_be_gone_on_from(
        generated in transcripts(),
        number in any::<u64>(),
    ) {
        let raws: Vec<_> = generated.entries.iter().map(|entry| entry.raw.clone()).collect();
        check(number, &raws)?;
    }

    #[test]
    fn whatever_order_messages_stand_in_the_law_makes_it_one_to_go_on_from(
        messages in unsettled(),
        number in any::<u64>(),
    ) {
        let raw = |message: &ChatMessage| serde_json::to_string(message).unwrap();
        check(number, &messages.iter().map(raw).collect::<Vec<_>>())?;
    }
}

/// Results get lost, come late, or come to nobody: some neighbours change places, some messages go.
fn unsettled() -> impl Strategy<Value = Vec<ChatMessage>> {
    let moves = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..4);
    (conversations(), moves).prop_map(|(mut messages, moves)| {
        for (index, goes) in moves.into_iter().take(messages.len().saturating_sub(1)) {
            let at = index.index(messages.len() - 1);
            if goes { drop(messages.remove(at)) } else { messages.swap(at, at + 1) }
        }
        messages.into_iter().map(of_another_model).collect()
    })
}

/// No provider here has said what was generated, so none may get signatures of it.
fn of_another_model(mut message: ChatMessage) -> ChatMessage {
    if let ChatMessage::Assistant(message) = &mut message {
        message.model.push_str("-older");
    }
    message
}

#[tokio::test]
async fn one_session_goes_from_model_to_model_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    drop(Session::create(&path, "/", None).unwrap());
    let mut houses = Vec::new();
    for wire in Wire::ALL {
        for second in [false, true] {
            houses.push(House::new(Speaker { wire, second }).await);
        }
    }
    for round in 0..2 {
        for house in &houses {
            talk(house, &path, round).await;
        }
    }
}

/// Two turns, each with calls: in the second, the thinking of the first goes back.
async fn talk(house: &House, path: &Path, round: usize) {
    for turn in 0..2 {
        let words = format!("Round {round}, turn {turn}.");
        let sent = house.say_in(opened(path).await, &words).await;
        assert_eq!(house.broken(), Vec::<String>::new());
        sent.unwrap();
    }
}

/// Housekeeping behind the last turn may hold the file a moment longer.
async fn opened(path: &Path) -> Session {
    for _ in 0..200 {
        match Session::open(path) {
            Err(SessionError::Locked { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            session => return session.unwrap(),
        }
    }
    panic!("the session stays locked");
}

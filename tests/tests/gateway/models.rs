//! Windows of models: lists tell those that requests are shaped for.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, OverflowForm, ScriptedServer, Step, Steps};
use serde_json::Value;

use crate::overflow::{self, BELIEVED, TRUE_WINDOW};
use crate::stage::{Gate, Upstream, client, plain};

const KNOWN: &str = "[models.\"openai/known\"]\nwindow_tokens = 32000\n";

#[tokio::test]
async fn a_list_gets_the_windows_that_are_known() {
    let list = "{\"object\":\"list\", \"data\":[{\"id\":\"known\"},{\"id\":\"other\", \"x\":1}]}";
    let upstream = Upstream::start(move |_| plain(200, "application/json", list)).await;
    let gate = Gate::before(&upstream.url, KNOWN).await;
    let answer = client().get(gate.at("/v1/models?limit=7")).send().await.unwrap();
    let reported: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(reported["data"][0]["context_length"], 32_000);
    assert_eq!(reported["data"][1], serde_json::json!({ "id": "other", "x": 1 }));
    assert_eq!(upstream.last().uri, "/v1/models?limit=7");
}

#[tokio::test]
async fn a_list_of_strangers_keeps_its_bytes() {
    let list = "{\"data\" : [ {\"id\":\"other\"} ] }";
    let upstream = Upstream::start(move |_| plain(200, "application/json", list)).await;
    let gate = Gate::before(&upstream.url, KNOWN).await;
    let answer = client().get(gate.at("/v1/models")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), list);
}

#[tokio::test]
async fn where_there_is_no_list_the_config_has_one() {
    let upstream = Upstream::start(|_| plain(404, "text/plain", "nothing here")).await;
    let gate = Gate::before(&upstream.url, KNOWN).await;
    let list = client().get(gate.at("/v1/models")).send().await.unwrap();
    assert_eq!(list.status(), 200);
    let reported: Value = serde_json::from_str(&list.text().await.unwrap()).unwrap();
    assert_eq!(
        (reported["data"][0]["id"].as_str(), reported["data"][0]["context_length"].as_u64()),
        (Some("known"), Some(32_000))
    );
    let one = client().get(gate.at("/v1/models/known")).send().await.unwrap();
    let reported: Value = serde_json::from_str(&one.text().await.unwrap()).unwrap();
    assert_eq!(reported["id"], "known");
    let none = client().get(gate.at("/v1/models/other")).send().await.unwrap();
    assert_eq!(
        (none.status().as_u16(), none.text().await.unwrap().as_str()),
        (404, "nothing here")
    );
}

#[tokio::test]
async fn a_window_of_the_providers_own_table_is_kept_to() {
    let server = overflow::server(Wire::OpenAiChat, OverflowForm::Plain);
    let config = format!(
        "[providers.local]\ndialect = \"openai-completions\"\nbase_url = {:?}\n\
         [gateway.upstreams]\nopenai = \"local\"\n\
         [models.\"local/m\"]\nwindow_tokens = {TRUE_WINDOW}\n",
        format!("{}/v1", server.url())
    );
    let gate = Gate::before("", &config).await;
    let body = overflow::request(Wire::OpenAiChat, &overflow::long_conversation(), false);
    let answer = overflow::ask(&gate, Wire::OpenAiChat, &body, false).await;
    assert_eq!(answer.status(), 200);
    let asked: Vec<_> = server.requests().into_iter().map(|seen| seen.answered).collect();
    assert!(matches!(asked[..], [Answered::Answer { .. }]), "{asked:?}");
}

#[tokio::test]
async fn a_window_that_the_provider_named_is_reported_from_then_on() {
    let upstream = Upstream::start(|seen| match (seen.method.as_str(), seen.body.len()) {
        ("GET", _) => plain(404, "text/plain", "nothing here"),
        (_, ..90_000) => plain(200, "application/json", "{}"),
        _ => {
            let message = "This model's maximum context length is 20000 tokens. However, your \
                           messages resulted in 42000 tokens.";
            let error =
                serde_json::json!({ "message": message, "code": "context_length_exceeded" });
            plain(400, "application/json", serde_json::json!({ "error": error }).to_string())
        }
    });
    let upstream = upstream.await;
    let gate = Gate::before(&upstream.url, BELIEVED).await;
    assert_eq!(reported_window(&gate, "m").await, Some(200_000));
    let body = overflow::request(Wire::OpenAiChat, &overflow::long_conversation(), false);
    let answer = overflow::ask(&gate, Wire::OpenAiChat, &body, false).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(reported_window(&gate, "m").await, Some(TRUE_WINDOW));
}

/// What a list of models says of one, where the upstream has none.
async fn reported_window(gate: &Gate, model: &str) -> Option<u64> {
    let list = client().get(gate.at("/v1/models")).send().await.unwrap();
    let list: Value = serde_json::from_str(&list.text().await.unwrap()).unwrap();
    let models = list["data"].as_array().unwrap_or_else(|| panic!("{list}"));
    let model = models.iter().find(|it| it["id"] == model)?;
    model["context_length"].as_u64()
}

#[tokio::test]
async fn a_window_too_small_for_the_engine_is_reported_and_another_engine_works_in_it() {
    const SMALL: u64 = 8_000;
    let engines = [
        ("", "none", 400),
        ("[plugins.entries.legacy.config.window]\nblock_tokens = 4000\n", "legacy", 200),
        ("[plugins.slots]\ncontext_engine = \"window\"\n", "window", 200),
    ];
    for (engine, name, status) in engines {
        let upstream = ScriptedServer::start(Wire::OpenAiChat, Model::new(SMALL))
            .script(Steps::new([vec![Step::say("Here you are.")]]));
        let config = format!("{engine}[models.m]\nwindow_tokens = {SMALL}\n");
        let gate = Gate::before(&upstream.url(), &config).await;
        for (texts, status) in [(1, 200), (81, status)] {
            let texts = &overflow::long_conversation()[..texts];
            let body = overflow::request(Wire::OpenAiChat, texts, false);
            let answer = overflow::ask(&gate, Wire::OpenAiChat, &body, false).await;
            assert_eq!(answer.status(), status, "{name}");
            assert_eq!(answer.headers()["x-ctxhost-engine"], name);
        }
    }
}

//! Lists of models: windows that the config knows are put in.

use serde_json::Value;

use crate::stage::{Gate, Upstream, client, plain};

const KNOWN: &str = "[models.\"openai/known\"]\nwindow_tokens = 32000\n";

#[tokio::test]
async fn a_list_gets_the_windows_that_are_known() {
    let list = "{\"object\":\"list\", \"data\":[{\"id\":\"known\"},{\"id\":\"other\", \"x\":1}]}";
    let upstream = Upstream::start(move |_| plain(200, "application/json", list)).await;
    let gate = Gate::before(&upstream.url, KNOWN).await;
    let answer = client().get(gate.at("/v1/models?limit=7")).send().await.unwrap();
    let told: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(told["data"][0]["context_length"], 32_000);
    assert_eq!(told["data"][1], serde_json::json!({ "id": "other", "x": 1 }));
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
    let told: Value = serde_json::from_str(&list.text().await.unwrap()).unwrap();
    assert_eq!(
        (told["data"][0]["id"].as_str(), told["data"][0]["context_length"].as_u64()),
        (Some("known"), Some(32_000))
    );
    let one = client().get(gate.at("/v1/models/known")).send().await.unwrap();
    let told: Value = serde_json::from_str(&one.text().await.unwrap()).unwrap();
    assert_eq!(told["id"], "known");
    let none = client().get(gate.at("/v1/models/other")).send().await.unwrap();
    assert_eq!(
        (none.status().as_u16(), none.text().await.unwrap().as_str()),
        (404, "nothing here")
    );
}

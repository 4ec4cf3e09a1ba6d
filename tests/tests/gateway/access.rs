//! Who may ask, over the socket; and that a token or a key reaches nobody it is not for.

use axum::body::Body;
use axum::http::Response;
use ctxhost::config::Config;
use ctxhost::gateway::{Gateway, GatewayOptions};
use secrecy::SecretString;
use serde_json::Value;

use crate::stage::{Gate, Seen, Upstream, body_for, client, plain};

fn fine(_: &Seen) -> Response<Body> {
    plain(200, "application/json", "{}")
}

async fn with_token(upstream: &Upstream, config: &str) -> Gate {
    Gate::open(&upstream.url, config, |mut options| {
        options.token = Some(SecretString::from("the gateway's"));
        options
    })
    .await
}

#[tokio::test]
async fn without_the_token_nothing_is_asked() {
    let upstream = Upstream::start(fine).await;
    let gate = with_token(&upstream, "").await;
    for path in ["/v1/messages", "/v1/embeddings", "/v1/models", "/anything"] {
        let refused = client().post(gate.at(path)).body("{}").send().await.unwrap();
        assert_eq!(refused.status(), 401, "{path}");
    }
    assert_eq!(upstream.count(), 0);
    let open = client().get(gate.at("/healthz")).send().await.unwrap();
    assert_eq!(open.status(), 200);
}

#[tokio::test]
async fn where_others_can_reach_it_its_counts_ask_for_the_token_too() {
    let upstream = Upstream::start(fine).await;
    let options = |token: Option<&'static str>, is_exposed: bool| {
        let mut options = GatewayOptions::of(&Config::default(), std::env::temp_dir());
        options.listen = Some("0.0.0.0:0".into());
        options.token = token.map(SecretString::from);
        options.is_exposed = is_exposed;
        options
    };
    for token in [None, Some("the gateway's")] {
        let refused = Gateway::bind(options(token, false)).await.unwrap_err().to_string();
        assert!(refused.contains("--i-know-this-is-exposed"), "{refused}");
    }
    let gate = Gate::open(&upstream.url, "", |given| GatewayOptions {
        token: Some(SecretString::from("the gateway's")),
        listen: Some("0.0.0.0:0".into()),
        is_exposed: true,
        ..given
    })
    .await;
    let url = gate.url.replace("0.0.0.0", "127.0.0.1");
    let ask = |path: &str| client().get(format!("{url}{path}"));
    assert_eq!(ask("/metrics").send().await.unwrap().status(), 401);
    assert_eq!(ask("/healthz").send().await.unwrap().status(), 200);
    let shown = ask("/metrics").header("authorization", "Bearer the gateway's");
    let shown = shown.send().await.unwrap();
    assert_eq!(shown.status(), 200);
    assert!(shown.text().await.unwrap().contains("ctxhost_engine_effective"));
    // On this machine alone nobody else could ask.
    let own = with_token(&upstream, "").await;
    assert_eq!(client().get(own.at("/metrics")).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_token_reaches_no_upstream_and_the_clients_key_does() {
    let upstream = Upstream::start(fine).await;
    let gate = with_token(&upstream, "").await;
    let ask = || client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let both = ask().header("x-ctxhost-token", "the gateway's").header("x-api-key", "the client's");
    assert_eq!(both.send().await.unwrap().status(), 200);
    assert_eq!(upstream.last().header("x-api-key"), Some("the client's"));
    for name in ["x-api-key", "x-goog-api-key", "authorization"] {
        let shown = if name == "authorization" { "Bearer the gateway's" } else { "the gateway's" };
        assert_eq!(ask().header(name, shown).send().await.unwrap().status(), 200, "{name}");
        let seen = upstream.last();
        let leaks = seen.headers.values().any(|it| it.to_str().unwrap().contains("gateway's"));
        assert!(!leaks, "{name}: {:?}", seen.headers);
    }
    let in_address = client().get(gate.at("/v1beta/files?key=wrong")).send().await.unwrap();
    assert_eq!(in_address.status(), 401);
}

#[tokio::test]
async fn a_key_of_the_config_replaces_the_clients() {
    let upstream = Upstream::start(fine).await;
    let config = format!(
        "[providers.mine]\ndialect = \"anthropic-messages\"\nbase_url = {:?}\n\
         api_key_command = [\"echo\", \"the config's\"]\nheaders = {{ x-team = \"blue\" }}\n\
         [gateway.upstreams]\nanthropic = \"mine\"\n",
        upstream.url
    );
    let gate = Gate::before("", &config).await;
    let ask = client().post(gate.at("/v1/messages")).header("authorization", "Bearer the client's");
    assert_eq!(ask.body(body_for("/v1/messages")).send().await.unwrap().status(), 200);
    let seen = upstream.last();
    assert_eq!(seen.header("x-api-key"), Some("the config's"));
    assert_eq!(seen.header("x-team"), Some("blue"));
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn models_may_have_upstreams_of_their_own() {
    let (usual, other) = (Upstream::start(fine).await, Upstream::start(fine).await);
    let config = format!("[gateway.models]\n\"qwen*\" = \"{}/api/v1\"\n", other.url);
    let gate = Gate::before(&usual.url, &config).await;
    let ask = |path: &str, body: String| client().post(gate.at(path)).body(body).send();
    ask("/v1/chat/completions", "{\"messages\":[],\"model\":\"qwen3:8b\"}".into()).await.unwrap();
    assert_eq!((usual.count(), other.count()), (0, 1));
    assert_eq!(other.last().uri, "/api/v1/chat/completions");
    ask("/v1beta/models/qwen3:generateContent", "{\"contents\":[]}".into()).await.unwrap();
    assert_eq!((usual.count(), other.count()), (0, 2));
    ask("/v1/chat/completions", body_for("/v1/chat/completions")).await.unwrap();
    assert_eq!((usual.count(), other.count()), (1, 2));
}

#[tokio::test]
async fn strange_names_and_strange_pages_are_sent_away() {
    let upstream = Upstream::start(fine).await;
    let gate = Gate::before(&upstream.url, "gateway.origins = [\"https://app.example\"]").await;
    let ask = |name: &'static str, value: &'static str| {
        client().post(gate.at("/v1/messages")).header(name, value).body("{}").send()
    };
    let called = ask("host", "evil.example").await.unwrap();
    assert_eq!(called.status(), 421);
    let error: Value = serde_json::from_str(&called.text().await.unwrap()).unwrap();
    assert_eq!(error["type"], "error", "in the form of the dialect");
    assert_eq!(ask("origin", "https://evil.example").await.unwrap().status(), 403);
    assert_eq!(ask("origin", "null").await.unwrap().status(), 403);
    assert_eq!(upstream.count(), 0);
    assert_eq!(ask("origin", "https://app.example").await.unwrap().status(), 200);
    assert_eq!(ask("host", "localhost:1").await.unwrap().status(), 200);
}

#[tokio::test]
async fn it_speaks_tls_and_both_versions_of_http() {
    let upstream = Upstream::start(fine).await;
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let gate = Gate::open(&upstream.url, "", |mut options| {
        options.tls = Some((cert, key));
        options
    })
    .await;
    assert!(gate.url.starts_with("https://"), "{}", gate.url);
    let trusting = || reqwest::Client::builder().no_proxy().danger_accept_invalid_certs(true);
    for (client, version) in [
        (trusting().build().unwrap(), axum::http::Version::HTTP_2),
        (trusting().http1_only().build().unwrap(), axum::http::Version::HTTP_11),
    ] {
        let body = body_for("/v1/messages");
        let answer = client.post(gate.at("/v1/messages")).body(body.clone()).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
        assert_eq!(upstream.last().body, body);
    }
    // Plain HTTP gets no answer, and the next client does.
    assert!(client().get(gate.at("/healthz").replace("https", "http")).send().await.is_err());
    let client = trusting().build().unwrap();
    assert_eq!(client.get(gate.at("/healthz")).send().await.unwrap().status(), 200);
}

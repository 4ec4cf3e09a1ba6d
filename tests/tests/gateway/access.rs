//! Access control over the socket; tokens and keys reach only their addressee.

use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::Response;
use ctxhost_config::Config;
use ctxhost_gateway::{Gateway, GatewayOptions};
use secrecy::SecretString;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::stage::{Gate, Seen, Upstream, body_for, client, client_builder, plain};

fn fine(_: &Seen) -> Response<Body> {
    plain(200, "application/json", "{}")
}

async fn with_token(upstream: &Upstream, config: &str) -> Gate {
    Gate::open(&upstream.url, config, |mut options| {
        options.token = Some(SecretString::from("the gateway's own"));
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
        let mut options = GatewayOptions::from_config(&Config::default(), std::env::temp_dir());
        options.listen = Some("0.0.0.0:0".into());
        options.token = token.map(SecretString::from);
        options.allow_exposed = is_exposed;
        options
    };
    for token in [None, Some("the gateway's own")] {
        let refused = Gateway::bind(options(token, false)).await.unwrap_err().to_string();
        assert!(refused.contains("--i-know-this-is-exposed"), "{refused}");
    }
    let gate = Gate::open(&upstream.url, "", |given| GatewayOptions {
        token: Some(SecretString::from("the gateway's own")),
        listen: Some("0.0.0.0:0".into()),
        allow_exposed: true,
        ..given
    })
    .await;
    let url = gate.url.replace("0.0.0.0", "127.0.0.1");
    let ask = |path: &str| client().get(format!("{url}{path}"));
    assert_eq!(ask("/metrics").send().await.unwrap().status(), 401);
    assert_eq!(ask("/healthz").send().await.unwrap().status(), 200);
    let shown = ask("/metrics").header("authorization", "Bearer the gateway's own");
    let shown = shown.send().await.unwrap();
    assert_eq!(shown.status(), 200);
    assert!(shown.text().await.unwrap().contains("ctxhost_engine_active"));
    // On this machine alone nobody else could ask.
    let own = with_token(&upstream, "").await;
    assert_eq!(client().get(own.at("/metrics")).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_token_reaches_no_upstream_and_the_clients_key_does() {
    let upstream = Upstream::start(fine).await;
    let gate = with_token(&upstream, "").await;
    let ask = || client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let both =
        ask().header("x-ctxhost-token", "the gateway's own").header("x-api-key", "the client's");
    assert_eq!(both.send().await.unwrap().status(), 200);
    assert_eq!(upstream.last().header("x-api-key"), Some("the client's"));
    for name in ["x-api-key", "x-goog-api-key", "authorization"] {
        let shown =
            if name == "authorization" { "Bearer the gateway's own" } else { "the gateway's own" };
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
async fn the_most_specific_pattern_counts() {
    let names = ["*", "gpt-5*", "gpt-5-mini*", "gpt-5-mini-?", "gpt-5-mini-x"];
    let mut upstreams = Vec::new();
    for _ in names {
        upstreams.push(Upstream::start(fine).await);
    }
    let lines = names.iter().zip(&upstreams);
    let lines = lines.map(|(name, upstream)| format!("{name:?} = {:?}\n", upstream.url));
    let config = format!("[gateway.models]\n{}", lines.collect::<String>());
    let gate = Gate::before("", &config).await;
    for (asked, expected) in [
        ("qwen3", 0),
        ("gpt-5", 1),
        ("gpt-5-mini", 2),
        ("gpt-5-mini-2025", 2),
        ("gpt-5-mini-y", 3),
        ("gpt-5-mini-x", 4),
    ] {
        let before: Vec<_> = upstreams.iter().map(Upstream::count).collect();
        let body = format!("{{\"messages\":[],\"model\":{asked:?}}}");
        let answer = client().post(gate.at("/v1/chat/completions")).body(body).send().await;
        assert_eq!(answer.unwrap().status(), 200);
        let after = upstreams.iter().map(Upstream::count);
        let received: Vec<_> = after.zip(before).map(|(after, before)| after - before).collect();
        let who = received.iter().position(|new| *new > 0).map(|at| names[at]);
        assert_eq!(who, Some(names[expected]), "{asked}: {received:?}");
    }
}

#[tokio::test]
async fn a_key_goes_to_its_own_company_or_to_none() {
    let [anthropic, openai, google] =
        [Upstream::start(fine).await, Upstream::start(fine).await, Upstream::start(fine).await];
    let config = format!(
        "[gateway.upstreams]\nanthropic = {:?}\nopenai = {:?}\ngemini = {:?}\n",
        anthropic.url, openai.url, google.url
    );
    let gate = Gate::before("", &config).await;
    let ask = |path: &str, name: &'static str| {
        client().get(gate.at(path)).header(name, "Bearer k").header("cookie", "c=k").send()
    };
    assert_eq!(ask("/v1/models", "x-api-key").await.unwrap().status(), 200);
    assert_eq!(anthropic.last().header("x-api-key"), Some("Bearer k"));
    assert_eq!(ask("/v1/files?key=x", "authorization").await.unwrap().status(), 200);
    assert_eq!(openai.last().header("authorization"), Some("Bearer k"));
    assert_eq!(
        ask("/v1/projects/p/models/m:predict", "authorization").await.unwrap().status(),
        200
    );
    assert_eq!(google.last().header("authorization"), Some("Bearer k"));
    assert_eq!((anthropic.count(), openai.count(), google.count()), (1, 1, 1));
    // Nobody knows whose path this is.
    assert_eq!(ask("/api/v1/models?key=k&a=b", "authorization").await.unwrap().status(), 200);
    let seen = openai.last();
    assert_eq!(seen.uri, "/api/v1/models?a=b");
    let leaks = seen.headers.values().any(|it| it.to_str().unwrap().contains('k'));
    assert!(!leaks, "{:?}", seen.headers);
    // One upstream for all is the company of every key.
    let gate = Gate::before(&openai.url, "").await;
    let ask = client().get(gate.at("/api/v1/models?key=k")).header("authorization", "Bearer k");
    assert_eq!(ask.send().await.unwrap().status(), 200);
    assert_eq!(openai.last().header("authorization"), Some("Bearer k"));
    assert_eq!(openai.last().uri, "/api/v1/models?key=k");
}

#[tokio::test]
async fn what_is_meant_for_the_gateway_goes_no_further() {
    let upstream = Upstream::start(fine).await;
    let gate = Gate::before(&upstream.url, "").await;
    for path in ["/v1/compress/", "/v1/retrieve/a/b", "/v1/retrieve/", "/ui/", "/ui/x?token=t"] {
        let answer = client().post(gate.at(path)).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    assert_eq!(upstream.count(), 0);
    for (cookies, left) in [("a=b; ctxhost_ui=c; d=e", Some("a=b; d=e")), ("ctxhost_ui_1=c", None)]
    {
        client().get(gate.at("/v1/files")).header("cookie", cookies).send().await.unwrap();
        assert_eq!(upstream.last().header("cookie"), left);
    }
}

#[tokio::test]
async fn a_key_that_is_refused_is_asked_for_again() {
    let upstream = Upstream::start(|_| plain(401, "application/json", "{}")).await;
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    let config = format!(
        "[providers.mine]\ndialect = \"anthropic-messages\"\nbase_url = {:?}\n\
         api_key_command = [\"sh\", \"-c\", \"echo x >> {}; wc -l < {}\"]\n\
         [gateway.upstreams]\nanthropic = \"mine\"\n",
        upstream.url,
        calls.display(),
        calls.display()
    );
    let gate = Gate::before("", &config).await;
    for key in ["1", "2"] {
        let ask = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
        assert_eq!(ask.send().await.unwrap().status(), 401);
        assert_eq!(upstream.last().header("x-api-key"), Some(key));
    }
}

#[tokio::test]
async fn a_gateway_does_not_ask_itself() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let state = tempfile::tempdir().unwrap();
        let mut options = GatewayOptions::from_config(&Config::default(), state.path());
        options.listen = Some(format!("127.0.0.1:{port}"));
        options.upstreams.insert("openai".into(), format!("http://{host}:{port}/v1"));
        let refused = Gateway::bind(options).await.map(|gateway| gateway.url());
        let reported = refused.unwrap_err().to_string();
        assert!(reported.contains("itself"), "{host}: {reported}");
    }
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
async fn the_dashboards_cookie_stays_on_tls_where_it_was_given_there() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate(folder.path());
    for (tls, is_secure) in [(None, false), (Some(files), true)] {
        let config = Config::default();
        let state = tempfile::tempdir().unwrap();
        let listen = Some("127.0.0.1:0".to_owned());
        let options = GatewayOptions::from_config(&config, state.path());
        let options = GatewayOptions { listen, tls, token: None, watched_config: None, ..options };
        let gateway = Gateway::bind(options).await.unwrap();
        let link = format!("{}{}", gateway.url(), gateway.dashboard_link());
        let end = CancellationToken::new();
        let task = tokio::spawn(gateway.serve(end.clone()));
        let client = client_builder().danger_accept_invalid_certs(true);
        let client = client.redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let answer = client.get(link).send().await.unwrap();
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert_eq!(cookie.contains("; Secure"), is_secure, "{cookie}");
        end.cancel();
        task.await.unwrap();
    }
}

/// A certificate of localhost and its key, as files.
pub(crate) fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (cert, key)
}

#[tokio::test]
async fn it_speaks_tls_and_both_versions_of_http() {
    let upstream = Upstream::start(fine).await;
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let gate = Gate::open(&upstream.url, "", |mut options| {
        options.tls = Some((cert, key));
        options
    })
    .await;
    assert!(gate.url.starts_with("https://"), "{}", gate.url);
    let trusting = || client_builder().danger_accept_invalid_certs(true);
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

#[tokio::test]
async fn a_page_that_is_named_may_ask_from_its_browser() {
    let answers = |seen: &Seen| {
        let mut answer = plain(200, "application/json", "{}");
        assert_eq!(seen.method, "POST", "a preflight is no request");
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("request-id", "r1"),
        ] {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        answer
    };
    let upstream = Upstream::start(answers).await;
    let gate = with_token(&upstream, "gateway.origins = [\"https://app.example\"]").await;
    let preflight = |origin: &'static str| {
        client()
            .request(reqwest::Method::OPTIONS, gate.at("/v1/messages"))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type,x-api-key")
            .header("access-control-request-private-network", "true")
            .send()
    };
    let reported = |answer: &reqwest::Response, name: &str| {
        answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let welcome = preflight("https://app.example").await.unwrap();
    assert_eq!(welcome.status(), 204);
    let page = Some("https://app.example".to_owned());
    assert_eq!(reported(&welcome, "access-control-allow-origin"), page);
    assert!(reported(&welcome, "access-control-allow-methods").unwrap().contains("POST"));
    let headers = reported(&welcome, "access-control-allow-headers");
    assert_eq!(headers.as_deref(), Some("content-type,x-api-key"));
    assert_eq!(reported(&welcome, "access-control-allow-private-network").as_deref(), Some("true"));
    assert_eq!(reported(&welcome, "access-control-allow-credentials"), None);
    let stranger = preflight("https://evil.example").await.unwrap();
    assert_eq!(stranger.status(), 403);
    assert_eq!(reported(&stranger, "access-control-allow-origin"), None);
    assert_eq!(upstream.count(), 0);

    // A page may read the answer, a refusal too, and the truth in its headers.
    let ask = || client().post(gate.at("/v1/messages")).header("origin", "https://app.example");
    let body = body_for("/v1/messages");
    let refused = ask().body(body.clone()).send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), reported(&refused, "access-control-allow-origin")),
        (401, page.clone())
    );
    let answer = ask().header("x-api-key", "the gateway's own").body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(reported(&answer, "access-control-allow-origin"), page);
    assert_eq!(reported(&answer, "access-control-allow-credentials"), None);
    assert_eq!(reported(&answer, "vary").as_deref(), Some("origin"));
    let exposed = reported(&answer, "access-control-expose-headers").unwrap();
    for name in ["x-ctxhost-engine", "request-id"] {
        assert!(exposed.split(", ").any(|it| it == name), "{exposed}");
    }
}

#[tokio::test]
async fn a_short_token_opens_no_gateway() {
    let state = tempfile::tempdir().unwrap();
    let mut options = GatewayOptions::from_config(&Config::default(), state.path());
    options.listen = Some("127.0.0.1:0".into());
    options.token = Some(SecretString::from("12345"));
    let refused = Gateway::bind(options).await.unwrap_err().to_string();
    assert!(refused.contains("has 5 characters and needs at least 16"), "{refused}");
    assert!(refused.contains("openssl rand -hex 24"), "{refused}");
}

#[tokio::test]
async fn wrong_tokens_wait_and_are_counted_and_the_right_one_does_not_wait() {
    let upstream = Upstream::start(fine).await;
    let gate = with_token(&upstream, "").await;
    let ask = |token: &str| {
        let asked = client().post(gate.at("/v1/messages")).header("x-api-key", token);
        asked.body(body_for("/v1/messages")).send()
    };
    for _ in 0..5 {
        assert_eq!(ask("the gateway's other").await.unwrap().status(), 401);
    }
    // From here on each waits twice as long as the one before.
    let wrong: Vec<_> = (0..8).map(|_| tokio::spawn(ask("the gateway's other"))).collect();
    let counted = async || {
        let metrics = client().get(gate.at("/metrics")).send().await.unwrap();
        metrics.text().await.unwrap().contains("ctxhost_wrong_token_total 13")
    };
    while !counted().await {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(ask("the gateway's own").await.unwrap().status(), 200);
    assert!(wrong.iter().any(|wrong| !wrong.is_finished()), "the last ones still wait");
    for wrong in wrong {
        assert_eq!(wrong.await.unwrap().unwrap().status(), 401);
    }
    // Whoever shows none is no guesser, and a wrong link of the dashboard is a guess.
    assert_eq!(client().post(gate.at("/v1/messages")).send().await.unwrap().status(), 401);
    assert_eq!(client().get(gate.at("/ui?token=guessed")).send().await.unwrap().status(), 401);
    let metrics = client().get(gate.at("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("ctxhost_wrong_token_total 14"), "{metrics}");
    assert_eq!(upstream.count(), 1);
}

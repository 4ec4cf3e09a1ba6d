//! Headers, `/metrics` and the dashboard agree with what the upstream received.

use ctxhost_tests::chaos_library;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Step, Steps};
use serde_json::{Value, json};

use crate::overflow::said;
use crate::stage::{Gate, client, client_builder};
use crate::talk::Talk;
use crate::together::KNOWN;

const WINDOW: u64 = 20_000;

fn server(wire: Wire) -> ScriptedServer {
    let steps = (0..80).map(|n| vec![Step::say(format!("Noted, {n}."))]);
    ScriptedServer::start(wire, Model::new(WINDOW)).script(Steps::new(steps))
}

/// One answer: its headers by name, and what it says.
struct ReportedAnswer {
    headers: reqwest::header::HeaderMap,
    answer: Value,
}

impl ReportedAnswer {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(format!("x-ctxhost-{name}"));
        value.unwrap_or_else(|| panic!("{name}: {:?}", self.headers)).to_str().unwrap()
    }
}

/// The person speaks and the model answers, once more.
async fn turn(talk: &mut Talk, gate: &Gate) -> ReportedAnswer {
    talk.say(format!("{}. {}", talk.texts.len(), "The parser reads the ledger. ".repeat(180)));
    let answer = talk.request(&gate.url).send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    talk.texts.push(said(talk.wire, &answer));
    ReportedAnswer { headers, answer }
}

/// A sample of `/metrics`; 0 where there is none.
fn sample(metrics: &str, name: &str, labels: &[&str]) -> u64 {
    let lines = metrics.lines().filter(|line| {
        line.starts_with(&format!("ctxhost_{name}"))
            && labels.iter().all(|label| line.contains(label))
    });
    let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    values.sum()
}

/// `/metrics` as soon as it says so: events arrive there a moment after answers.
async fn metrics(gate: &Gate, says: impl Fn(&str) -> bool) -> String {
    loop {
        let text = client().get(gate.at("/metrics")).send().await.unwrap().text().await.unwrap();
        if says(&text) {
            return text;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// What the dashboard shows to the browser that opened its link, and to no other.
async fn dashboard(gate: &Gate) -> Value {
    let state = |cookie: String| client().get(gate.at("/ui/state")).header("cookie", cookie).send();
    assert_eq!(state(String::new()).await.unwrap().status(), 401);
    let still = client_builder().redirect(reqwest::redirect::Policy::none());
    let still = still.build().unwrap();
    let welcome = still.get(gate.at(&gate.link)).send().await.unwrap();
    assert_eq!(welcome.status(), 303);
    let cookie = welcome.headers()["set-cookie"].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let again = still.get(gate.at(&gate.link)).send().await.unwrap();
    assert_eq!(again.status(), 401, "the link is used up");
    let page = client().get(gate.at("/ui")).header("cookie", &cookie).send().await.unwrap();
    assert!(page.text().await.unwrap().contains("<title>ctxhost</title>"));
    serde_json::from_str(&state(cookie).await.unwrap().text().await.unwrap()).unwrap()
}

#[tokio::test]
async fn headers_metrics_and_dashboard_say_what_the_upstream_saw() {
    let server = server(Wire::OpenAiChat);
    let gate = Gate::before(&server.url(), KNOWN).await;
    let mut talk = Talk::new(Wire::OpenAiChat);
    let mut reported = Vec::new();
    while reported
        .iter()
        .filter(|it: &&ReportedAnswer| it.header("compaction") == "applied")
        .count()
        < 2
    {
        assert!(reported.len() < 60, "nothing was compacted");
        reported.push(turn(&mut talk, &gate).await);
    }
    let session = reported[0].header("session");
    for it in &reported {
        assert_eq!((it.header("engine"), it.header("session")), ("legacy", session));
        let tokens: u64 = it.header("tokens").parse().unwrap();
        assert!(tokens > 0 && tokens < WINDOW, "{tokens}");
        assert!(["none", "applied"].contains(&it.header("compaction")));
    }
    let requests = reported.len() as u64;
    assert_eq!(server.requests().len() as u64, requests);
    let dialect = "dialect=\"openai-completions\"";
    let text = metrics(&gate, |text| {
        sample(text, "compaction_total", &["outcome=\"applied\""]) >= 2
            && sample(text, "in_flight ", &[]) == 0
            && sample(text, "engine_duration_seconds_count", &[]) >= requests
    })
    .await;
    let of = |name: &str, labels: &[&str]| sample(&text, name, labels);
    assert_eq!(of("compaction_total", &["engine=\"legacy\"", "outcome=\"applied\""]), 2, "{text}");
    assert_eq!(of("request_total", &[dialect, "status=\"200\""]), requests);
    assert_eq!(of("request_duration_seconds_count", &[dialect]), requests);
    assert_eq!(of("first_byte_duration_seconds_count", &[dialect]), requests);
    assert_eq!((of("fallback_total", &[]), of("rejected_plans_total", &[])), (0, 0));
    assert_eq!(of("engine_active", &["configured=\"legacy\"", "active=\"legacy\""]), 1);
    let usage = |path: &str| -> u64 {
        reported.iter().map(|it| it.answer.pointer(path).and_then(Value::as_u64).unwrap_or(0)).sum()
    };
    let (prompt, cached) =
        (usage("/usage/prompt_tokens"), usage("/usage/prompt_tokens_details/cached_tokens"));
    assert!(cached > 0, "the beginning stays as it was, and the provider has it");
    assert_eq!(of("cache_read_tokens_total", &[dialect]), cached);
    assert_eq!(of("input_tokens_total", &[dialect]), prompt - cached);
    assert_eq!(of("output_tokens_total", &[dialect]), usage("/usage/completion_tokens"));
    // What the last request left out was not read once more.
    let whole: u64 = talk.texts.iter().map(|text| text.len() as u64 / 4).sum();
    let last: u64 = reported.last().unwrap().header("tokens").parse().unwrap();
    let saved = of("saved_tokens_total", &[]);
    assert!(saved >= (whole - last) / 2, "{saved} of {whole}, {last} were sent");
    let shown = dashboard(&gate).await;
    let totals = &shown["totals"];
    assert_eq!((&totals["saved_tokens"], &totals["requests"]), (&json!(saved), &json!(requests)));
    assert_eq!(totals["usage"]["cache_read_tokens"], json!(cached));
    assert_eq!(
        (&shown["slot"]["configured"], &shown["slot"]["active"]),
        (&json!("legacy"), &json!("legacy"))
    );
    let live = &shown["sessions"][0];
    assert_eq!(shown["sessions"].as_array().unwrap().len(), 1);
    assert_eq!((&live["id"], &live["requests"]), (&json!(session), &json!(requests)));
    assert_eq!((&live["compactions"], &live["dialect"]), (&json!(2), &json!("openai-completions")));
    let marks = live["marks"].as_array().unwrap();
    let dropped = marks.iter().filter(|mark| mark["kind"] == "compaction");
    let tokens: Vec<u64> = dropped.map(|it| it["dropped"]["tokens"].as_u64().unwrap()).collect();
    assert_eq!(tokens.len(), 2);
    // Summaries stand where it was.
    let folded = live["folded_tokens"].as_u64().unwrap();
    assert!(folded > 0 && folded < tokens.iter().sum(), "{folded} of {tokens:?}");
    assert_eq!(live["curve"].as_array().unwrap().len() as u64, requests);
    assert!(!shown.to_string().contains("ledger"), "no word of the conversation: {shown}");
}

#[tokio::test]
async fn an_engine_that_fails_is_named_everywhere_and_the_client_is_served() {
    let server = server(Wire::Anthropic);
    let config = format!(
        "{KNOWN}[plugins]\ntrust = \"any\"\nisolation = \"thread\"\n[plugins.slots]\ncontext_engine = \"chaos\"\n\
         [plugins.entries.chaos]\npath = {:?}\n[plugins.entries.chaos.config]\nmode = \"panic-assemble\"\n",
        chaos_library()
    );
    let gate = Gate::before(&server.url(), &config).await;
    let mut talk = Talk::new(Wire::Anthropic);
    for _ in 0..2 {
        assert_eq!(turn(&mut talk, &gate).await.header("engine"), "legacy");
    }
    assert_eq!(server.broken(), []);
    let text =
        metrics(&gate, |text| sample(text, "fallback_total", &["engine=\"chaos\""]) >= 2).await;
    assert_eq!(sample(&text, "fallback_total", &["engine=\"chaos\""]), 2, "{text}");
    let serves = ["configured=\"chaos\"", "active=\"legacy\""];
    assert_eq!(sample(&text, "engine_active", &serves), 1, "{text}");
    let shown = dashboard(&gate).await;
    assert_eq!(
        (&shown["slot"]["configured"], &shown["slot"]["active"]),
        (&json!("chaos"), &json!("legacy"))
    );
    let live = &shown["sessions"][0];
    assert_eq!(live["fallback"], "chaos failed in assemble", "no word of what it said: {live}");
    assert!(live["marks"].as_array().unwrap().iter().any(|mark| mark["kind"] == "fallback"));
}

/// A client that counts before it asks counts what the model would read, not what it says.
#[tokio::test]
async fn a_count_is_that_of_the_next_request() {
    for (wire, path, field) in [
        (Wire::Anthropic, "/v1/messages/count_tokens", "input_tokens"),
        (Wire::Gemini, "/v1beta/models/gemini-3-pro:countTokens", "totalTokens"),
    ] {
        let server = server(wire);
        let gate = Gate::before(&server.url(), KNOWN).await;
        let mut talk = Talk::new(wire);
        while turn(&mut talk, &gate).await.header("compaction") != "applied" {
            assert!(talk.texts.len() < 120, "nothing was compacted");
        }
        talk.say("Where are we?".into());
        let request = talk.request(&gate.url).build().unwrap();
        let body: Value =
            serde_json::from_slice(request.body().unwrap().as_bytes().unwrap()).unwrap();
        let whole = (Model::new(WINDOW).count)(&body);
        let (name, key) = crate::overflow::key(wire);
        let count = client().post(gate.at(path)).header(name, key);
        let count = count.header("anthropic-version", "2023-06-01");
        let count = count.header("content-type", "application/json");
        let answer = count.body(counted_body(wire, body).to_string()).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert_eq!(status, 200, "{wire:?}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let counted = answer[field].as_u64().unwrap_or_else(|| panic!("{wire:?}: {answer}"));
        let kept = server.requests().len();
        talk.ask(&gate.url).await;
        let seen = server.requests();
        assert_eq!(seen[kept - 1].answered, Answered::Counted, "{wire:?}");
        assert_eq!(seen[kept].prompt_tokens, counted, "{wire:?}");
        assert!(counted < WINDOW && counted < whole, "{wire:?}: {counted} of {whole}");
        assert_eq!(server.broken(), [], "{wire:?}");
    }
}

/// The fields that a count takes.
fn counted_body(wire: Wire, mut body: Value) -> Value {
    let fields = body.as_object_mut().unwrap();
    match wire {
        Wire::Gemini => fields.remove("generationConfig"),
        _ => fields.remove("max_tokens").and(fields.remove("stream")),
    };
    body
}

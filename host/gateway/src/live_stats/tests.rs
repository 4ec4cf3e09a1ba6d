//! Measured requests are unchanged, and the data of the dashboard is bounded.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use ctxhost_engine_api::{Role, Trigger};
use futures_util::{StreamExt as _, stream};

use super::*;
use crate::proxy::{ConversationLabel, ShapingReport};
use ctxhost_agent::event::EventKind;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, FoldedEntry};
use ctxhost_dialects::failure::FailureReason;

fn event(session: &str, what: EventKind) -> RuntimeEvent {
    RuntimeEvent { session: session.into(), kind: what }
}

fn assembled(tokens: u64, live_tokens: u64, fallback: Option<&str>) -> EventKind {
    EventKind::Assembled {
        engine: "mask".into(),
        fallback: fallback.map(Into::into),
        tokens,
        budget_tokens: 1_000,
        model: "anthropic/opus".into(),
        live_tokens,
        rejected_plans: 0,
        took: Duration::ZERO,
    }
}

fn compaction() -> EventKind {
    let folded = |role, tokens| FoldedEntry {
        id: "e".into(),
        role,
        tokens,
        excerpt: "the launch code".into(),
    };
    EventKind::Compaction(Arc::new(CompactionOutcome {
        trigger: Trigger::Threshold,
        engine: "mask".into(),
        verdict: CompactionVerdict::Applied,
        before_tokens: 900,
        after_tokens: 300,
        folded: vec![folded(Role::User, 100), folded(Role::Tool, 250), folded(Role::Tool, 250)],
        summary: String::new(),
        engine_notes: String::new(),
        retention: None,
        fallback: None,
        is_precomputed: false,
        took: Duration::ZERO,
    }))
}

fn recorded(stats: &GatewayStats) -> RecordedStats {
    stats.live.snapshot(SlotStatus::default(), stats.totals()).recorded
}

fn stats(settings: &TelemetrySettings) -> GatewayStats {
    GatewayStats::new("mask", settings)
}

#[test]
fn a_session_has_samples_and_dropped_entries() {
    let stats = stats(&TelemetrySettings::default());
    stats.record_event(&event("s1", assembled(900, 900, None)), 1);
    stats.record_event(&event("s1", compaction()), 2);
    stats.record_event(&event("s1", assembled(250, 300, None)), 3);
    let snapshot = recorded(&stats);
    let live = &snapshot.sessions[0];
    assert_eq!(
        live.curve,
        [
            OccupancySample { request: 1, tokens: 900, live_tokens: 900, budget_tokens: 1_000 },
            OccupancySample { request: 2, tokens: 250, live_tokens: 300, budget_tokens: 1_000 },
        ]
    );
    assert_eq!((live.id.as_str(), live.requests, live.compactions), ("s1", 2, 1));
    let mark = &live.marks[0];
    assert_eq!((mark.at_ms, mark.request, mark.kind), (2, 1, "compaction"));
    assert_eq!(mark.words, "mask (threshold): 900 → 300 tokens");
    let dropped = mark.dropped.as_ref().unwrap();
    assert_eq!((dropped.entries, dropped.tokens), (3, 600));
    assert_eq!(
        dropped.roles.iter().map(|(role, n)| (*role, *n)).collect::<Vec<_>>(),
        [("tool", 2), ("user", 1)]
    );
    // The first request was complete; the second lacks 50 tokens, and 600 were compacted before.
    assert_eq!((stats.totals().saved_tokens, stats.totals().sent_tokens), (650, 1_150));
    assert_eq!((live.saved_tokens, live.sent_tokens), (650, 1_150));
}

#[test]
fn a_request_that_is_sent_again_counts_once() {
    let stats = stats(&TelemetrySettings::default());
    let refused = || EventKind::Recovering {
        reason: FailureReason::ContextOverflow,
        action: "made the request smaller".into(),
        provider_message: "too long".into(),
    };
    stats.record_event(&event("s1", assembled(900, 900, None)), 1);
    stats.record_event(&event("s1", refused()), 2);
    stats.record_event(&event("s1", assembled(400, 900, None)), 3);
    let request_numbers = || -> Vec<u64> {
        recorded(&stats).sessions[0].curve.iter().map(|sample| sample.request).collect()
    };
    assert_eq!((recorded(&stats).sessions[0].requests, request_numbers()), (1, vec![1, 1]));
    // The one that is given up ends without a smaller prompt.
    stats.record_event(&event("s1", refused()), 4);
    let report = ShapingReport { session: "s1".into(), ..ShapingReport::unshaped("none", "") };
    stats.live.record_request("openai", &report, 5);
    stats.record_event(&event("s1", assembled(400, 900, None)), 6);
    assert_eq!(request_numbers(), [1, 1, 2]);
}

#[test]
fn conversation_text_needs_log_content() {
    for log_content in [false, true] {
        let settings = TelemetrySettings { log_content, ..TelemetrySettings::default() };
        let stats = stats(&settings);
        stats.record_event(&event("s1", compaction()), 1);
        stats.record_event(&event("s1", assembled(1, 1, Some("the guard (secret_name)"))), 1);
        let EventKind::Compaction(outcome) = compaction() else { unreachable!("it is one") };
        let reason = "missing_identifiers:secret_name".into();
        let verdict = CompactionVerdict::Rejected { reason };
        let rejected = CompactionOutcome { verdict, ..(*outcome).clone() };
        stats.record_event(&event("s1", EventKind::Compaction(Arc::new(rejected))), 1);
        let snapshot = serde_json::to_string(&recorded(&stats)).unwrap();
        for words in ["launch code", "secret_name"] {
            assert_eq!(snapshot.contains(words), log_content, "{snapshot}");
        }
        assert!(
            snapshot.contains("missing_identifiers") && snapshot.contains("the guard"),
            "{snapshot}"
        );
    }
}

#[test]
fn a_title_needs_log_content_and_a_client_does_not() {
    for log_content in [false, true] {
        let settings = TelemetrySettings { log_content, ..TelemetrySettings::default() };
        let stats = stats(&settings);
        let [title, client, folder] = ["the launch code", "Codex", "harbour"].map(String::from);
        let label = ConversationLabel { title, client, folder };
        let shaped =
            ShapingReport { session: "s1".into(), label: label.into(), ..ShapingReport::default() };
        stats.live.record_request("openai-responses", &shaped, 1);
        // A rejected request has no label, and the conversation keeps its own.
        stats.live.record_request("openai-responses", &ShapingReport::unshaped("failed", "s1"), 2);
        let live = recorded(&stats).sessions[0].clone();
        assert_eq!((live.client.as_str(), live.folder.as_str()), ("Codex", "harbour"));
        assert_eq!(live.title, if log_content { "the launch code" } else { "" });
        assert_eq!(live.unshaped, 1);
    }
}

#[test]
fn the_last_rollback_is_kept_until_another_engine_is_activated() {
    let stats = stats(&TelemetrySettings::default());
    let [engine, serving] = ["mask", "legacy"].map(String::from);
    let why = "it failed in assemble: the launch code".into();
    stats.record_event(&event("", EventKind::EngineRolledBack { engine, serving, why }), 1);
    let words = "rolled back from mask to legacy: it failed in assemble";
    assert_eq!(recorded(&stats).rolled_back.as_deref(), Some(words));
    let [engine, previous] = ["window", "legacy"].map(String::from);
    let changed = EventKind::EngineChanged { engine, previous, generation: 3 };
    stats.record_event(&event("", changed), 2);
    assert_eq!(recorded(&stats).rolled_back, None);
    let canary = EventKind::CanaryStarted { engine: "mask".into(), share: "10%".into() };
    stats.record_event(&event("", canary), 3);
    assert_eq!(recorded(&stats).marks[2].words, "mask serves 10% of new sessions");
}

#[test]
fn a_fallback_is_one_event_and_a_state() {
    let stats = stats(&TelemetrySettings::default());
    for _ in 0..3 {
        stats.record_event(&event("s1", assembled(10, 10, Some("mask panicked"))), 1);
    }
    let live = recorded(&stats).sessions[0].clone();
    assert_eq!(live.fallback.as_deref(), Some("mask panicked"));
    assert_eq!(live.marks.iter().filter(|mark| mark.kind == "fallback").count(), 1);
    stats.record_event(&event("s1", assembled(10, 10, None)), 2);
    assert_eq!(recorded(&stats).sessions[0].fallback, None);
}

#[test]
fn the_data_is_bounded() {
    let settings = TelemetrySettings {
        dashboard_sessions: 3,
        dashboard_points: 4,
        ..TelemetrySettings::default()
    };
    let stats = stats(&settings);
    for round in 0..20 {
        for session in ["a", "b", "c", "d", "e"] {
            stats.record_event(&event(session, assembled(1, 1, None)), round);
            stats.record_event(&event(session, compaction()), round);
        }
        // The session that is used stays, however many come.
        stats.record_event(&event("a", assembled(1, 1, None)), round);
    }
    let snapshot = recorded(&stats);
    let ids: Vec<_> = snapshot.sessions.iter().map(|live| live.id.as_str()).collect();
    assert_eq!(ids, ["d", "e", "a"]);
    assert!(snapshot.sessions.iter().all(|live| live.curve.len() <= 4 && live.marks.len() <= 4));
}

/// A route with a streamed response and its report.
async fn streamed() -> Response {
    let chunks = stream::iter(["data: a\n\n", "data: b\n\n", "data: c\n\n"]);
    let body = Body::from_stream(chunks.map(|chunk| Ok::<_, Infallible>(chunk.to_owned())));
    let mut response = Response::new(body);
    let (engine, session) = ("mask".to_owned(), "s1".to_owned());
    response.extensions_mut().insert(ShapingReport { engine, session, ..ShapingReport::default() });
    response
}

/// A route whose response never ends.
async fn endless() -> Response {
    let first = stream::iter([Ok::<_, Infallible>("data: a\n\n".to_owned())]);
    Response::new(Body::from_stream(first.chain(stream::pending())))
}

async fn served(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn client() -> reqwest::Client {
    _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

#[tokio::test]
async fn a_stream_is_unchanged_and_its_end_is_recorded() {
    let stats = stats(&TelemetrySettings::default());
    let routes = Router::new().route("/v1/messages", post(streamed));
    let url = served(stats.measure(routes).merge(stats.metrics_routes())).await;
    let client = client();
    let answer = client.post(format!("{url}/v1/messages")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "data: a\n\ndata: b\n\ndata: c\n\n");
    let live = recorded(&stats).sessions[0].clone();
    assert_eq!((live.id.as_str(), live.dialect), ("s1", "anthropic-messages"));
    let metrics = client.get(format!("{url}/metrics")).send().await.unwrap();
    assert_eq!(metrics.headers()["content-type"], metrics::CONTENT_TYPE);
    let text = until(&stats, "ctxhost_in_flight 0").await;
    let counted = r#"ctxhost_request_total{dialect="anthropic-messages",status="200"} 1"#;
    assert!(text.contains(counted), "{text}");
    assert!(!text.contains("aborted_responses_total{"), "{text}");
    assert_eq!(stats.totals().requests, 1);
}

#[tokio::test]
async fn a_disconnect_of_the_client_is_recorded() {
    let stats = stats(&TelemetrySettings::default());
    let routes = Router::new().route("/v1/responses", post(endless));
    let url = served(stats.measure(routes)).await;
    let client = client();
    let mut answer = client.post(format!("{url}/v1/responses")).send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "data: a\n\n");
    drop(answer);
    until(&stats, r#"ctxhost_aborted_responses_total{dialect="openai-responses"} 1"#).await;
}

/// The metrics once they contain a line. The server notices an end after the client does.
async fn until(stats: &GatewayStats, line: &str) -> String {
    let wait = async {
        loop {
            let text = stats.metrics.text();
            if text.lines().any(|it| it == line) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it is noticed in the end")
}

/// A captured log.
#[derive(Clone, Default)]
struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(event);
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_request_leaves_one_line_without_its_query() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::INFO);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    // The test's own thread serves requests, too.
    let _guard = tracing::subscriber::set_default(subscriber);
    let stats = stats(&TelemetrySettings::default());
    let routes = Router::new().route("/v1/messages", post(streamed));
    let url = served(stats.measure(routes)).await;
    let client = client();
    // Tests on other threads may have reached the log line first, when nothing listened to it, and tracing caches that.
    client.get(format!("{url}/first")).send().await.unwrap();
    tracing::callsite::rebuild_interest_cache();
    until(&stats, "ctxhost_in_flight 0").await;
    lines.0.lock().unwrap().clear();
    let answer = client.post(format!("{url}/v1/messages?key=secret")).send().await.unwrap();
    answer.text().await.unwrap();
    client.get(format!("{url}/nothing?key=secret")).send().await.unwrap();
    until(&stats, "ctxhost_in_flight 0").await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let all: Vec<&str> = text.lines().filter(|line| line.contains("method=")).collect();
    assert_eq!(all.len(), 2, "{text}");
    let line = |method: &str| *all.iter().find(|line| line.contains(method)).unwrap();
    let (post, get) = (line("method=POST"), line("method=GET"));
    for part in ["path=\"/v1/messages\"", "status=200", "conversation=\"s1\"", "ms="] {
        assert!(post.contains(part), "{part} is missing in {post}");
    }
    assert!(get.contains("status=404"), "{get}");
    assert!(!text.contains("secret"), "{text}");
}

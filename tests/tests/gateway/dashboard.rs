//! The dashboard in a real browser: it shows what happened and changes nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ctxhost_agent::event::{EventKind, RuntimeEvent};
use ctxhost_agent::{CanaryStatus, SlotStatus};
use ctxhost_config::TelemetrySettings;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, FoldedEntry};
use ctxhost_dialects::DialectName;
use ctxhost_dialects::message::TokenUsage;
use ctxhost_engine_api::{Role, Trigger};
use ctxhost_gateway::DashboardLogin;
use ctxhost_gateway::live_stats::GatewayStats;
use ctxhost_gateway::proxy::Endpoint;

use crate::stage::{Gate, Upstream, client, plain};

/// Names under which a browser that can run without a screen is installed.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Time of the page, in milliseconds, which the browser lets pass as fast as it can: two readings.
const PAGE_MS: u64 = 2_500;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let places = BROWSERS.iter().flat_map(|name| folders.iter().map(move |it| it.join(name)));
    let found = places.into_iter().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: none of {BROWSERS:?} is installed, so the dashboard was not looked at");
    }
    found
}

/// What a browser does with a page.
fn open(browser: &Path, profile: &Path, url: &str, what: &str) -> Vec<u8> {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,1200"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--virtual-time-budget={PAGE_MS}"))
        .arg(what)
        .arg(url)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    output.stdout
}

fn shaped(tokens: u64, engine: &str, fallback: Option<&str>) -> EventKind {
    EventKind::Assembled {
        engine: engine.into(),
        fallback: fallback.map(Into::into),
        tokens,
        budget_tokens: 20_000,
        model: "anthropic/<b>bold</b>".into(),
        live_tokens: tokens + 1_000,
        rejected_plans: 0,
        took: Duration::ZERO,
    }
}

fn compaction() -> EventKind {
    let entry = |role| FoldedEntry {
        id: "e".into(),
        role,
        tokens: 4_000,
        excerpt: "<script>document.title = 'taken'</script>".into(),
    };
    EventKind::Compaction(Arc::new(CompactionOutcome {
        trigger: Trigger::Overflow,
        engine: "mask".into(),
        verdict: CompactionVerdict::Applied,
        before_tokens: 19_000,
        after_tokens: 7_000,
        folded: vec![entry(Role::User), entry(Role::Assistant), entry(Role::Tool)],
        summary: String::new(),
        engine_notes: String::new(),
        retention: None,
        fallback: None,
        is_precomputed: false,
        took: Duration::ZERO,
    }))
}

/// Statistics of a session that filled up, was compacted and lost its engine.
fn stats() -> GatewayStats {
    let settings = TelemetrySettings { log_content: true, ..TelemetrySettings::default() };
    let stats = GatewayStats::new("mask", &settings);
    let tell = |what| {
        stats.record_event(
            &RuntimeEvent { session: "harbour-7".into(), kind: what },
            1_763_700_000_000,
        )
    };
    for tokens in [5_000, 9_000, 14_000, 18_000] {
        tell(shaped(tokens, "mask", None));
    }
    tell(compaction());
    tell(shaped(7_000, "mask", None));
    tell(shaped(8_000, "legacy", Some("mask panicked")));
    let usage = TokenUsage { input: 500, cache_read: 1_500, output: 70, ..TokenUsage::default() };
    stats.record_usage(&Endpoint::generate(DialectName::AnthropicMessages), &usage);
    stats
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_sessions_curves_and_what_was_dropped() {
    let Some(browser) = browser() else { return };
    let stats = stats();
    let links = tempfile::tempdir().unwrap();
    let login = Arc::new(DashboardLogin::new(links.path().to_owned(), None));
    let slot = SlotStatus {
        configured: "mask".into(),
        active: "legacy".into(),
        reason: Some("mask failed in assemble: index out of bounds".into()),
        canary: Some(CanaryStatus { engine: "window".into(), share: "10%".into() }),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{}", listener.local_addr().unwrap(), login.new_link());
    let routes = stats.dashboard_routes(login, move || slot.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let profile = tempfile::tempdir().unwrap();
    let (dom, picture, refused) = tokio::task::spawn_blocking(move || {
        let folder = profile.path();
        let dom = open(&browser, folder, &url, "--dump-dom");
        // The cookie is of that browser alone, and the link is used up.
        let other = tempfile::tempdir().unwrap();
        let refused = open(&browser, other.path(), &url, "--dump-dom");
        let picture = folder.join("page.png");
        let again = url.split('?').next().unwrap();
        open(&browser, folder, again, &format!("--screenshot={}", picture.display()));
        (dom, std::fs::read(picture).unwrap(), refused)
    })
    .await
    .unwrap();
    let dom = String::from_utf8(dom).unwrap();
    for words in [
        "engine legacy (fallback for mask: mask failed in assemble: index out of bounds), canary window on 10% of new sessions",
        "harbour-7",
        "legacy (fallback: mask panicked)",
        "40%, 8,000 of 20,000 tokens",
        "mask (overflow): 19,000 → 7,000 tokens",
        "dropped 3 entries of 12,000 tokens: 1 assistant, 1 tool, 1 user",
        "over 6 requests, now 8,000 of 20,000 tokens",
        // Two requests after a compaction of 12,000 tokens, and 1,000 tokens of each of six requests.
        "<dd>30,000 tokens<small>33% of the full histories, 91,000 tokens (estimated)",
        "<dd>2,000 prompt tokens<small>1,500 read from cache, 0 written to cache; 70 answer tokens",
        "<dt>Cost</dt><dd>not known",
        r#"class="mark compaction""#,
        r#"class="mark fallback""#,
    ] {
        assert!(dom.contains(words), "{words:?} is missing in\n{dom}");
    }
    let sent = dom.split(r#"class="sent" points=""#).nth(1).unwrap();
    assert_eq!(sent.split('"').next().unwrap().split(' ').count(), 6, "a point for each request");
    // What came from conversations is text and nothing else.
    assert!(dom.contains("<title>ctxhost</title>") && !dom.contains("<b>bold</b>"), "{dom}");
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 5_000);
    assert!(String::from_utf8(refused).unwrap().contains("<code>ctxhost ui</code>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_names_real_conversations_and_scales_their_curves() {
    let Some(browser) = browser() else { return };
    let answer = r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"Done."}],
        "usage":{"input_tokens":90,"output_tokens":5}}"#;
    let upstream = Upstream::start(move |_| plain(200, "application/json", answer)).await;
    for log_content in [true, false] {
        let config = format!("[telemetry]\nlog_content = {log_content}\n");
        let gate = Gate::before(&upstream.url, &config).await;
        let request = serde_json::json!({
            "model": "claude-opus-4-1", "max_tokens": 100,
            "system": "<env>\nWorking directory: /home/ann/harbour\n</env>",
            "messages": [{ "role": "user", "content": [
                { "type": "text", "text": "<system-reminder>Today is Sunday.</system-reminder>" },
                { "type": "text", "text": "Mend the harbour light.\nIt blinks." },
            ]}],
        });
        let asked = client().post(gate.at("/v1/messages"));
        let asked = asked.header("user-agent", "claude-cli/2.0 (external, cli)").json(&request);
        assert_eq!(asked.send().await.unwrap().status(), 200);
        let (browser, url) = (browser.clone(), gate.at(&gate.link));
        let look = move || {
            let profile = tempfile::tempdir().unwrap();
            open(&browser, profile.path(), &url, "--dump-dom")
        };
        let dom = tokio::task::spawn_blocking(look).await.unwrap();
        let dom = String::from_utf8(dom).unwrap();
        let title = "Mend the harbour light. It blinks.";
        assert_eq!(dom.contains(title), log_content, "{dom}");
        assert!(dom.contains("Claude Code") && dom.contains("harbour"), "{dom}");
        assert!(!dom.contains("Today is Sunday") && dom.contains("engine legacy<"), "{dom}");
        assert_eq!(dom.contains("Set telemetry.log_content"), !log_content, "{dom}");
    }
}

//! The dashboard in a real browser: what happened in a runtime stands on the page, and nothing else works there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ctxhost_agent::event::{EventKind, RuntimeEvent};
use ctxhost_config::TelemetrySettings;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, FoldedEntry};
use ctxhost_engine_api::{Role, Trigger};
use ctxhost_gateway::live_stats::GatewayStats;

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

/// A watch that has seen a session fill up, be compacted and lose its engine.
fn watch() -> GatewayStats {
    let settings = TelemetrySettings { log_content: true, ..TelemetrySettings::default() };
    let watch = GatewayStats::new("mask", &settings);
    let tell = |what| {
        watch.record_event(
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
    watch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_sessions_curves_and_what_was_dropped() {
    let Some(browser) = browser() else { return };
    let watch = watch();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{}", listener.local_addr().unwrap(), watch.dashboard_link());
    let routes = watch.dashboard_routes();
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
        "engine legacy (fallback for mask)",
        "harbour-7",
        "legacy (fallback: mask panicked)",
        "8,000 of 20,000",
        "mask (overflow): 19000 -&gt; 7000 tokens",
        "dropped 3 entries of 12,000 tokens: 1 assistant, 1 tool, 1 user",
        "window usage of harbour-7 over 6 requests",
        r#"class="mark compaction""#,
        r#"class="mark fallback""#,
    ] {
        assert!(dom.contains(words), "{words:?} does not stand in\n{dom}");
    }
    let sent = dom.split(r#"class="sent" points=""#).nth(1).unwrap();
    assert_eq!(sent.split('"').next().unwrap().split(' ').count(), 6, "a point for each request");
    // What came from conversations is text and nothing else.
    assert!(dom.contains("<title>ctxhost</title>") && !dom.contains("<b>bold</b>"), "{dom}");
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 5_000);
    assert!(String::from_utf8(refused).unwrap().contains("one-time link"));
}

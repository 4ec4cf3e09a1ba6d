//! Bench: first requests of many messages, and their effect on small requests beside them.
//!
//! Requests of twice as many messages, calls or parts should take twice as long: the first ratio tells. The second is to the
//! baseline, one parse of the same body as a JSON value, which a faster machine does faster as well. `-- <words>` takes the shapes
//! whose names have these words, `beside` the other client: it sends small requests over one connection all the while. The
//! gateway has threads of its own, as in a process of its own: here bodies of many megabytes are made up meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::time::{Duration, Instant};

use ctxhost_config::Config;
use ctxhost_gateway::{Gateway, GatewayOptions};
use ctxhost_tests::large::{SHAPES, Shape};
use ctxhost_tests::many::provider;
use tokio_util::sync::CancellationToken;

const COUNTS: [usize; 3] = [10_000, 20_000, 40_000];
/// A window that takes all of them, and one that none fits.
const WINDOWS: [u64; 2] = [4_000_000, 200_000];
/// Small requests that are measured, alone and beside large ones.
const SMALL: usize = 200;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let upstream = provider().await;
    let threads = tokio::runtime::Runtime::new().unwrap();
    for window in WINDOWS {
        let state = tempfile::tempdir().unwrap();
        let serving = gateway(upstream.clone(), window, state.path().to_owned());
        let url = threads.spawn(serving).await.unwrap();
        println!("window {window}: first request, its answer's 40 ms not counted");
        for shape in SHAPES {
            let name = format!("{shape:?}").to_lowercase();
            if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
                compare(&url, shape).await;
            }
        }
        if words.is_empty() || words.iter().any(|word| word == "beside") {
            beside(&url).await;
        }
    }
    threads.shutdown_background();
}

async fn gateway(upstream: String, window: u64, state: std::path::PathBuf) -> String {
    let config = format!(
        "[models.m]\nwindow_tokens = {window}\n[models.gemini-3-pro]\nwindow_tokens = {window}\n"
    );
    let config = Config::parse("ctxhost.toml", &config).unwrap();
    let mut options = GatewayOptions::from_config(&config, state);
    options.listen = Some("127.0.0.1:0".into());
    (options.token, options.watched_config) = (None, None);
    for dialect in ["anthropic", "openai", "gemini"] {
        options.upstreams.insert(dialect.into(), upstream.clone());
    }
    let gateway = Gateway::bind(options).await.unwrap();
    let url = gateway.url();
    tokio::spawn(gateway.serve(CancellationToken::new()));
    url
}

async fn asked(client: &reqwest::Client, url: &str, path: &str, body: String) -> Duration {
    let began = Instant::now();
    let answer = client.post(format!("{url}{path}")).body(body).send().await.unwrap();
    assert!(answer.headers().contains_key("x-ctxhost-session"), "{:?}", answer.headers());
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap();
    began.elapsed()
}

async fn compare(url: &str, shape: Shape) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut line = format!("  {shape:<10?}", shape = shape);
    let mut before: Option<Duration> = None;
    for count in COUNTS {
        let (mut times, mut parses) = (Vec::new(), Vec::new());
        for run in 0..3 {
            let body = shape.body(count, &format!("{shape:?} {count} {run}"));
            let began = Instant::now();
            drop(std::hint::black_box(serde_json::from_str::<serde_json::Value>(&body).unwrap()));
            parses.push(began.elapsed());
            let took = asked(&client, url, shape.path(), body).await;
            times.push(took.saturating_sub(Duration::from_millis(40)));
        }
        times.sort();
        parses.sort();
        let ratio = before.map_or(0.0, |before| times[1].as_secs_f64() / before.as_secs_f64());
        let parsed = times[1].as_secs_f64() / parses[1].as_secs_f64();
        let took_ms = times[1].as_secs_f64() * 1e3;
        line += &format!("  {count:>6} {took_ms:>8.1} ms ({ratio:.2}x, {parsed:.1}x of a parse)");
        before = Some(times[1]);
    }
    println!("{line}");
}

/// Small requests, alone and while one or four large ones are heard, which come from threads of their own.
async fn beside(url: &str) {
    let threads = tokio::runtime::Runtime::new().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for large in [0, 1, 4] {
        let stop = CancellationToken::new();
        let bodies = (0..large).map(|nth| {
            let (url, stop) = (url.to_owned(), stop.clone());
            threads.spawn(async move {
                let client = reqwest::Client::builder().no_proxy().build().unwrap();
                for run in 0.. {
                    if stop.is_cancelled() {
                        return;
                    }
                    let body = Shape::Messages.body(40_000, &format!("beside {large} {nth} {run}"));
                    asked(&client, &url, Shape::Messages.path(), body).await;
                }
            })
        });
        let bodies: Vec<_> = bodies.collect();
        let mut times = Vec::new();
        for run in 0..SMALL {
            let body = Shape::Messages.body(3, &format!("small {large} {run}"));
            times.push(asked(&client, url, Shape::Messages.path(), body).await);
        }
        stop.cancel();
        for body in bodies {
            body.await.unwrap();
        }
        times.sort();
        let at =
            |share: f64| times[((SMALL - 1) as f64 * share) as usize].as_secs_f64() * 1e3 - 40.0;
        println!(
            "  small requests beside {large} large: p50 {:.1} ms, p99 {:.1} ms",
            at(0.5),
            at(0.99)
        );
    }
    threads.shutdown_background();
}

//! What the way through the gateway costs a request, against a bare hyper reverse proxy in the same run: passed
//! through, with an engine that has nothing to do, and as a stream.
//!
//! Upstream, bare proxy and gateway have threads of their own. One request is in flight at a time, over one kept
//! connection. Rounds of all ways take turns, so that whatever the machine does meanwhile it does to all of them.
//! The figures are medians and ratios of medians.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

#[path = "gateway/bare.rs"]
mod bare;
#[path = "gateway/body.rs"]
mod body;
#[path = "gateway/client.rs"]
mod client;
#[path = "gateway/upstream.rs"]
mod upstream;

use std::net::SocketAddr;
use std::time::Duration;

use ctxhost::config::Config;
use ctxhost::gateway::{Gateway, GatewayOptions};
use tokio_util::sync::CancellationToken;

use client::Client;

/// Requests of one way in one round.
const IN_A_ROW: usize = 25;
const ROUNDS: usize = 24;
/// What a stream carries, and how often one is read.
const STREAM_CHUNKS: usize = 20_000;
const STREAMS: usize = 11;

/// The ways a request can take to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Bare,
    PassedThrough,
    Engine,
}

const WAYS: [Way; 4] = [Way::Direct, Way::Bare, Way::PassedThrough, Way::Engine];

struct Addresses {
    upstream: SocketAddr,
    bare: SocketAddr,
    gateway: SocketAddr,
}

impl Addresses {
    fn of(&self, way: Way) -> SocketAddr {
        match way {
            Way::Direct => self.upstream,
            Way::Bare => self.bare,
            Way::PassedThrough | Way::Engine => self.gateway,
        }
    }
}

/// A path that no engine looks at goes through as it is.
fn path(way: Way) -> &'static str {
    match way {
        Way::PassedThrough => "/v1/unknown",
        _ => "/v1/messages",
    }
}

fn main() {
    let state = tempfile::tempdir().unwrap();
    // Each server has threads of its own, as servers of several processes have: on those of one runtime a
    // proxy and its upstream would call each other like functions.
    let servers = [(); 3].map(|()| tokio::runtime::Runtime::new().unwrap());
    let upstream = servers[0].block_on(upstream::start());
    let bare = servers[1].block_on(bare::start(upstream));
    let gateway = servers[2].block_on(gateway(upstream, state.path()));
    let addresses = Addresses { upstream, bare, gateway };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!("medians, one request in flight; the ratio is to the bare hyper reverse proxy");
        for bytes in [20_000, 800_000] {
            compare(&addresses, bytes).await;
        }
        compare_streams(&addresses).await;
    });
}

async fn gateway(upstream: SocketAddr, state: &std::path::Path) -> SocketAddr {
    let text = format!(
        "[model]\ndefault_window_tokens = 1000000\n[gateway.upstreams]\nanthropic-messages = \"http://{upstream}\"\n"
    );
    let config = Config::parse("ctxhost.toml", &text).unwrap();
    let mut options = GatewayOptions::of(&config, state.to_owned());
    options.listen = Some("127.0.0.1:0".into());
    let gateway = Gateway::bind(options).await.unwrap();
    let address = gateway.address();
    tokio::spawn(gateway.serve(CancellationToken::new()));
    address
}

/// One way's connection, conversation and times.
struct Lane {
    way: Way,
    client: Client,
    talk: body::Talk,
    times: Vec<Duration>,
}

async fn compare(addresses: &Addresses, bytes: usize) {
    let mut lanes = Vec::new();
    for way in WAYS {
        let client = Client::connect(addresses.of(way)).await;
        lanes.push(Lane { way, client, talk: body::Talk::new(bytes), times: Vec::new() });
    }
    for _ in 0..ROUNDS {
        for lane in &mut lanes {
            lane.talk.restart();
            // The first request of a conversation is read whole; it is not what this is about.
            lane.client.post(path(lane.way), lane.talk.body()).await;
            for _ in 0..IN_A_ROW {
                lane.talk.go_on();
                let body = lane.talk.body();
                let (took, _) = lane.client.post(path(lane.way), body).await;
                lane.times.push(took);
            }
        }
    }
    let medians: Vec<Duration> = lanes.iter_mut().map(|lane| median(&mut lane.times)).collect();
    let baseline = medians[1];
    for (lane, took) in lanes.iter().zip(&medians) {
        let ratio = took.as_secs_f64() / baseline.as_secs_f64();
        println!("{:>4} kB  {:<14} {took:>10.1?}  ratio {ratio:.2}", bytes / 1_000, name(lane.way));
    }
}

async fn compare_streams(addresses: &Addresses) {
    let ways = [Way::Bare, Way::PassedThrough, Way::Engine];
    let mut times = [const { Vec::new() }; 3];
    let mut bytes = 0;
    for _ in 0..STREAMS {
        for (way, times) in ways.iter().zip(&mut times) {
            let mut client = Client::connect(addresses.of(*way)).await;
            let talk = body::Talk::new(20_000);
            let (took, read) = client.post(path(*way), talk.stream_body(STREAM_CHUNKS)).await;
            bytes = read;
            times.push(took);
        }
    }
    let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
    for (way, took) in ways.iter().zip(&medians) {
        let ratio = medians[0].as_secs_f64() / took.as_secs_f64();
        let speed = bytes as f64 / took.as_secs_f64() / 1e6;
        println!("stream   {:<14} {speed:>7.1} MB/s  throughput {ratio:.2}", name(*way));
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Direct => "upstream alone",
        Way::Bare => "bare hyper",
        Way::PassedThrough => "passed through",
        Way::Engine => "engine, idle",
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

//! What the way through the gateway costs a request, against a bare hyper reverse proxy in the same run: passed
//! through, with an engine that has nothing to do, and as a stream.
//!
//! Upstream, bare proxy and gateway have threads of their own, the two proxies on one processor and everybody else on
//! another: where the system is left to place them (`-- --unpinned`), one run differs from the next by half of what a
//! proxy costs. One request is in flight at a time, over one kept connection. Requests of all ways take turns, so that
//! whatever the machine does meanwhile it does to all of them, and nobody has the processor's caches for himself.
//! Behind the engine's request comes one to the upstream alone: what the gateway does behind its answer is not laid to
//! the baseline. With requests in a row, it is done before the next one of the same conversation. The figures are
//! medians and ratios of medians.
//!
//! With many conversations at a time each has a connection of its own and grows by one exchange a request. There the
//! processor time of a request counts, also behind its answer: the client and the upstream share a processor, which is
//! full before the proxy's, so requests a second say less.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

#[path = "gateway/bare.rs"]
mod bare;
#[path = "gateway/body.rs"]
mod body;
#[path = "gateway/client.rs"]
mod client;
#[path = "gateway/cpu.rs"]
mod cpu;
#[path = "gateway/upstream.rs"]
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ctxhost_config::Config;
use ctxhost_gateway::{Gateway, GatewayOptions};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use client::Client;

/// Leaves the threads where the system puts them.
const UNPINNED: &str = "--unpinned";
/// The processor of the client and the upstream, and that of the proxies.
const ENDS: usize = 0;
const PROXIES: usize = 1;
/// Requests of one way in one round.
const OF_A_ROUND: usize = 25;
const ROUNDS: usize = 24;
/// What a stream carries, and how often one is read.
const STREAM_CHUNKS: usize = 20_000;
const STREAMS: usize = 11;
/// Conversations at a time, and how often each begins anew.
const MANY: usize = 32;
const MANY_ROUNDS: usize = 8;
/// How long work behind answers is waited for.
const SETTLE: Duration = Duration::from_millis(100);

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
    let servers =
        [(ENDS, cpu::UPSTREAM), (PROXIES, cpu::BARE), (PROXIES, "gateway")].map(runtime_on);
    pin_to(ENDS);
    let upstream = servers[0].block_on(upstream::start());
    let bare = servers[1].block_on(bare::start(upstream));
    // Its threads are bound to the processor of the one that starts them.
    let gateway = servers[2].spawn(gateway(upstream, state.path().to_owned()));
    let gateway = servers[2].block_on(gateway).unwrap();
    let addresses = Addresses { upstream, bare, gateway };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!("medians, one request in flight; the ratio is to the bare hyper reverse proxy");
        for (bytes, in_a_row) in [(20_000, 1), (800_000, 1), (20_000, OF_A_ROUND)] {
            compare(&addresses, bytes, in_a_row).await;
        }
        for bytes in [20_000, 800_000] {
            compare_many(&addresses, bytes).await;
        }
        compare_streams(&addresses).await;
    });
}

/// A runtime on one processor: as many threads as it has processors, which is tokio's own choice.
fn runtime_on((processor, name): (usize, &str)) -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.enable_all().thread_name(name).on_thread_start(move || pin_to(processor));
    if is_pinned() {
        runtime.worker_threads(1);
    }
    runtime.build().unwrap()
}

fn is_pinned() -> bool {
    std::env::args().all(|argument| argument != UNPINNED)
}

/// Keeps this thread on a processor, where there is such a one and nobody says otherwise.
#[cfg(target_os = "linux")]
fn pin_to(processor: usize) {
    use nix::sched::{CpuSet, sched_setaffinity};
    use nix::unistd::Pid;

    if !is_pinned() {
        return;
    }
    let mut processors = CpuSet::new();
    processors.set(processor).unwrap();
    let _ = sched_setaffinity(Pid::from_raw(0), &processors);
}

#[cfg(not(target_os = "linux"))]
fn pin_to(_: usize) {}

async fn gateway(upstream: SocketAddr, state: PathBuf) -> SocketAddr {
    let text = format!(
        "[model]\ndefault_window_tokens = 1000000\n[gateway.upstreams]\nanthropic-messages = \"http://{upstream}\"\n"
    );
    let config = Config::parse("ctxhost.toml", &text).unwrap();
    let mut options = GatewayOptions::from_config(&config, state);
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

impl Lane {
    /// So many requests of its conversation, one behind the other.
    async fn go_on(&mut self, requests: usize) {
        for _ in 0..requests {
            self.talk.go_on();
            let (took, _) = self.client.post(path(self.way), self.talk.body()).await;
            self.times.push(took);
        }
    }
}

async fn compare(addresses: &Addresses, bytes: usize, in_a_row: usize) {
    let mut lanes = Vec::new();
    for way in WAYS {
        let client = Client::connect(addresses.of(way)).await;
        let talk = body::Talk::new(&format!("{way:?} {in_a_row}"), bytes);
        lanes.push(Lane { way, client, talk, times: Vec::new() });
    }
    for _ in 0..ROUNDS {
        for lane in &mut lanes {
            lane.talk.restart();
            // The first request of a conversation is read whole; it is not what this is about.
            lane.client.post(path(lane.way), lane.talk.body()).await;
        }
        for _ in 0..OF_A_ROUND / in_a_row {
            for lane in &mut lanes {
                lane.go_on(in_a_row).await;
            }
        }
    }
    let medians: Vec<Duration> = lanes.iter_mut().map(|lane| median(&mut lane.times)).collect();
    let baseline = medians[1];
    for (lane, took) in lanes.iter().zip(&medians) {
        let ratio = took.as_secs_f64() / baseline.as_secs_f64();
        let how = if in_a_row > 1 { "in a row" } else { "in turns" };
        let (kilobytes, name) = (bytes / 1_000, name(lane.way));
        println!("{kilobytes:>4} kB {how}  {name:<14} {took:>10.1?}  ratio {ratio:.2}");
    }
}

/// Many conversations at a time, each over a connection of its own.
async fn compare_many(addresses: &Addresses, bytes: usize) {
    let ways = [Way::Bare, Way::PassedThrough, Way::Engine];
    let mut groups = Vec::new();
    for way in ways {
        let mut lanes = Vec::new();
        for nth in 0..MANY {
            let client = Client::connect(addresses.of(way)).await;
            let talk = body::Talk::new(&format!("{way:?} {nth} of many"), bytes);
            lanes.push(Lane { way, client, talk, times: Vec::new() });
        }
        groups.push((way, lanes, Duration::ZERO, Duration::ZERO));
    }
    for _ in 0..MANY_ROUNDS {
        for (way, lanes, took, cpu) in &mut groups {
            for lane in lanes.iter_mut() {
                lane.talk.restart();
                lane.client.post(path(lane.way), lane.talk.body()).await;
            }
            tokio::time::sleep(SETTLE).await;
            let (before, began) = (cpu_of_proxy(*way), Instant::now());
            join_all(lanes.iter_mut().map(|lane| lane.go_on(OF_A_ROUND))).await;
            *took += began.elapsed();
            tokio::time::sleep(SETTLE).await;
            *cpu += cpu_of_proxy(*way).saturating_sub(before);
        }
    }
    let requests = MANY * OF_A_ROUND * MANY_ROUNDS;
    let baseline = groups[0].3;
    for (way, _, took, cpu) in &groups {
        let (kilobytes, name) = (bytes / 1_000, name(*way));
        let ratio = cpu.as_secs_f64() / baseline.as_secs_f64();
        let cpu = *cpu / requests as u32;
        let speed = requests as f64 / took.as_secs_f64();
        println!(
            "{kilobytes:>4} kB {MANY} at a time  {name:<14} {cpu:>10.1?} of the processor a request  ratio {ratio:.2}  {speed:.0} requests/s"
        );
    }
}

fn cpu_of_proxy(way: Way) -> Duration {
    match way {
        Way::Direct => cpu::cpu_of(cpu::UPSTREAM),
        Way::Bare => cpu::cpu_of(cpu::BARE),
        Way::PassedThrough | Way::Engine => cpu::cpu_of_gateway(),
    }
}

async fn compare_streams(addresses: &Addresses) {
    let ways = [Way::Bare, Way::PassedThrough, Way::Engine];
    let mut times = [const { Vec::new() }; 3];
    let mut bytes = 0;
    for _ in 0..STREAMS {
        for (way, times) in ways.iter().zip(&mut times) {
            let mut client = Client::connect(addresses.of(*way)).await;
            let talk = body::Talk::new("stream", 20_000);
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

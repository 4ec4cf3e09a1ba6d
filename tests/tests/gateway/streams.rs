//! Streams: never buffered, never waited for longer than the client does, and whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use futures_util::{StreamExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Barrier, Mutex};

use crate::stage::{Gate, Raw, body_for, client, events, plain, serve};

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n";
const WORD: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n";
const STOP: &str =
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}\n\n";

/// An upstream that streams what the test sends, to the one request that comes.
async fn reported() -> (String, UnboundedSender<Bytes>) {
    let (say, said) = unbounded_channel();
    let said = Arc::new(Mutex::new(Some(said)));
    let house = Router::new().fallback(answer_reported).with_state(said);
    (serve(house).await, say)
}

async fn answer_reported(
    State(said): State<Arc<Mutex<Option<UnboundedReceiver<Bytes>>>>>,
) -> axum::response::Response {
    let said = said.lock().await.take().expect("one request");
    events(said)
}

#[tokio::test]
async fn every_piece_comes_before_the_next_one_is_sent() {
    let (upstream, say) = reported().await;
    let gate = Gate::before(&upstream, "").await;
    say.send(START.into()).unwrap();
    say.send(WORD.into()).unwrap();
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let mut answer = request.send().await.unwrap();
    let mut all = String::new();
    while all.len() < START.len() + WORD.len() {
        all.push_str(std::str::from_utf8(&answer.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert_eq!(all, format!("{START}{WORD}"));
    // Pieces of events are passed on, too.
    for piece in ["data: {\"type\"", ":\"content_block_delta\"}\n", "\n", ": comment\n\n", STOP] {
        say.send(piece.into()).unwrap();
        let passed = answer.chunk().await.unwrap().unwrap();
        assert_eq!(passed, piece);
    }
    drop(say);
    assert_eq!(answer.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn what_came_together_goes_on_as_it_came() {
    const PIECES: usize = 64;
    let (upstream, _) = endless(PIECES as u64, WORD.len()).await;
    let gate = Gate::before(&upstream, "").await;
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let mut answer = request.send().await.unwrap();
    let mut all = Vec::new();
    while let Some(piece) = answer.chunk().await.unwrap() {
        all.extend_from_slice(&piece);
    }
    assert_eq!(all, WORD.repeat(PIECES).as_bytes());
}

#[tokio::test]
async fn a_beginning_that_says_nothing_is_not_held_back_for_ever() {
    let (upstream, say) = reported().await;
    let gate = Gate::before(&upstream, "gateway.hold_ms = 1").await;
    say.send(START.into()).unwrap();
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let mut answer = request.send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), START);
    drop(say);
    assert_eq!(answer.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn an_upload_is_passed_on_while_it_comes() {
    let (hear, mut received) = unbounded_channel::<Bytes>();
    let house = Router::new().fallback(
        |State(hear): State<UnboundedSender<Bytes>>, request: Raw| async move {
            let mut body = request.into_body().into_data_stream();
            while let Some(piece) = body.next().await {
                hear.send(piece.unwrap()).unwrap();
            }
            plain(200, "text/plain", "heard")
        },
    );
    let gate =
        Gate::before(&serve(house.with_state(hear)).await, "gateway.max_body_bytes = 1024").await;
    let (say, said) = unbounded_channel();
    let said = stream::unfold(said, |mut said: UnboundedReceiver<Bytes>| async move {
        Some((Ok::<_, std::io::Error>(said.recv().await?), said))
    });
    let upload = client().post(gate.at("/v1/files")).body(reqwest::Body::wrap_stream(said));
    let upload = tokio::spawn(upload.send());
    // More than an engine may see, and no one asks an engine.
    for byte in 0..3u8 {
        let piece = Bytes::from(vec![byte; 700]);
        say.send(piece.clone()).unwrap();
        let mut got = Vec::new();
        while got.len() < piece.len() {
            got.extend_from_slice(&received.recv().await.unwrap());
        }
        assert_eq!(got, piece);
    }
    drop(say);
    assert_eq!(upload.await.unwrap().unwrap().text().await.unwrap(), "heard");
}

/// An upstream of many pieces, and how many of them were taken from it.
async fn endless(pieces: u64, bytes: usize) -> (String, Arc<AtomicU64>) {
    let taken = Arc::<AtomicU64>::default();
    let house = Router::new().fallback(move |State(taken): State<Arc<AtomicU64>>| async move {
        let piece = Bytes::from(WORD.repeat(bytes / WORD.len()));
        let pieces = stream::iter(0..pieces).map(move |_| {
            taken.fetch_add(1, Ordering::SeqCst);
            Ok::<_, std::io::Error>(piece.clone())
        });
        plain(200, "text/event-stream", Body::from_stream(pieces))
    });
    (serve(house.with_state(taken.clone())).await, taken)
}

#[tokio::test]
async fn a_slow_reader_slows_the_upstream_down_and_loses_nothing() {
    const PIECES: u64 = 600;
    const BYTES: usize = 100_000;
    let (upstream, taken) = endless(PIECES, BYTES).await;
    let gate = Gate::before(&upstream, "").await;
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let answer = request.send().await.unwrap();
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = taken.load(Ordering::SeqCst);
        if now == before {
            break;
        }
        before = now;
    }
    assert!(before < PIECES, "the gateway took all of an answer that nobody read");
    let whole = answer.bytes().await.unwrap();
    assert_eq!(whole.len(), WORD.len() * (BYTES / WORD.len()) * PIECES as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_streams_at_once() {
    const STREAMS: usize = 500;
    let (soft, hard) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let wanted = hard.min(8_192).max(soft);
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, wanted, hard)
        .unwrap();
    let all_here = Arc::new(Barrier::new(STREAMS));
    let house = Router::new().fallback(|State(all_here): State<Arc<Barrier>>| async move {
        let rest = stream::once(async move {
            all_here.wait().await;
            Ok::<_, std::io::Error>(Bytes::from_static(STOP.as_bytes()))
        });
        let begin = stream::iter([Ok(Bytes::from(format!("{START}{WORD}")))]);
        plain(200, "text/event-stream", Body::from_stream(begin.chain(rest)))
    });
    let gate = Gate::before(&serve(house.with_state(all_here)).await, "").await;
    let (client, url) = (client(), gate.at("/v1/messages"));
    let asked = (0..STREAMS).map(|_| {
        let request = client.post(&url).body(body_for("/v1/messages"));
        tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() })
    });
    let asked: Vec<_> = asked.collect();
    for answer in asked {
        assert_eq!(answer.await.unwrap(), format!("{START}{WORD}{STOP}"));
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_let_go() {
    let (upstream, say) = reported().await;
    let gate = Gate::before(&upstream, "gateway.client_stall_ms = 300").await;
    say.send(WORD.into()).unwrap();
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let answer = request.send().await.unwrap();
    let piece = Bytes::from(WORD.repeat(10_000));
    let let_go = async {
        while say.send(piece.clone()).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), let_go).await.expect("it is let go");
    answer.bytes().await.expect_err("it was broken off");
}

/// The bytes with which an HTTP/2 client begins that asks for the models and takes no byte of the answer.
fn without_room(authority: &str) -> Vec<u8> {
    let field = |name: u8, value: &str| [&[name, value.len() as u8], value.as_bytes()].concat();
    // Two indexed fields of HPACK: GET, http.
    let head = [vec![0x82, 0x86], field(0x04, "/v1/models"), field(0x01, authority)].concat();
    let frame = |kind: u8, flags: u8, stream: u8, body: &[u8]| {
        let head = [0, 0, body.len() as u8, kind, flags, 0, 0, 0, stream];
        [&head, body].concat()
    };
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), settings, frame(1, 5, 1, &head)].concat()
}

#[tokio::test]
async fn an_http2_client_that_gives_no_room_is_let_go() {
    let upstream = serve(Router::new().fallback(|| async { "models" })).await;
    let gate = Gate::before(&upstream, "gateway.client_stall_ms = 300").await;
    let authority = gate.url.trim_start_matches("http://");
    let mut client = tokio::net::TcpStream::connect(authority).await.unwrap();
    client.write_all(&without_room(authority)).await.unwrap();
    let mut received = Vec::new();
    let end = client.read_to_end(&mut received);
    let _ = tokio::time::timeout(Duration::from_secs(30), end).await.expect("it is let go");
    // Settings came, and the head of the answer, but no byte of it.
    assert!(!received.is_empty() && !received.windows(6).any(|bytes| bytes == b"models"));
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_upstream_request() {
    let (upstream, say) = reported().await;
    let gate = Gate::before(&upstream, "").await;
    say.send(WORD.into()).unwrap();
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let mut answer = request.send().await.unwrap();
    answer.chunk().await.unwrap();
    drop(answer);
    // Its stream is dropped, and with it the end that words are sent to.
    while say.send(WORD.into()).is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn streams_end_before_the_gateway_does() {
    let (upstream, say) = reported().await;
    let gate = Gate::before(&upstream, "").await;
    say.send(WORD.into()).unwrap();
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let mut answer = request.send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), WORD);
    gate.end.cancel();
    // Nobody else is let in.
    while client().get(gate.at("/healthz")).send().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!gate.task.is_finished());
    say.send(STOP.into()).unwrap();
    drop(say);
    assert_eq!(answer.chunk().await.unwrap().unwrap(), STOP);
    assert_eq!(answer.chunk().await.unwrap(), None);
    gate.task.await.unwrap();
}

#[tokio::test]
async fn a_stream_that_does_not_end_is_cut_off_in_time() {
    let (upstream, say) = reported().await;
    let gate = Gate::before(&upstream, "gateway.drain_ms = 20").await;
    say.send(WORD.into()).unwrap();
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let mut answer = request.send().await.unwrap();
    answer.chunk().await.unwrap();
    gate.end.cancel();
    gate.task.await.unwrap();
}

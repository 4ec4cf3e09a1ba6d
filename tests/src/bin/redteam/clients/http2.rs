//! Attacks on HTTP/2: clients that open streams and take nothing, and streams that are reset at once.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use super::{FAIR, HASTY, attack};
use crate::http;
use crate::origin::{Act, Origin, whole};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("HTTP/2 without room", "opens streams and takes no byte of the answers", no_room),
        attack("HTTP/2 resets", "opens streams and resets each at once", resets),
    ]
}

/// Streams of one connection, whose numbers fit into a byte.
const STREAMS: u8 = 60;
const CONNECTIONS: usize = 40;
/// Patience with a client that takes nothing, and as long as the gateway may take to see it.
const STALL: &str = "gateway.client_stall_ms = 500\n";
const LATE: Duration = Duration::from_secs(10);

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
    let head = [0, 0, body.len() as u8, kind, flags, 0, 0, 0, stream];
    [&head, body].concat()
}

/// The beginning of a connection, whose streams have no room for an answer.
fn preface() -> Vec<u8> {
    let no_room = [0, 4, 0, 0, 0, 0];
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &no_room)].concat()
}

/// A GET on a stream of its own.
fn request(stream: u8, authority: &str) -> Vec<u8> {
    let field = |name: u8, value: &str| [&[name, value.len() as u8], value.as_bytes()].concat();
    // Two indexed fields of HPACK: GET, http. Then literal ones that are not indexed.
    let head = [vec![0x82, 0x86], field(0x04, "/v1/files"), field(0x01, authority)].concat();
    frame(HEADERS, 5, stream, &head)
}

fn streams() -> impl Iterator<Item = u8> {
    (0..STREAMS).map(|n| 2 * n + 1)
}

fn no_room(stand: &Stand) {
    stand.tried(CONNECTIONS as u64 * u64::from(STREAMS));
    let large = vec![b'x'; 1 << 20];
    let origin = Origin::start(move |_| vec![Act::Send(whole(200, "text/plain", &large))]);
    let gateway = stand.serve(&origin.url(), &format!("{HASTY}{STALL}"));
    let mut clients: Vec<_> =
        (0..CONNECTIONS).filter_map(|_| http::connect(&gateway.address)).collect();
    for client in &mut clients {
        let requests = streams().flat_map(|stream| request(stream, &gateway.address));
        let bytes: Vec<u8> = preface().into_iter().chain(requests).collect();
        let _ = client.write_all(&bytes);
    }
    let begun = Instant::now();
    let answer = http::ask(&gateway.address, "GET", "/healthz", &[], b"");
    stand.must(answer.status == 200 && begun.elapsed() < FAIR, Breach::Unbounded, || {
        format!("a decent client gets {} in {:.1} s", answer.status, begun.elapsed().as_secs_f64())
    });
    // Each connection ends, and no byte of an answer came over it.
    let end = Instant::now() + LATE;
    let mut open = 0;
    for client in &mut clients {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let _ = client.set_read_timeout(Some(left));
        let mut received = Vec::new();
        if let Err(error) = client.read_to_end(&mut received) {
            open += usize::from(error.kind() == std::io::ErrorKind::WouldBlock);
        }
        let has_come = received.windows(8).any(|bytes| bytes == b"xxxxxxxx");
        stand.must(!has_come, Breach::Wrong, || "bytes came that had no room".to_owned());
        stand.must(!received.is_empty(), Breach::Wrong, || "HTTP/2 is not spoken".to_owned());
    }
    stand.must(open == 0, Breach::Unbounded, || {
        format!("{open} connections that take nothing are open after {} s", LATE.as_secs())
    });
    gateway.must_take_at_most(300, "streams without room");
    gateway.end();
    origin.stop();
}

fn resets(stand: &Stand) {
    let rounds = stand.size(20, 200, 1_000);
    stand.tried(rounds * u64::from(STREAMS));
    let origin = Origin::start(|_| {
        vec![Act::Pause(Duration::from_millis(200)), Act::Send(whole(200, "text/plain", b"models"))]
    });
    let gateway = stand.serve(&origin.url(), HASTY);
    for _ in 0..rounds {
        let Some(mut client) = http::connect(&gateway.address) else { continue };
        let cancel = [0, 0, 0, 8];
        let torn = streams().flat_map(|stream| {
            [request(stream, &gateway.address), frame(RESET, 0, stream, &cancel)].concat()
        });
        let bytes: Vec<u8> = preface().into_iter().chain(torn).collect();
        let _ = client.write_all(&bytes);
    }
    let begun = Instant::now();
    let answer = http::ask(&gateway.address, "GET", "/healthz", &[], b"");
    stand.must(answer.status == 200 && begun.elapsed() < FAIR, Breach::Unbounded, || {
        format!("a decent client gets {} in {:.1} s", answer.status, begun.elapsed().as_secs_f64())
    });
    gateway.must_take_at_most(300, "streams that are reset");
    gateway.end();
    origin.stop();
}

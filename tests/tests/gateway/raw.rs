//! HTTP on a bare connection, byte by byte.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::stage::{Gate, client};

/// Longer than anything here takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(30);

async fn connected(gate: &Gate) -> TcpStream {
    TcpStream::connect(gate.url.trim_start_matches("http://")).await.unwrap()
}

#[tokio::test]
async fn whoever_connects_and_says_nothing_holds_no_place_for_ever() {
    let gate = Gate::before("http://127.0.0.1:9", "gateway.client_timeout_ms = 100").await;
    for said in ["", "PRI * HTTP/2", "G", "GET / HTTP/1.1\r\n"] {
        let mut client = connected(&gate).await;
        client.write_all(said.as_bytes()).await.unwrap();
        let ended = timeout(LONG, client.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "after {said:?} it is still let wait");
    }
}

const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// An upstream that answers so as soon as it has a head, as many do with GET; the heads it got.
async fn hasty(answer: &'static str) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (heads, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heads = heads.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        let reported = String::from_utf8(std::mem::take(&mut head)).unwrap();
                        heads.send(reported.to_ascii_lowercase()).unwrap();
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    (url, seen)
}

#[tokio::test]
async fn a_body_that_is_not_passed_on_is_not_announced() {
    let (upstream, mut heads) = hasty(SHORT).await;
    let gate = Gate::before(&upstream, "").await;
    let mut client = connected(&gate).await;
    let ask = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello";
    client.write_all(ask.as_bytes()).await.unwrap();
    let head = timeout(LONG, heads.recv()).await.unwrap().unwrap();
    assert!(head.starts_with("get /v1/models "), "{head}");
    let announced = head.lines().find(|line| line.starts_with("content-length"));
    assert!(announced.is_none_or(|line| line == "content-length: 0"), "{head}");
}

#[tokio::test]
async fn a_length_beside_chunks_cuts_nothing() {
    let both = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n";
    let (upstream, _heads) = hasty(both).await;
    let gate = Gate::before(&upstream, "").await;
    let answer = client().get(gate.at("/v1/files")).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap()), (200, "{\"a\":1}".into()));
}

#[tokio::test]
async fn two_hosts_tunnels_and_echoes_go_no_further() {
    let (upstream, mut heads) = hasty(SHORT).await;
    let gate = Gate::before(&upstream, "").await;
    for (said, status) in [
        ("GET /v1/files HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n", "400"),
        ("TRACE /v1/files HTTP/1.1\r\nhost: localhost\r\n\r\n", "501"),
        ("CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n", "501"),
    ] {
        let mut client = connected(&gate).await;
        client.write_all(said.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(LONG, client.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer[9..], status.as_bytes(), "{said}");
    }
    assert!(heads.try_recv().is_err(), "the upstream was asked");
}

#[tokio::test]
async fn requests_that_somebody_could_read_otherwise_go_no_further() {
    let (upstream, mut heads) = hasty(SHORT).await;
    let gate = Gate::before(&upstream, "").await;
    let chunks = "1\r\nx\r\n0\r\n\r\n";
    for (line, headers, body, status) in [
        ("POST /v1/files HTTP/1.1", "x-a: 1\r\n 2\r\n", "", "400"),
        ("POST /v1/files HTTP/1.1", "x-a : 1\r\n", "", "400"),
        ("POST /v1/files HTTP/1.1", "transfer-encoding: chunked, identity\r\n", chunks, "400"),
        ("POST /v1/files HTTP/1.1", "transfer-encoding: identity\r\n", "", "400"),
        ("POST /v1/files HTTP/1.1", "transfer-encoding: xchunked\r\n", chunks, "400"),
        ("POST /v1/files HTTP/1.0", "transfer-encoding: chunked\r\n", chunks, "400"),
        ("POST /v1/files HTTP/1.1", "content-length: +1\r\n", "x", "400"),
        ("POST /v1/files HTTP/1.1", "content-length: 1\r\ncontent-length: 2\r\n", "xy", "400"),
        ("POST /v1/files HTTP/1.1", "content-length: 1, 2\r\n", "xy", "400"),
        ("POST /v1/files HTTP/1.1", "content-length: 0x1\r\n", "x", "400"),
        ("GET http://elsewhere.example/v1/files HTTP/1.1", "", "", "421"),
    ] {
        let mut client = connected(&gate).await;
        let said = format!("{line}\r\nhost: localhost\r\n{headers}\r\n{body}");
        client.write_all(said.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        let read = timeout(LONG, client.read_exact(&mut answer)).await.unwrap();
        assert!(read.is_ok(), "{said:?}: {read:?}");
        assert_eq!(&answer[9..], status.as_bytes(), "{said:?}");
    }
    assert!(heads.try_recv().is_err(), "the upstream was asked");
}

#[tokio::test]
async fn a_length_beside_chunks_is_not_passed_on() {
    for lengths in
        ["content-length: 9\r\ntransfer-encoding: chunked\r\n", "content-length: 1, 1\r\n"]
    {
        // What comes behind a head is one to it, too.
        let (upstream, mut heads) = hasty(SHORT).await;
        let gate = Gate::before(&upstream, "").await;
        let mut client = connected(&gate).await;
        let body = if lengths.contains("chunked") { "1\r\nx\r\n0\r\n\r\n" } else { "x" };
        let said = format!("POST /v1/files HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n{body}");
        client.write_all(said.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(LONG, client.read_exact(&mut answer)).await.unwrap().unwrap();
        match &answer[9..] {
            b"400" => assert!(heads.try_recv().is_err(), "{said:?}"),
            _ => {
                let head = timeout(LONG, heads.recv()).await.unwrap().unwrap();
                let said_lengths =
                    ["content-length", "transfer-encoding"].map(|name| head.matches(name).count());
                assert_eq!(said_lengths.iter().sum::<usize>(), 1, "{head}");
                assert!(!head.contains("content-length: 9") && !head.contains("1, 1"), "{head}");
            }
        }
    }
}

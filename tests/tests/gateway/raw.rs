//! What is said on the bare connection, byte by byte, by clients that are no library.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::stage::Gate;

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

/// An upstream that answers as soon as it has a head, as many do with GET; the heads it got.
async fn hasty() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
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
                        let told = String::from_utf8(std::mem::take(&mut head)).unwrap();
                        heads.send(told.to_ascii_lowercase()).unwrap();
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                        stream.write_all(answer).await.unwrap();
                    }
                }
            });
        }
    });
    (url, seen)
}

#[tokio::test]
async fn a_body_that_is_not_passed_on_is_not_announced() {
    let (upstream, mut heads) = hasty().await;
    let gate = Gate::before(&upstream, "").await;
    let mut client = connected(&gate).await;
    let ask = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello";
    client.write_all(ask.as_bytes()).await.unwrap();
    let head = timeout(LONG, heads.recv()).await.unwrap().unwrap();
    assert!(head.starts_with("get /v1/models "), "{head}");
    let announced = head.lines().find(|line| line.starts_with("content-length"));
    assert!(announced.is_none_or(|line| line == "content-length: 0"), "{head}");
}

//! One kept connection, one request at a time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A client with its connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client { sender, address }
    }

    /// How long it took until the last byte of the answer, and how many those were.
    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> (Duration, usize) {
        let request = Request::post(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", "bench")
            .body(Full::new(body))
            .unwrap();
        self.sender.ready().await.unwrap();
        let began = Instant::now();
        let response = self.sender.send_request(request).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        let mut body = response.into_body();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().data_ref().map_or(0, Bytes::len);
        }
        (began.elapsed(), read)
    }
}

//! Upstreams that are reached by a proxy.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::stage::{Gate, Upstream, body_for, client, plain};

const DOOR: &str = "/v1/chat/completions";

fn behind(proxy: &str, base: &str) -> String {
    format!(
        "[providers.mine]\ndialect = \"openai-completions\"\nbase_url = {base:?}\nproxy = {proxy:?}\n\
         [gateway.upstreams]\nopenai = \"mine\"\n"
    )
}

#[tokio::test]
async fn a_plain_upstream_is_asked_for_at_the_proxy() {
    let proxy = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let address = proxy.url.replace("http://", "http://me:word@");
    let gate = Gate::before("", &behind(&address, "http://models.example:81/v1")).await;
    for _ in 0..2 {
        let request = client().post(gate.at(DOOR)).header("authorization", "Bearer k");
        let answer = request.body(body_for(DOOR)).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let seen = proxy.last();
        assert_eq!(seen.uri, "http://models.example:81/v1/chat/completions");
        assert_eq!(seen.header("host"), Some("models.example:81"));
        assert_eq!(seen.header("proxy-authorization"), Some("Basic bWU6d29yZA=="));
        assert_eq!(seen.header("authorization"), Some("Bearer k"));
        assert_eq!(seen.body, body_for(DOOR));
    }
}

#[tokio::test]
async fn a_proxy_leads_to_an_upstream_with_tls_and_reads_nothing_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://me:word@{}", listener.local_addr().unwrap());
    let received = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 Go on\r\n\r\n").await.unwrap();
        // The first byte of TLS: a handshake.
        (String::from_utf8(head).unwrap(), stream.read_u8().await.unwrap())
    });
    let gate = Gate::before("", &behind(&address, "https://models.example/v1")).await;
    let answer = client().post(gate.at(DOOR)).body(body_for(DOOR)).send().await.unwrap();
    assert_eq!(answer.status(), 502, "nobody is at the other end");
    let (head, first) = received.await.unwrap();
    assert!(head.starts_with("CONNECT models.example:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic bWU6d29yZA=="), "{head}");
    assert_eq!(first, 22);
}

#[tokio::test]
async fn socks_leads_there_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("socks5://{}", listener.local_addr().unwrap());
    let upstream = ScriptedServer::start(Wire::OpenAiChat, Model::new(100_000));
    let there = upstream.url().replace("http://", "");
    let received = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut methods = [0; 3];
        stream.read_exact(&mut methods).await.unwrap();
        assert_eq!(methods, [5, 1, 0]);
        stream.write_all(&[5, 0]).await.unwrap();
        let mut asked = [0; 5 + 14 + 2];
        stream.read_exact(&mut asked).await.unwrap();
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        let mut upstream = tokio::net::TcpStream::connect(there).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
        asked
    });
    {
        let gate = Gate::before("", &behind(&address, "http://models.example/v1")).await;
        let body = crate::overflow::request(Wire::OpenAiChat, &["Hello.".to_owned()], false);
        let answer = crate::overflow::ask(&gate, Wire::OpenAiChat, &body, false).await;
        assert_eq!(answer.status(), 200);
        assert!(!answer.text().await.unwrap().is_empty());
        gate.end.cancel();
        gate.task.await.unwrap();
    }
    drop(upstream);
    let asked = received.await.unwrap();
    assert_eq!(&asked[..5], [5, 1, 0, 3, 14]);
    assert_eq!(&asked[5..], b"models.example\0\x50");
}

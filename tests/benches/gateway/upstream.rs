//! The upstream of the bench: it reads a body to the end and answers the same few bytes, or a stream.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"bench","content":[{"type":"text","text":"yes"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":1}}"#;
const CHUNK: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word after word \"}}\n\n";

type Body = BoxBody<Bytes, Infallible>;

pub(crate) async fn start() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)),
            );
        }
    });
    address
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let mut body = request.into_body();
    let mut last = Bytes::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            last = data;
        }
    }
    Ok(match chunks_wanted(&last) {
        None => {
            response("application/json", Full::new(Bytes::from_static(ANSWER.as_bytes())).boxed())
        }
        Some(chunks) => {
            let frame = || Ok(Frame::data(Bytes::from_static(CHUNK.as_bytes())));
            let frames = stream::iter(0..chunks).map(move |_| frame());
            response("text/event-stream", BodyExt::boxed(StreamBody::new(frames)))
        }
    })
}

/// The wish for a stream stands at the end of the body, so that nobody has to parse 800 kB.
fn chunks_wanted(last: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(last);
    let (_, number) = text.rsplit_once("\"chunks\":")?;
    number.trim_end_matches('}').parse().ok()
}

fn response(content_type: &str, body: Body) -> Response<Body> {
    Response::builder().header("content-type", content_type).body(body).unwrap()
}

//! The baseline: a reverse proxy of hyper alone, which streams both ways and looks at nothing.

use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

pub(crate) async fn start(upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let client = client.clone();
            let pass_on = service_fn(move |mut request: Request<Incoming>| {
                let path = request.uri().path_and_query().unwrap().clone();
                let uri = Uri::builder().scheme("http").authority(upstream.to_string());
                *request.uri_mut() = uri.path_and_query(path).build().unwrap();
                client.request(request)
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), pass_on));
        }
    });
    address
}

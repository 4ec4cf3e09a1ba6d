//! Accepts connections, passes requests on, and can abort a connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::desk::{Arrived, Desk, Outcome};

/// Serves on a runtime that holds everything of the server, so that it goes down with it.
pub(super) fn open(listener: std::net::TcpListener, desk: Arc<Mutex<Desk>>) -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime for the server");
    listener.set_nonblocking(true).expect("a socket that does not block");
    runtime.spawn(async move {
        let door = Door(TcpListener::from_std(listener).expect("a listening socket"));
        let house =
            Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(desk);
        let house = house.into_make_service_with_connect_info::<Cord>();
        axum::serve(door, house).await
    });
    runtime
}

async fn answer(
    State(desk): State<Arc<Mutex<Desk>>>,
    ConnectInfo(cord): ConnectInfo<Cord>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // Clients look whether anybody is there before they ask.
    if method != Method::POST {
        return match uri.path() {
            "/seen" => desk.lock().unwrap_or_else(PoisonError::into_inner).tally().into_response(),
            _ => "scripted provider".into_response(),
        };
    }
    if uri.path() == "/count" {
        return desk.lock().unwrap_or_else(PoisonError::into_inner).count(&body).into_response();
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let arrived = Arrived { path, headers, body };
    let outcome = desk.lock().unwrap_or_else(PoisonError::into_inner).answer(arrived);
    match outcome {
        Outcome::Now(response) => response,
        Outcome::Later(delay, response) => {
            tokio::time::sleep(delay).await;
            response
        }
        Outcome::Never => std::future::pending().await,
        Outcome::Reset => {
            cord.0.store(true, Ordering::SeqCst);
            "".into_response()
        }
    }
}

/// The listener.
struct Door(TcpListener);

impl Listener for Door {
    type Io = Line;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Line, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        // Small chunks shall arrive as they are sent; that they may not is no fault of the test.
        let _ = stream.set_nodelay(true);
        (Line { stream, slam: Arc::default() }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A connection that can be slammed shut.
struct Line {
    stream: TcpStream,
    slam: Arc<AtomicBool>,
}

/// What slams it.
#[derive(Clone)]
struct Cord(Arc<AtomicBool>);

impl Connected<IncomingStream<'_, Door>> for Cord {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Cord {
        Cord(stream.io().slam.clone())
    }
}

impl Line {
    fn slammed(&self) -> Option<io::Error> {
        self.slam.load(Ordering::SeqCst).then(|| io::ErrorKind::ConnectionReset.into())
    }
}

impl Drop for Line {
    /// A socket that does not linger is not closed but reset.
    fn drop(&mut self) {
        if self.slammed().is_some() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.slammed() {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

//! Closes connections that send nothing.
//!
//! hyper detects the HTTP version by the first bytes, without a timeout. Its own timers only start after that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The length of the HTTP/2 preface. No HTTP/1 request with a host is shorter.
const PREFACE_BYTES: usize = 24;

/// A connection with a timeout for its first bytes.
pub(super) struct FirstByteTimeout<S> {
    stream: S,
    /// `Some` until the first bytes have arrived.
    waiting: Option<FirstByteDeadline>,
}

struct FirstByteDeadline {
    missing_bytes: usize,
    timer: Pin<Box<Sleep>>,
}

impl<S> FirstByteTimeout<S> {
    /// Starts the timeout.
    pub(super) fn new(stream: S, timeout: Duration) -> FirstByteTimeout<S> {
        let timeout = Box::pin(sleep(timeout));
        FirstByteTimeout {
            stream,
            waiting: Some(FirstByteDeadline { missing_bytes: PREFACE_BYTES, timer: timeout }),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstByteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(waiting) = &mut self.waiting else { return read };
        if read.is_pending() {
            // The timer is polled only while the stream is pending, so data that has arrived always
            // wins.
            ready!(waiting.timer.as_mut().poll(context));
            let message = "no request within gateway.client_timeout_ms";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
        }
        let received = buffer.filled().len() - before;
        waiting.missing_bytes = waiting.missing_bytes.saturating_sub(received);
        if waiting.missing_bytes == 0 {
            self.waiting = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstByteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_partial_preface_times_out() {
        let (mut client, server) = duplex(64);
        let mut server = FirstByteTimeout::new(server, TIMEOUT);
        client.write_all(b"PRI * HTTP/2").await.unwrap();
        let error = server.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_timeout_after_it() {
        let (mut client, server) = duplex(64);
        let mut server = FirstByteTimeout::new(server, TIMEOUT);
        client.write_all(&[b'x'; PREFACE_BYTES]).await.unwrap();
        let mut preface = [0; PREFACE_BYTES];
        server.read_exact(&mut preface).await.unwrap();
        let late = tokio::spawn(async move { server.read_u8().await });
        sleep(TIMEOUT * 3).await;
        client.write_all(b"y").await.unwrap();
        assert_eq!(late.await.unwrap().unwrap(), b'y');
    }
}

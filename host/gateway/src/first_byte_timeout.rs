//! The first bytes of a connection: they come in time, or it is over.
//!
//! Which version of HTTP is spoken is told by them, and whoever finds that out waits without an end. The
//! timers of both versions begin only behind it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The bytes that tell the version: with so many HTTP/2 begins, and no request of HTTP/1 that names its
/// host is shorter.
const PREFACE_BYTES: usize = 24;

/// A connection that has to say something.
pub(super) struct FirstByteTimeout<S> {
    stream: S,
    /// Until the opening is whole.
    waiting: Option<FirstByteDeadline>,
}

struct FirstByteDeadline {
    missing_bytes: usize,
    timer: Pin<Box<Sleep>>,
}

impl<S> FirstByteTimeout<S> {
    /// A connection whose first bytes are waited for so long, from now on.
    pub(super) fn new(stream: S, patience: Duration) -> FirstByteTimeout<S> {
        let patience = Box::pin(sleep(patience));
        FirstByteTimeout {
            stream,
            waiting: Some(FirstByteDeadline { missing_bytes: PREFACE_BYTES, timer: patience }),
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
            ready!(waiting.timer.as_mut().poll(context));
            let slow = "nothing was said in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, slow)));
        }
        let came = buffer.filled().len() - before;
        waiting.missing_bytes = waiting.missing_bytes.saturating_sub(came);
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

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn half_an_opening_is_none() {
        let (mut client, server) = duplex(64);
        let mut server = FirstByteTimeout::new(server, PATIENCE);
        client.write_all(b"PRI * HTTP/2").await.unwrap();
        let error = server.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn after_it_there_is_no_hurry() {
        let (mut client, server) = duplex(64);
        let mut server = FirstByteTimeout::new(server, PATIENCE);
        client.write_all(&[b'x'; PREFACE_BYTES]).await.unwrap();
        let mut opening = [0; PREFACE_BYTES];
        server.read_exact(&mut opening).await.unwrap();
        let late = tokio::spawn(async move { server.read_u8().await });
        sleep(PATIENCE * 3).await;
        client.write_all(b"y").await.unwrap();
        assert_eq!(late.await.unwrap().unwrap(), b'y');
    }
}

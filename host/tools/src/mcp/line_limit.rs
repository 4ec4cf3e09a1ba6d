//! Ends the output of a server that writes a line without an end.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The output of a server, each line up to a limit.
#[derive(Debug)]
pub(super) struct LineLimit<R> {
    output: R,
    max_bytes: usize,
    /// The bytes since the last line break.
    line_bytes: usize,
}

impl<R> LineLimit<R> {
    pub(super) fn new(output: R, max_bytes: usize) -> LineLimit<R> {
        LineLimit { output, max_bytes, line_bytes: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for LineLimit<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let known = buffer.filled().len();
        ready!(Pin::new(&mut self.output).poll_read(context, buffer))?;
        let read = buffer.filled().get(known..).unwrap_or_default();
        self.line_bytes = match memchr::memrchr(b'\n', read) {
            Some(end) => read.len() - end - 1,
            None => self.line_bytes + read.len(),
        };
        // The SDK buffers a line until it is complete.
        if self.line_bytes > self.max_bytes {
            let message = format!("a message of the server has more than {} bytes", self.max_bytes);
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, message)));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, copy, repeat, sink};

    use super::*;

    #[tokio::test]
    async fn a_line_without_an_end_is_an_error_and_many_lines_are_not() {
        let error =
            copy(&mut LineLimit::new(repeat(b'x'), 100_000), &mut sink()).await.unwrap_err();
        assert!(error.to_string().contains("more than 100000 bytes"), "{error}");
        let lines = "0123456789\n".repeat(100_000);
        let mut read = String::new();
        LineLimit::new(lines.as_bytes(), 10).read_to_string(&mut read).await.unwrap();
        assert_eq!(read, lines);
    }
}

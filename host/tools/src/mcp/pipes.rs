//! The messages of a server over its stdin and stdout, one a line.
//!
//! The SDK awaits the next message in a `select!` and drops that future at each other event. Its own transport loses what it
//! has read of a line by then, so lines are read by a task here and handed over when they are complete.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

use super::message;

/// Lines that wait for the SDK; more would only take memory.
const LINES_WAITING: usize = 1;

/// Bytes per read: the capacity of a pipe on Linux.
const CHUNK_BYTES: usize = 64 * 1024;

/// The transport of a server that is a child process.
pub(super) struct PipeTransport<W> {
    received: mpsc::Receiver<ServerJsonRpcMessage>,
    reader: AbortHandle,
    input: Arc<Mutex<Option<W>>>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> PipeTransport<W> {
    /// Reads from `output` from now on, messages of up to `max_bytes` bytes.
    pub(super) fn new(
        server: &str,
        output: impl AsyncRead + Send + Unpin + 'static,
        input: W,
        max_bytes: usize,
    ) -> PipeTransport<W> {
        let (sender, received) = mpsc::channel(LINES_WAITING);
        let reader = tokio::spawn(read_messages(server.to_owned(), output, max_bytes, sender));
        let reader = reader.abort_handle();
        PipeTransport { received, reader, input: Arc::new(Mutex::new(Some(input))) }
    }
}

impl<W> Drop for PipeTransport<W> {
    fn drop(&mut self) {
        // A process that has left the group of the server may keep the pipe open.
        self.reader.abort();
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleClient> for PipeTransport<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = Arc::clone(&self.input);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let closed = || io::Error::new(io::ErrorKind::NotConnected, "the connection is closed");
            let input = input.as_mut().ok_or_else(closed)?;
            input.write_all(&line).await?;
            input.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.received.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.input.lock().await.take());
        Ok(())
    }
}

/// Hands over the messages of a server until its output ends, or a message is too long.
async fn read_messages(
    server: String,
    output: impl AsyncRead + Send + Unpin,
    max_bytes: usize,
    sender: mpsc::Sender<ServerJsonRpcMessage>,
) {
    let mut output = BufReader::with_capacity(CHUNK_BYTES, output);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Memory of a long message is not kept for the next ones.
        line.shrink_to(CHUNK_BYTES);
        // One byte more shows that the line is too long.
        let mut limited = (&mut output).take(max_bytes as u64 + 1);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%server, %error, "cannot read from the MCP server");
                return;
            }
        }
        let is_too_long = line.len() > max_bytes && !line.ends_with(b"\n");
        let messages = if is_too_long {
            let cause = format!("it has more than the limit of {max_bytes} bytes");
            message::unreadable(&server, &String::from_utf8_lossy(&line), &cause)
        } else {
            message::read(&server, &line)
        };
        for message in messages {
            if sender.send(message).await.is_err() {
                return;
            }
        }
        // The rest of the line may never end. The connection ends here, and the next call starts the server again.
        if is_too_long {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::io::{DuplexStream, duplex, sink};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn open(max_bytes: usize) -> (DuplexStream, PipeTransport<tokio::io::Sink>) {
        let (server, output) = duplex(1 << 20);
        (server, PipeTransport::new("fix", output, sink(), max_bytes))
    }

    async fn received(transport: &mut PipeTransport<tokio::io::Sink>) -> Option<Value> {
        let message = timeout(SOON, transport.receive()).await.expect("no message in time");
        message.map(|message| serde_json::to_value(message).unwrap())
    }

    #[tokio::test]
    async fn a_message_that_was_awaited_in_vain_is_complete_later() {
        let (mut server, mut transport) = open(1 << 20);
        let response = json!({"jsonrpc": "2.0", "id": 3, "result": {"text": "x".repeat(200_000)}});
        let line = format!("{response}\n");
        let (first, second) = line.split_at(100_000);
        server.write_all(first.as_bytes()).await.unwrap();
        // What the SDK does if it has something to send meanwhile.
        assert!(timeout(Duration::from_millis(100), transport.receive()).await.is_err());
        server.write_all(second.as_bytes()).await.unwrap();
        assert_eq!(received(&mut transport).await, Some(response));
    }

    #[tokio::test]
    async fn a_message_above_the_limit_fails_its_request_and_ends_the_connection() {
        let (mut server, mut transport) = open(100);
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{}", "x".repeat(300));
        server.write_all(line.as_bytes()).await.unwrap();
        let error = received(&mut transport).await.unwrap();
        assert_eq!(error["id"], 7);
        let cause = error["error"]["message"].as_str().unwrap();
        assert_eq!(cause, "it has more than the limit of 100 bytes");
        assert_eq!(received(&mut transport).await, None);
    }

    #[tokio::test]
    async fn many_lines_are_no_long_line() {
        let (mut server, mut transport) = open(60);
        let line = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1}}\n";
        for _ in 0..1_000 {
            server.write_all(line.as_bytes()).await.unwrap();
            assert_eq!(received(&mut transport).await.unwrap()["id"], 1);
        }
    }
}

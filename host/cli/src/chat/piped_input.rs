//! Text that is piped to `chat -p`, which is sent with its message: `cat log | ctxhost chat -p "summarise"`.

use std::io::{ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ctxhost_platform::standard_input::is_file_or_pipe;

use crate::error::CliError;
use crate::output::Output;
use crate::render::format::group_digits;

/// How long a pipe may stay silent: some programs start this one with a pipe that they never write to or close.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(3);

/// The most that is read, in bytes: more than any window holds, and an endless input must not fill the memory.
const INPUT_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of one read: those that a pipe of Linux holds.
const READ_BYTES: usize = 64 * 1024;

/// The pause before a pipe that its other end made non-blocking is read again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The message with the text on standard input, if that is a file or a pipe with text.
pub(super) fn with_piped_input(message: &str, output: &mut Output) -> Result<String, CliError> {
    if !is_file_or_pipe() {
        return Ok(message.to_owned());
    }
    let (sender, chunks) = sync_channel(1);
    // On a thread of its own, which is left behind if nothing arrives.
    std::thread::spawn(move || read_chunks(&mut std::io::stdin().lock(), &sender));
    let Some(bytes) = receive(&chunks, FIRST_BYTES_TIMEOUT)? else {
        output.note(&format!(
            "! standard input is a pipe that sent nothing within {} s; the message is sent without it (`< /dev/null` \
             ends this wait)",
            FIRST_BYTES_TIMEOUT.as_secs()
        ));
        return Ok(message.to_owned());
    };
    let text = String::from_utf8_lossy(&bytes);
    if text.contains(char::REPLACEMENT_CHARACTER) {
        output.note("! standard input is not all UTF-8 text; other bytes are sent as \u{fffd}");
    }
    Ok(join(message, &text))
}

/// The message and the input; blank input is left out.
fn join(message: &str, input: &str) -> String {
    match input.trim_end() {
        "" => message.to_owned(),
        input => format!("{message}\n\n<stdin>\n{input}\n</stdin>"),
    }
}

fn read_chunks(input: &mut dyn Read, sender: &SyncSender<std::io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; READ_BYTES];
        let read = match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => {
                chunk.truncate(count);
                Ok(chunk)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(RETRY_PAUSE);
                continue;
            }
            Err(error) => Err(error),
        };
        let is_last = read.is_err();
        // The receiver has gone if the input is too large or came too late.
        if sender.send(read).is_err() || is_last {
            return;
        }
    }
}

/// All bytes; `None` if none arrive and the input does not end within a time.
fn receive(
    chunks: &Receiver<std::io::Result<Vec<u8>>>,
    timeout: Duration,
) -> Result<Option<Vec<u8>>, CliError> {
    let mut next = match chunks.recv_timeout(timeout) {
        Ok(first) => Some(first),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => return Ok(None),
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = next {
        let chunk = chunk.map_err(|error| {
            CliError::internal(format!("cannot read standard input: {error}"))
                .hint("`< /dev/null` sends the message of -p alone")
        })?;
        bytes.extend_from_slice(&chunk);
        if bytes.len() > INPUT_MAX_BYTES {
            let limit = group_digits(INPUT_MAX_BYTES as u64);
            let error = CliError::user(format!("standard input has more than {limit} bytes"));
            return Err(error
                .hint("name a file in the message; the model reads parts of it with its tools"));
        }
        next = chunks.recv().ok();
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrives of an input.
    fn received(mut input: impl Read + Send + 'static) -> Result<Option<Vec<u8>>, CliError> {
        let (sender, chunks) = sync_channel(1);
        std::thread::spawn(move || read_chunks(&mut input, &sender));
        receive(&chunks, Duration::from_millis(200))
    }

    #[test]
    fn an_input_is_read_to_its_end_or_refused() {
        let long = "a line of a log\n".repeat(20_000);
        let bytes = long.clone().into_bytes();
        assert_eq!(received(std::io::Cursor::new(bytes)).unwrap().unwrap(), long.as_bytes());
        assert_eq!(received(std::io::empty()).unwrap(), Some(Vec::new()));
        let error = received(std::io::repeat(b'a')).unwrap_err().to_string();
        assert!(error.contains("more than 16,777,216 bytes"), "{error}");
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_not_waited_for() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!(received(reader).unwrap(), None);
        drop(writer);
    }

    #[test]
    fn the_input_follows_the_message() {
        assert_eq!(join("sum up", "a\nb\n"), "sum up\n\n<stdin>\na\nb\n</stdin>");
        assert_eq!(join("sum up", " \n"), "sum up");
    }
}

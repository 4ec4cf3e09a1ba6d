//! An upstream that records requests and returns arbitrary bytes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it does, in this order.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// The same bytes so often, or until nobody takes them.
    Repeat(Vec<u8>, u64),
    Pause(Duration),
    /// Keeps the connection and says nothing more, until the client is gone or this time is over.
    Hang(Duration),
    /// Ends the connection with a reset.
    Reset,
    /// Ends the connection.
    Close,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

type Play = dyn Fn(&Seen) -> Vec<Act> + Send + Sync;

/// A running upstream. Its threads end with their connections.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    sent: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Origin {
    pub(crate) fn start(play: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
        let origin = Origin {
            address: listener.local_addr().expect("an address").to_string(),
            seen: Arc::default(),
            sent: Arc::default(),
            is_over: Arc::default(),
        };
        let (own, play) = (origin.clone(), Arc::<Play>::from(Box::new(play) as Box<Play>));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let (own, play) = (own.clone(), play.clone());
                std::thread::spawn(move || own.attend(stream, play.as_ref()));
            }
        });
        origin
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Bytes that went out so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
    }

    fn attend(&self, mut stream: TcpStream, play: &Play) {
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(Duration::from_secs(60)));
        let mut buffer = Vec::new();
        while let Some(seen) = read_request(&mut stream, &mut buffer) {
            self.seen.lock().unwrap().push(seen.clone());
            for act in play(&seen) {
                if self.perform(&mut stream, act).is_none() {
                    return;
                }
            }
        }
    }

    fn perform(&self, stream: &mut TcpStream, act: Act) -> Option<()> {
        match act {
            Act::Send(bytes) => self.send(stream, &bytes),
            Act::Repeat(bytes, times) => (0..times).try_for_each(|_| self.send(stream, &bytes)),
            Act::Pause(time) => {
                std::thread::sleep(time);
                Some(())
            }
            Act::Hang(time) => {
                let _ = stream.set_read_timeout(Some(time));
                let _ = stream.read(&mut [0]);
                None
            }
            Act::Reset => {
                // Only tokio's sockets can be told so; they want a runtime around them.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
                let runtime = runtime.ok()?;
                let _inside = runtime.enter();
                stream.set_nonblocking(true).ok()?;
                let stream = tokio::net::TcpStream::from_std(stream.try_clone().ok()?).ok()?;
                let _ = stream.set_zero_linger();
                None
            }
            Act::Close => None,
        }
    }

    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> Option<()> {
        stream.write_all(bytes).ok()?;
        self.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        (!self.is_over.load(Ordering::SeqCst)).then_some(())
    }
}

/// Reads a request whose body has a length or comes in chunks.
fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let head = until(stream, buffer, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let lower = head.to_ascii_lowercase();
    let value = |name: &str| {
        lower.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned)
    };
    let mut body = Vec::new();
    if value("transfer-encoding:").is_some_and(|it| it.contains("chunked")) {
        loop {
            let line = until(stream, buffer, b"\r\n")?;
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).ok()?;
            let piece = exactly(stream, buffer, size + 2)?;
            body.extend_from_slice(&piece[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = value("content-length:").and_then(|it| it.parse().ok()) {
        body = exactly(stream, buffer, length)?;
    }
    Some(Seen { head, body })
}

fn until(stream: &mut TcpStream, buffer: &mut Vec<u8>, mark: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = buffer.windows(mark.len()).position(|window| window == mark) {
            let rest = buffer.split_off(at + mark.len());
            return Some(std::mem::replace(buffer, rest));
        }
        more(stream, buffer)?;
    }
}

fn exactly(stream: &mut TcpStream, buffer: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while buffer.len() < length {
        more(stream, buffer)?;
    }
    let rest = buffer.split_off(length);
    Some(std::mem::replace(buffer, rest))
}

fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 65_536];
    let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
    buffer.extend_from_slice(&piece[..length]);
    Some(())
}

/// A decent answer of a chat model.
pub(crate) fn decent(text: &str) -> Vec<u8> {
    let body = serde_json::json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "some-model",
        "choices": [{ "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": text } }],
        "usage": { "prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11 },
    });
    whole(200, "application/json", body.to_string().as_bytes())
}

/// An answer with its length.
pub(crate) fn whole(status: u16, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

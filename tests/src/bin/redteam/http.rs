//! A minimal HTTP client that sends given bytes unchanged.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long anything is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What came back. Status 0 is a connection that ended without a word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to the end that its head tells.
    pub(crate) is_whole: bool,
    pub(crate) is_late: bool,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let find = |line: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        self.head.lines().find_map(find)
    }
}

/// A request as decent clients send it.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Sends a request over a connection of its own and reads one answer.
pub(crate) fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut all = vec![("content-type", "application/json"), ("connection", "close")];
    all.extend_from_slice(headers);
    say(address, &request(method, path, &all, body), PATIENCE)
}

/// Sends these bytes and reads one answer.
pub(crate) fn say(address: &str, bytes: &[u8], patience: Duration) -> Answer {
    let Some(mut stream) = connect(address) else { return Answer::default() };
    let mut writer = stream.try_clone().expect("a second handle");
    let bytes = bytes.to_vec();
    // Who refuses early closes while the rest is still being sent.
    let sending = std::thread::spawn(move || writer.write_all(&bytes));
    let answer = read_answer(&mut stream, patience);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    let _ = sending.join();
    answer
}

/// All that comes until the connection ends or nothing came for `quiet`.
pub(crate) fn say_and_read_all(address: &str, bytes: &[u8], quiet: Duration) -> Vec<u8> {
    let Some(mut stream) = connect(address) else { return Vec::new() };
    let _ = stream.write_all(bytes);
    let _ = stream.set_read_timeout(Some(quiet));
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

pub(crate) fn connect(address: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    let _ = stream.set_nodelay(true);
    let _ = stream.set_write_timeout(Some(PATIENCE));
    Some(stream)
}

/// Reads one answer.
pub(crate) fn read_answer(stream: &mut TcpStream, patience: Duration) -> Answer {
    let end = Instant::now() + patience;
    let mut reader = Reader { stream, end, buffer: Vec::new(), is_over: false, is_late: false };
    loop {
        let Some(head) = reader.until(b"\r\n\r\n") else {
            return Answer { is_late: reader.is_late, ..Answer::default() };
        };
        let head = String::from_utf8_lossy(&head).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        let mut answer = Answer { status, head, ..Answer::default() };
        let chunked = answer.header("transfer-encoding").is_some_and(|it| it.contains("chunked"));
        let length = answer.header("content-length").and_then(|it| it.parse::<usize>().ok());
        (answer.body, answer.is_whole) = match (chunked, length) {
            (true, _) => reader.chunks(),
            (false, Some(length)) => reader.exactly(length),
            (false, None) => (reader.rest(), !reader.is_late),
        };
        answer.is_late = reader.is_late;
        return answer;
    }
}

struct Reader<'a> {
    stream: &'a mut TcpStream,
    end: Instant,
    buffer: Vec<u8>,
    is_over: bool,
    is_late: bool,
}

impl Reader<'_> {
    /// Reads some more; false at the end.
    fn more(&mut self) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.is_late = true;
        }
        if self.is_over || self.is_late {
            return false;
        }
        let _ = self.stream.set_read_timeout(Some(left));
        let mut piece = [0; 65_536];
        match self.stream.read(&mut piece) {
            Ok(0) => self.is_over = true,
            Ok(length) => self.buffer.extend_from_slice(&piece[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.is_late = true;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.is_over = true,
        }
        !self.is_over && !self.is_late
    }

    fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                let rest = self.buffer.split_off(at + mark.len());
                return Some(std::mem::replace(&mut self.buffer, rest));
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn exactly(&mut self, length: usize) -> (Vec<u8>, bool) {
        while self.buffer.len() < length && self.more() {}
        let is_whole = self.buffer.len() >= length;
        let rest = self.buffer.split_off(length.min(self.buffer.len()));
        (std::mem::replace(&mut self.buffer, rest), is_whole)
    }

    fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.buffer)
    }

    fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n").unwrap_or_default();
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            let size = line.split(';').next().unwrap_or_default();
            let Ok(size) = usize::from_str_radix(size, 16) else { return (body, false) };
            let (piece, is_whole) = self.exactly(size.saturating_add(2));
            body.extend_from_slice(&piece[..size.min(piece.len())]);
            if size == 0 || !is_whole {
                return (body, is_whole);
            }
        }
    }
}

//! A proxy between a program and a server that cuts, stalls or refuses connections on demand.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A proxy on the loopback.
#[derive(Debug)]
pub struct Cutter {
    port: u16,
    wire: Arc<Wire>,
}

#[derive(Debug, Default)]
struct Wire {
    /// Answers that still come through before every connection is cut in front of the next; none for 0.
    answers_left: AtomicU32,
    /// One answer in so many is cut off, by chance; none for 0.
    one_in: AtomicU32,
    is_stalled: AtomicBool,
    is_down: AtomicBool,
    cuts: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Cutter {
    /// A wire to a port of the loopback.
    pub fn before(port: u16) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
        let own = listener.local_addr().expect("a bound port has an address").port();
        let wire = Arc::new(Wire::default());
        let accepting = wire.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                connect(client, port, &accepting);
            }
        });
        Cutter { port: own, wire }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.wire.cuts.load(Ordering::SeqCst)
    }

    /// Cuts every connection in front of the answer after the next `answers`: what was asked has been done.
    pub fn cut_after_answers(&self, answers: u32) {
        self.wire.answers_left.store(answers + 1, Ordering::SeqCst);
    }

    /// Cuts one answer in so many off, by chance; 0 stops.
    pub fn cut_one_in(&self, answers: u32) {
        self.wire.one_in.store(answers, Ordering::SeqCst);
    }

    /// Nothing comes through any more, and no connection ends, until told otherwise.
    pub fn stall(&self, is_stalled: bool) {
        self.wire.is_stalled.store(is_stalled, Ordering::SeqCst);
    }

    /// Cuts all connections and refuses new ones, until told otherwise.
    pub fn go_down(&self, is_down: bool) {
        self.wire.is_down.store(is_down, Ordering::SeqCst);
        if is_down {
            self.wire.cut_all();
        }
    }
}

impl Wire {
    fn cut_all(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether an answer does not arrive.
    fn cuts_answer(&self) -> bool {
        let count = |left: u32| left.checked_sub(1);
        let left = self.answers_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count);
        let one_in = self.one_in.load(Ordering::SeqCst);
        left == Ok(1) || (one_in > 0 && fastrand::u32(0..one_in) == 0)
    }

    fn wait_while_stalled(&self) {
        while self.is_stalled.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn connect(client: TcpStream, port: u16, wire: &Arc<Wire>) {
    if wire.is_down.load(Ordering::SeqCst) {
        let _ = client.shutdown(Shutdown::Both);
        return;
    }
    let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ends = [&client, &server].map(|end| end.try_clone());
    let [Ok(client_too), Ok(server_too)] = ends else { return };
    let mut open = wire.open.lock().unwrap_or_else(PoisonError::into_inner);
    open.extend([&client, &server].into_iter().flat_map(|end| end.try_clone()));
    drop(open);
    let (there, back) = (wire.clone(), wire.clone());
    std::thread::spawn(move || pump(client, server, &there, false));
    std::thread::spawn(move || pump(server_too, client_too, &back, true));
}

fn pump(mut from: TcpStream, mut to: TcpStream, wire: &Wire, are_answers: bool) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut buffer).unwrap_or_default();
        wire.wait_while_stalled();
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        if are_answers && wire.cuts_answer() {
            wire.cuts.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

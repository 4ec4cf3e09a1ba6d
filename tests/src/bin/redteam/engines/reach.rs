//! What a sandboxed engine must not reach: files, secrets, the network, other processes, privileges.

use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Hostile, QUESTIONS, attack};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("files", "writes, chmods, chowns, moves and removes the person's files", files),
        attack(
            "syscall numbers",
            "calls every harmful number with arguments that are none",
            numbers,
        ),
        attack("syscall walk", "calls all numbers up to 560 with a victim's path", walk),
        attack(
            "secrets",
            "reads keys, the host's memory and environment, tables of the kernel",
            secrets,
        ),
        attack("names", "lists and watches files, and reads what hangs on their names", names),
        attack("network", "connects and sends by TCP, UDP, unix sockets and raw ones", network),
        attack("processes", "starts, traces, slows down and kills processes", processes),
        attack("rights", "uses the capabilities of root where the host has them", rights),
    ]
}

fn files(stand: &Stand) {
    Hostile::new("files").meets_a_conversation(stand, |met| {
        met.must_have_acted();
        met.must_not_succeed(|_| true);
    });
}

/// Errors of who refuses: not permitted, no access, no such call.
const REFUSALS: [i32; 3] = [1, 13, 38];

fn numbers(stand: &Stand) {
    Hostile::new("numbers").meets_a_conversation(stand, |met| {
        met.must_have_acted();
        let numbers = met.claims.iter().filter(|claim| claim.name.starts_with("syscall-"));
        let through = numbers.filter(|claim| !REFUSALS.contains(&claim.errno));
        let names: Vec<&str> = through.map(|claim| claim.name.as_str()).collect();
        stand.must(names.is_empty(), Breach::Escaped, || {
            format!("{} harmful calls are let through: {}", names.len(), names.join(" "))
        });
    });
}

fn walk(stand: &Stand) {
    Hostile::new("walk").meets_a_conversation(stand, |met| met.must_have_acted());
}

/// What tells more of a path than that, or watches it.
const NAMES: [&str; 3] = ["listxattr", "name_to_handle", "inotify"];

fn secrets(stand: &Stand) {
    Hostile::new("secrets").meets_a_conversation(stand, |met| {
        met.must_have_acted();
        met.must_not_succeed(|name| !QUESTIONS.contains(&name) && !NAMES.contains(&name));
        let bodies = met.server.requests().into_iter().map(|seen| seen.body.to_string());
        let leaked = bodies.filter(|body| body.contains(&stand.secret)).count();
        stand.must(leaked == 0, Breach::Escaped, || "the model reads a secret".to_owned());
    });
}

fn names(stand: &Stand) {
    Hostile::new("secrets").meets_a_conversation(stand, |met| {
        met.must_have_acted();
        met.must_not_succeed(|name| NAMES.contains(&name));
    });
}

fn network(stand: &Stand) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let datagrams = UdpSocket::bind(("127.0.0.1", port)).expect("the same port");
    let socket = stand.path("victims.sock");
    let local = UnixListener::bind(&socket).expect("a socket");
    let reached = Arc::new(AtomicUsize::new(0));
    let (by_tcp, by_unix, by_udp) = (reached.clone(), reached.clone(), reached.clone());
    // They end with this process: nobody waits for what must not come.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            by_tcp.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 16]);
        }
    });
    std::thread::spawn(move || {
        for _ in local.incoming().flatten() {
            by_unix.fetch_add(1, Ordering::SeqCst);
        }
    });
    std::thread::spawn(move || {
        while datagrams.recv(&mut [0; 16]).is_ok() {
            by_udp.fetch_add(1, Ordering::SeqCst);
        }
    });
    let hostile = Hostile::new("network").with("port", port);
    let hostile = hostile.with("socket", socket.display().to_string());
    hostile.meets_a_conversation(stand, |met| {
        met.must_have_acted();
        met.must_not_succeed(|_| true);
    });
    let reached = reached.load(Ordering::SeqCst);
    stand.must(reached == 0, Breach::Escaped, || format!("{reached} connections have come"));
}

fn processes(stand: &Stand) {
    Hostile::new("processes").meets_a_conversation(stand, |met| {
        let has_tried = met.claimed("kill").is_some();
        stand.must(has_tried, Breach::Wrong, || "the engine did not come to its end".to_owned());
        stand.tried(met.claims.len() as u64);
        met.must_not_succeed(|_| true);
    });
}

fn rights(stand: &Stand) {
    if !rustix::process::geteuid().is_root() {
        stand.skip("rights: nobody but root has them to lose");
    }
    Hostile::new("rights").meets_a_conversation(stand, |met| {
        met.must_have_acted();
        met.must_not_succeed(|_| true);
    });
}

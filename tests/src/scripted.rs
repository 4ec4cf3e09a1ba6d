//! A scripted provider on a loopback port: five dialects, checks and measures every request, fails on demand.
//!
//! It runs on a runtime of its own, so that it can be taken down under a client, and so that tests
//! without a runtime can use it.

// JSON gives null where nothing is; only its own values are written to.
#![allow(clippy::indexing_slicing)]

mod answer;
mod cache;
mod desk;
mod door;
mod fault;
mod model;
mod script;
mod seen;
mod speech;
mod stream;
mod summary;
mod wanderer;
mod worker;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::rules::{Broken, Wire};
use desk::Desk;
pub use fault::{Fault, Faults};
pub use model::{Model, OverflowForm, count_texts};
pub use script::{Ask, Offer, Said, Script, Speaker, Step, Steps};
pub use seen::{Answered, Seen};
pub use wanderer::Wanderer;
pub use worker::Worker;

/// How long the server may take to go down or to come up.
const MAX_SWITCH: Duration = Duration::from_secs(5);

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    desk: Arc<Mutex<Desk>>,
    runtime: Mutex<Option<Runtime>>,
}

impl ScriptedServer {
    /// A server on a free port of the loopback that speaks one dialect. Without a script it wanders.
    pub fn start(wire: Wire, model: Model) -> ScriptedServer {
        ScriptedServer::start_at(wire, model, 0)
    }

    /// The same on a port; 0 for a free one.
    pub fn start_at(wire: Wire, model: Model, port: u16) -> ScriptedServer {
        let desk = Arc::new(Mutex::new(Desk::new(wire, model)));
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port of the loopback");
        let address = listener.local_addr().expect("a bound port has an address");
        let runtime = Mutex::new(Some(door::open(listener, desk.clone())));
        ScriptedServer { address, desk, runtime }
    }

    /// What the model says from now on.
    #[must_use]
    pub fn script(self, script: impl Script + 'static) -> ScriptedServer {
        self.desk().script = Box::new(script);
        self
    }

    /// When it fails from now on.
    #[must_use]
    pub fn faults(self, faults: Faults) -> ScriptedServer {
        self.desk().faults = faults;
        self
    }

    /// Chunks, ids and signatures follow this number.
    #[must_use]
    pub fn seed(self, seed: u64) -> ScriptedServer {
        self.desk().random = fastrand::Rng::with_seed(seed);
        self
    }

    /// Keeps the bodies of the newest requests alone, and of those that break a rule.
    #[must_use]
    pub fn keep_bodies(self, count: usize) -> ScriptedServer {
        self.desk().kept_bodies = count;
        self
    }

    /// The next request that asks for an answer meets this fault; several wait in line.
    pub fn fail_next(&self, fault: Fault) {
        self.desk().faults.next.push_back(fault);
    }

    /// Every request that asks for an answer meets this fault, until told otherwise.
    pub fn fail_always(&self, fault: Option<Fault>) {
        self.desk().faults.always = fault;
    }

    /// Its address, such as `http://127.0.0.1:40123`. Paths may begin with `/v1` or not.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Seen> {
        self.desk().seen.clone()
    }

    /// The rules broken so far, each with the number of its request.
    pub fn broken(&self) -> Vec<(usize, Broken)> {
        let desk = self.desk();
        let each = desk.seen.iter();
        each.flat_map(|seen| seen.broken.iter().map(|broken| (seen.n, broken.clone()))).collect()
    }

    /// Closes all connections and refuses new ones.
    pub fn go_down(&self) {
        let Some(runtime) = self.lock_runtime().take() else { return };
        runtime.shutdown_background();
        let refused = || TcpStream::connect(self.address).is_err();
        until(refused).expect("the server goes down");
    }

    /// Listens again, at the same address.
    pub fn come_up(&self) {
        let mut runtime = self.lock_runtime();
        if runtime.is_some() {
            return;
        }
        let mut listener = None;
        let bound = || {
            listener = TcpListener::bind(self.address).ok();
            listener.is_some()
        };
        until(bound).expect("the port is free again");
        *runtime = listener.map(|listener| door::open(listener, self.desk.clone()));
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_runtime(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ScriptedServer {
    /// A runtime may not be dropped inside another one, so it is sent away.
    fn drop(&mut self) {
        if let Some(runtime) = self.lock_runtime().take() {
            runtime.shutdown_background();
        }
    }
}

fn until(mut done: impl FnMut() -> bool) -> Option<()> {
    let begun = Instant::now();
    while begun.elapsed() < MAX_SWITCH {
        if done() {
            return Some(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

//! The host's half of the wire that speaks: one thread, which knows what each worker has seen of which
//! transcript, and so sends only what is new.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use ctxhost_engine_api::transcript::mirror::{Difference, MirrorEntry, difference};
use ctxhost_engine_api::{Result, Transcript};
use serde_json::Value;

use super::process::Process;
use super::wire::{self, Call, Change, Given, ToWorker};

/// Texts in one frame, in bytes: a long session goes over in pieces, and nobody holds it twice.
const PIECE_BYTES: usize = 4 * 1024 * 1024;

/// What is to be said.
pub(super) enum Job {
    Create { call: u64, limit_ms: u64, config: Value },
    Call { call: Call, view: Transcript },
    Cancel { call: u64 },
    Served { ask: u64, result: Result<Given> },
}

/// What a worker has of a session.
struct Seen {
    /// Held, so that what comes later can be told apart from it by address.
    view: Transcript,
    used: u64,
}

pub(super) struct Sender {
    wire: UnixStream,
    seen: HashMap<String, Seen>,
    /// Sessions whose transcripts are kept.
    most: usize,
    now: u64,
}

impl Sender {
    pub(super) fn new(wire: UnixStream, most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        Sender { wire, seen: HashMap::new(), most, now: 0 }
    }

    /// Says what comes until nobody is left who could say something.
    pub(super) fn run(mut self, jobs: &Receiver<Job>, process: &Arc<Process>) {
        for job in jobs {
            if let Err(error) = self.say(job) {
                // Mostly it is dead already; its own end is the better reason then.
                tracing::debug!(%error, "a worker does not listen");
                process.kill(None);
            }
        }
    }

    fn say(&mut self, job: Job) -> io::Result<()> {
        let message = match job {
            Job::Create { call, limit_ms, config } => ToWorker::Create { call, limit_ms, config },
            Job::Call { call, view } => {
                if let (Some(session), Some(_)) = (&call.session, call.epoch) {
                    self.show(session, view)?;
                }
                ToWorker::Call(call)
            }
            Job::Cancel { call } => ToWorker::Cancel { call },
            Job::Served { ask, result } => ToWorker::Served { ask, result },
        };
        wire::send(&self.wire, &message)
    }

    /// Brings what the worker has of a session up to `view`.
    fn show(&mut self, session: &str, view: Transcript) -> io::Result<()> {
        self.now += 1;
        let seen = self.seen.get(session);
        let Difference { kept, marks } =
            seen.map(|seen| difference(&seen.view, &view)).unwrap_or_default();
        let had = seen.map_or(0, |seen| seen.view.len() as u64);
        let mut change = Change { session: session.into(), kept, marks, added: Vec::new() };
        let mut piece_bytes = 0;
        for (sent, entry) in (kept + 1..).zip(view.range(kept..view.len() as u64)) {
            change.added.push(MirrorEntry::from(entry));
            piece_bytes += entry.text().len() + entry.raw().len();
            if piece_bytes >= PIECE_BYTES {
                wire::send(&self.wire, &ToWorker::Change(change))?;
                change = Change { session: session.into(), kept: sent, ..Change::default() };
                piece_bytes = 0;
            }
        }
        if kept < had || !change.marks.is_empty() || !change.added.is_empty() {
            wire::send(&self.wire, &ToWorker::Change(change))?;
        }
        self.seen.insert(session.to_owned(), Seen { view, used: self.now });
        self.forget_one()
    }

    /// A worker keeps so many transcripts, the ones that were asked about last.
    fn forget_one(&mut self) -> io::Result<()> {
        if self.seen.len() <= self.most {
            return Ok(());
        }
        let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.used);
        let Some(session) = oldest.map(|(session, _)| session.clone()) else { return Ok(()) };
        self.seen.remove(&session);
        wire::send(&self.wire, &ToWorker::Forget { session })
    }
}

//! The host's half of the wire that speaks: one thread, which knows what each worker has seen of which
//! transcript, and so sends only what is new.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use ctxhost_engine_api::transcript::replica::{ReplicaEntry, TranscriptDiff, diff};
use ctxhost_engine_api::{Result, Transcript};
use serde_json::Value;

use super::process::SandboxProcess;
use super::wire::{self, CallFrame, HostReply, ToSandbox, TranscriptDelta};

/// Texts in one frame, in bytes: a long session goes over in pieces, and nobody holds it twice.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// What is to be said.
pub(super) enum SendJob {
    Create { call: u64, limit_ms: u64, config: Value },
    Call { call: CallFrame, view: Transcript },
    Cancel { call: u64 },
    Served { ask: u64, result: Result<HostReply> },
}

/// What a worker has of a session.
struct SentTranscript {
    /// Held, so that what comes later can be told apart from it by address.
    view: Transcript,
    used: u64,
}

pub(super) struct TranscriptSender {
    wire: UnixStream,
    seen: HashMap<String, SentTranscript>,
    /// Sessions whose transcripts are kept.
    most: usize,
    now: u64,
}

impl TranscriptSender {
    pub(super) fn new(wire: UnixStream, most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        TranscriptSender { wire, seen: HashMap::new(), most, now: 0 }
    }

    /// Says what comes until nobody is left who could say something.
    pub(super) fn run(mut self, jobs: &Receiver<SendJob>, process: &Arc<SandboxProcess>) {
        for job in jobs {
            if let Err(error) = self.send(job) {
                // Mostly it is dead already; its own end is the better reason then.
                tracing::debug!(%error, "a worker does not listen");
                process.kill(None);
            }
        }
    }

    fn send(&mut self, job: SendJob) -> io::Result<()> {
        let message = match job {
            SendJob::Create { call, limit_ms, config } => {
                ToSandbox::Create { call, limit_ms, config }
            }
            SendJob::Call { call, view } => {
                if let (Some(session), Some(_)) = (&call.session, call.epoch) {
                    self.send_transcript(session, view)?;
                }
                ToSandbox::Call(call)
            }
            SendJob::Cancel { call } => ToSandbox::Cancel { call },
            SendJob::Served { ask, result } => ToSandbox::Served { ask, result },
        };
        wire::send(&self.wire, &message)
    }

    /// Brings what the worker has of a session up to `view`.
    fn send_transcript(&mut self, session: &str, view: Transcript) -> io::Result<()> {
        self.now += 1;
        let seen = self.seen.get(session);
        let TranscriptDiff { kept, patches: marks } =
            seen.map(|seen| diff(&seen.view, &view)).unwrap_or_default();
        let had = seen.map_or(0, |seen| seen.view.len() as u64);
        let mut change =
            TranscriptDelta { session: session.into(), kept, marks, added: Vec::new() };
        let mut piece_bytes = 0;
        for (sent, entry) in (kept + 1..).zip(view.range(kept..view.len() as u64)) {
            change.added.push(ReplicaEntry::from(entry));
            piece_bytes += entry.text().len() + entry.raw().len();
            if piece_bytes >= CHUNK_BYTES {
                wire::send(&self.wire, &ToSandbox::Change(change))?;
                change = TranscriptDelta {
                    session: session.into(),
                    kept: sent,
                    ..TranscriptDelta::default()
                };
                piece_bytes = 0;
            }
        }
        if kept < had || !change.marks.is_empty() || !change.added.is_empty() {
            wire::send(&self.wire, &ToSandbox::Change(change))?;
        }
        self.seen.insert(session.to_owned(), SentTranscript { view, used: self.now });
        self.forget_oldest()
    }

    /// A worker keeps so many transcripts, the ones that were asked about last.
    fn forget_oldest(&mut self) -> io::Result<()> {
        if self.seen.len() <= self.most {
            return Ok(());
        }
        let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.used);
        let Some(session) = oldest.map(|(session, _)| session.clone()) else { return Ok(()) };
        self.seen.remove(&session);
        wire::send(&self.wire, &ToSandbox::Forget { session })
    }
}

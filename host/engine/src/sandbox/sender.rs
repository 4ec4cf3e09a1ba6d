//! The sending thread of a connection. It knows which transcript the sandbox has and sends differences.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::transcript::replica::{ReplicaEntry, TranscriptDiff, diff};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use serde_json::Value;

use super::host_call_table::OpenHostCall;
use super::process::SandboxProcess;
use super::settings::SandboxSettings;
use super::wire::{self, CallFrame, ToSandbox, TranscriptDelta};

/// The most text in one frame, in bytes: a long session is sent in chunks instead of being copied whole.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// What to send.
pub(super) enum SendJob {
    Create {
        call: u64,
        limit_ms: u64,
        config: Value,
    },
    Call {
        call: CallFrame,
        view: Transcript,
    },
    Cancel {
        call: u64,
    },
    /// An encoded reply, and its host call, which ends with it.
    HostReply {
        frame: Vec<u8>,
        open: OpenHostCall,
    },
}

/// The transcript of a session that the sandbox has.
struct SentTranscript {
    // Kept alive: `diff` compares entries by address, which a freed entry would make ambiguous.
    view: Transcript,
    used: u64,
}

pub(super) struct TranscriptSender {
    wire: UnixStream,
    sent: HashMap<String, SentTranscript>,
    /// The number of sessions whose transcripts the sandbox keeps.
    max_sessions: usize,
    /// Why a sandbox is killed that does not take up what is sent.
    late_reason: String,
    now: u64,
}

impl TranscriptSender {
    pub(super) fn new(wire: UnixStream, settings: &SandboxSettings) -> Self {
        let max_sessions = usize::try_from(settings.sessions).unwrap_or(usize::MAX).max(1);
        let limit_ms = group_thousands(settings.receive_ms);
        let late_reason = format!(
            "was killed: it took up nothing of a frame within {limit_ms} ms (plugins.sandbox.receive_ms)"
        );
        TranscriptSender { wire, sent: HashMap::new(), max_sessions, late_reason, now: 0 }
    }

    /// Sends jobs until all senders of the queue are gone.
    pub(super) fn run(mut self, jobs: &Receiver<SendJob>, process: &Arc<SandboxProcess>) {
        for job in jobs {
            if let Err(error) = self.send(job) {
                tracing::debug!(%error, "cannot send to a sandbox");
                // Without a reason: mostly the process died before, and its exit status says why.
                let is_late = error.kind() == io::ErrorKind::WouldBlock;
                process.kill(is_late.then_some(&*self.late_reason));
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
            SendJob::HostReply { frame, open } => {
                // Ended first: with the reply, the sandbox may use the id again.
                let _room = open.end();
                return self.wire.write_all(&frame);
            }
        };
        wire::send(&self.wire, &message)
    }

    /// Updates the transcript that the sandbox has of a session to `view`.
    fn send_transcript(&mut self, session: &str, view: Transcript) -> io::Result<()> {
        self.now += 1;
        let old = self.sent.get(session);
        let TranscriptDiff { kept, patches } =
            old.map(|old| diff(&old.view, &view)).unwrap_or_default();
        let old_len = old.map_or(0, |old| old.view.len() as u64);
        let mut delta =
            TranscriptDelta { session: session.into(), kept, patches, added: Vec::new() };
        let mut chunk_bytes = 0;
        for (sent, entry) in (kept + 1..).zip(view.range(kept..view.len() as u64)) {
            delta.added.push(ReplicaEntry::from(entry));
            chunk_bytes += entry.text().len() + entry.raw().len();
            if chunk_bytes >= CHUNK_BYTES {
                wire::send(&self.wire, &ToSandbox::Transcript(delta))?;
                delta = TranscriptDelta {
                    session: session.into(),
                    kept: sent,
                    ..TranscriptDelta::default()
                };
                chunk_bytes = 0;
            }
        }
        if kept < old_len || !delta.patches.is_empty() || !delta.added.is_empty() {
            wire::send(&self.wire, &ToSandbox::Transcript(delta))?;
        }
        self.sent.insert(session.to_owned(), SentTranscript { view, used: self.now });
        self.forget_oldest()
    }

    /// Drops the least recently used transcript above the limit.
    fn forget_oldest(&mut self) -> io::Result<()> {
        if self.sent.len() <= self.max_sessions {
            return Ok(());
        }
        let oldest = self.sent.iter().min_by_key(|(_, sent)| sent.used);
        let Some(session) = oldest.map(|(session, _)| session.clone()) else { return Ok(()) };
        self.sent.remove(&session);
        wire::send(&self.wire, &ToSandbox::Forget { session })
    }
}

//! Drives one session of a runtime and records every event.

use std::time::Duration;

use ctxhost_agent::event::{EventKind, RuntimeEvent};
use ctxhost_agent::{Runtime, RuntimeBuilder, SessionId, TurnError, TurnReply};
use ctxhost_context::{CompactionOutcome, CompactionVerdict};
use ctxhost_dialects::FailureReason;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use crate::workplace::Workplace;

/// A turn that takes longer hangs: the longest honest one of a test takes a tenth of it.
const MAX_TURN: Duration = Duration::from_secs(60);

/// A session that is talked in.
#[derive(Debug)]
pub struct Stage {
    /// The runtime.
    pub runtime: Runtime,
    /// The session.
    pub session: SessionId,
    events: Receiver<RuntimeEvent>,
    log: Vec<EventKind>,
    seen: usize,
}

impl Stage {
    /// Opens the session of a workplace, or begins it.
    pub async fn open(place: &Workplace) -> Stage {
        Stage::open_with(place, place.runtime()).await
    }

    /// The same with a runtime that was put together otherwise.
    pub async fn open_with(place: &Workplace, builder: RuntimeBuilder) -> Stage {
        let runtime = builder.build().await.unwrap_or_else(|error| panic!("{error}"));
        let path = place.session_path();
        let session = if path.exists() {
            runtime.open_session(&path)
        } else {
            runtime.create_session(&path, place.path())
        };
        let session = session.unwrap_or_else(|error| panic!("{error}"));
        let events = runtime.subscribe();
        Stage { runtime, session, events, log: Vec::new(), seen: 0 }
    }

    /// One turn, which must end.
    pub async fn say(&mut self, text: &str) -> Result<TurnReply, TurnError> {
        self.seen = self.log().len();
        let turn = self.runtime.send(&self.session, text);
        let outcome = tokio::time::timeout(MAX_TURN, turn).await;
        self.listen();
        outcome.unwrap_or_else(|_| panic!("the turn {text:?} does not end"))
    }

    /// All that happened.
    pub fn log(&mut self) -> &[EventKind] {
        self.listen();
        &self.log
    }

    /// What happened since the last turn began.
    pub fn last_turn(&mut self) -> &[EventKind] {
        self.listen();
        self.log.get(self.seen..).unwrap_or_default()
    }

    /// The compactions that were tried, successful or not.
    pub fn compactions(&mut self) -> Vec<CompactionOutcome> {
        compactions(self.log())
    }

    /// Why requests of the last turn were tried again.
    pub fn recoveries(&mut self) -> Vec<FailureReason> {
        let reasons = self.last_turn().iter().filter_map(|what| match what {
            EventKind::Recovering { reason, .. } => Some(*reason),
            _ => None,
        });
        reasons.collect()
    }

    /// Waits for what runs in the background and ends the runtime.
    pub async fn close(mut self) -> Vec<EventKind> {
        self.runtime.close_session(&self.session).await;
        self.runtime.shutdown().await;
        self.listen();
        self.log
    }

    fn listen(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.log.push(event.kind),
                Err(TryRecvError::Lagged(missed)) => panic!("{missed} events were missed"),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }
}

/// The compactions that were tried, successful or not.
pub fn compactions(log: &[EventKind]) -> Vec<CompactionOutcome> {
    let outcomes = log.iter().filter_map(|what| match what {
        EventKind::Compaction(outcome) => Some(CompactionOutcome::clone(outcome)),
        _ => None,
    });
    outcomes
        .filter(|outcome| !matches!(outcome.verdict, CompactionVerdict::NotTried { .. }))
        .collect()
}

//! The calls to replay to a restarted sandbox, so that it knows what the previous one did.
//!
//! A session is replayed at its next call and not at the restart: most sessions of a host are idle.

use std::collections::HashMap;

use ctxhost_engine_api::border::EngineCall;
use ctxhost_engine_api::{BootstrapRequest, IngestRequest, Transcript};

/// The sessions whose calls are kept, the most recently used: as many as the bundled engines keep state of.
const MAX_SESSIONS: usize = 1_000;

/// The calls to replay, by session id.
#[derive(Default)]
pub(super) struct ReplayLog {
    sessions: HashMap<String, SessionReplay>,
    /// The number of recorded calls.
    now: u64,
}

/// The calls of one session.
#[derive(Default)]
struct SessionReplay {
    /// The number of the sandbox that received them.
    sandbox: u64,
    /// When the newest call was recorded.
    used: u64,
    bootstrap: Option<BootstrapRequest>,
    /// The epoch, and the last `ingest` in it.
    ingested: Option<(u64, IngestRequest)>,
}

impl ReplayLog {
    /// The calls that a sandbox needs before `call`.
    pub(super) fn missing_calls(
        &self,
        sandbox: u64,
        call: &EngineCall,
        view: &Transcript,
    ) -> Vec<EngineCall> {
        let session = call.session().and_then(|session| self.sessions.get(&session.id));
        let Some(session) = session.filter(|session| session.sandbox != sandbox) else {
            return Vec::new();
        };
        if matches!(call, EngineCall::Bootstrap(_)) {
            return Vec::new();
        }
        let bootstrap = session.bootstrap.clone().map(EngineCall::Bootstrap);
        // Entries of an earlier epoch are stale; the caller ingests those of the new one.
        let ingested = session.ingested.as_ref().filter(|(epoch, _)| *epoch == view.epoch());
        let ingested = ingested.and_then(|(_, request)| {
            let start = match call {
                EngineCall::Ingest(request) => request.entries.start,
                _ => u64::MAX,
            };
            let end = request.entries.end.min(view.len() as u64).min(start);
            let request = IngestRequest { entries: 0..end, ..request.clone() };
            (end > 0).then_some(EngineCall::Ingest(request))
        });
        bootstrap.into_iter().chain(ingested).collect()
    }

    /// Records that a sandbox received all missing calls, and answered `call`.
    pub(super) fn record(&mut self, sandbox: u64, call: &EngineCall, epoch: u64) {
        let Some(id) = call.session().map(|session| &session.id) else { return };
        self.now += 1;
        let now = self.now;
        match call {
            EngineCall::Bootstrap(request) => {
                let bootstrap = Some(request.clone());
                let session = SessionReplay { sandbox, used: now, bootstrap, ingested: None };
                self.sessions.insert(id.clone(), session);
            }
            EngineCall::Ingest(request) => {
                let session = self.sessions.entry(id.clone()).or_default();
                (session.sandbox, session.used) = (sandbox, now);
                session.ingested = Some((epoch, request.clone()));
            }
            _ => {
                if let Some(session) = self.sessions.get_mut(id) {
                    (session.sandbox, session.used) = (sandbox, now);
                }
            }
        }
        if self.sessions.len() > MAX_SESSIONS {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.sessions.iter().min_by_key(|(_, session)| session.used);
        if let Some(id) = oldest.map(|(id, _)| id.clone()) {
            self.sessions.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;
    use ctxhost_engine_api::{AssembleRequest, SessionRef};

    use super::*;

    fn session() -> SessionRef {
        SessionRef { id: "s".into(), key: String::new() }
    }

    fn ingest(entries: std::ops::Range<u64>) -> EngineCall {
        EngineCall::Ingest(IngestRequest {
            session: session(),
            entries,
            ..IngestRequest::default()
        })
    }

    fn assemble() -> EngineCall {
        EngineCall::Assemble(AssembleRequest { session: session(), ..AssembleRequest::default() })
    }

    fn bootstrap() -> EngineCall {
        EngineCall::Bootstrap(BootstrapRequest {
            session: session(),
            ..BootstrapRequest::default()
        })
    }

    /// The missing calls as text.
    fn missing(log: &ReplayLog, call: &EngineCall, view: &Transcript) -> Vec<String> {
        let text = |call: EngineCall| match call {
            EngineCall::Bootstrap(_) => "bootstrap".to_owned(),
            EngineCall::Ingest(request) => format!("{:?}", request.entries),
            other => format!("{other:?}"),
        };
        log.missing_calls(1, call, view).into_iter().map(text).collect()
    }

    #[test]
    fn the_next_sandbox_receives_what_the_last_one_did() {
        let mut conversation = TranscriptBuilder::new();
        conversation.user("a").assistant("b").user("c");
        let view = conversation.transcript();
        let mut log = ReplayLog::default();
        assert!(missing(&log, &assemble(), &view).is_empty(), "an unknown session");
        log.record(0, &bootstrap(), 0);
        log.record(0, &ingest(0..2), 0);
        log.record(0, &assemble(), 0);
        assert_eq!(missing(&log, &assemble(), &view), ["bootstrap", "0..2"]);
        assert_eq!(missing(&log, &ingest(2..3), &view), ["bootstrap", "0..2"]);
        assert_eq!(missing(&log, &ingest(1..3), &view), ["bootstrap", "0..1"], "no entry twice");
        assert!(missing(&log, &bootstrap(), &view).is_empty(), "the call itself is the bootstrap");
        log.record(1, &assemble(), 0);
        assert!(missing(&log, &assemble(), &view).is_empty(), "up to date");
    }

    #[test]
    fn the_sessions_used_longest_ago_are_forgotten() {
        let mut log = ReplayLog::default();
        let of = |number: usize| {
            let session = SessionRef { id: number.to_string(), key: String::new() };
            EngineCall::Bootstrap(BootstrapRequest { session, ..BootstrapRequest::default() })
        };
        for number in 0..MAX_SESSIONS + 10 {
            log.record(0, &of(number), 0);
            log.record(0, &of(0), 0);
        }
        assert_eq!(log.sessions.len(), MAX_SESSIONS);
        assert!(log.sessions.contains_key("0") && !log.sessions.contains_key("10"));
        assert!(log.sessions.contains_key("11"));
    }

    #[test]
    fn entries_of_an_earlier_epoch_are_not_replayed() {
        let mut conversation = TranscriptBuilder::with_epoch(1);
        conversation.summary("so far").user("c");
        let mut log = ReplayLog::default();
        log.record(0, &bootstrap(), 0);
        log.record(0, &ingest(0..9), 0);
        assert_eq!(missing(&log, &assemble(), &conversation.transcript()), ["bootstrap"]);
    }
}

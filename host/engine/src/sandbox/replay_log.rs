//! What an engine was told of its sessions, so that the next worker can be told the same.
//!
//! It is told when a session is asked about again and not before: most sessions of a host are at rest.

use std::collections::HashMap;

use ctxhost_engine_api::{BootstrapRequest, IngestRequest, Transcript};

use ctxhost_engine_api::border::EngineCall;

/// What an engine was told, by the ids of sessions.
#[derive(Default)]
pub(super) struct ReplayLog {
    sessions: HashMap<String, SessionReplay>,
}

/// What it was told of one session.
#[derive(Default)]
struct SessionReplay {
    /// Which worker was told.
    worker: u64,
    bootstrap: Option<BootstrapRequest>,
    /// The epoch, and how far in it.
    ingested: Option<(u64, IngestRequest)>,
}

impl ReplayLog {
    /// What worker `sandbox` has to be told before `question`.
    pub(super) fn missing_calls(
        &self,
        worker: u64,
        question: &EngineCall,
        view: &Transcript,
    ) -> Vec<EngineCall> {
        let session = question.session().and_then(|session| self.sessions.get(&session.id));
        let Some(session) = session.filter(|session| session.worker != worker) else {
            return Vec::new();
        };
        if matches!(question, EngineCall::Bootstrap(_)) {
            return Vec::new();
        }
        let bootstrap = session.bootstrap.clone().map(EngineCall::Bootstrap);
        // What was ingested of an earlier epoch is told anew by whoever began the new one.
        let ingested = session.ingested.as_ref().filter(|(epoch, _)| *epoch == view.epoch());
        let ingested = ingested.and_then(|(_, request)| {
            let begins = match question {
                EngineCall::Ingest(request) => request.entries.start,
                _ => u64::MAX,
            };
            let end = request.entries.end.min(view.len() as u64).min(begins);
            let request = IngestRequest { entries: 0..end, ..request.clone() };
            (end > 0).then_some(EngineCall::Ingest(request))
        });
        bootstrap.into_iter().chain(ingested).collect()
    }

    /// Worker `sandbox` was told all that was missing, and answered `question`.
    pub(super) fn record(&mut self, worker: u64, question: &EngineCall, epoch: u64) {
        let Some(id) = question.session().map(|session| &session.id) else { return };
        match question {
            EngineCall::Bootstrap(request) => {
                let bootstrap = Some(request.clone());
                let session = SessionReplay { worker, bootstrap, ingested: None };
                self.sessions.insert(id.clone(), session);
            }
            EngineCall::Ingest(request) => {
                let session = self.sessions.entry(id.clone()).or_default();
                session.worker = worker;
                session.ingested = Some((epoch, request.clone()));
            }
            _ => {
                if let Some(session) = self.sessions.get_mut(id) {
                    session.worker = worker;
                }
            }
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

    /// What is missing, as words.
    fn missing(told: &ReplayLog, question: &EngineCall, view: &Transcript) -> Vec<String> {
        let word = |question: EngineCall| match question {
            EngineCall::Bootstrap(_) => "bootstrap".to_owned(),
            EngineCall::Ingest(request) => format!("{:?}", request.entries),
            other => format!("{other:?}"),
        };
        told.missing_calls(1, question, view).into_iter().map(word).collect()
    }

    #[test]
    fn the_next_worker_is_told_what_the_last_one_was() {
        let mut talk = TranscriptBuilder::new();
        talk.user("a").assistant("b").user("c");
        let view = talk.transcript();
        let mut told = ReplayLog::default();
        assert!(missing(&told, &assemble(), &view).is_empty(), "nobody was told of it");
        told.record(0, &bootstrap(), 0);
        told.record(0, &ingest(0..2), 0);
        told.record(0, &assemble(), 0);
        assert_eq!(missing(&told, &assemble(), &view), ["bootstrap", "0..2"]);
        assert_eq!(missing(&told, &ingest(2..3), &view), ["bootstrap", "0..2"]);
        assert_eq!(missing(&told, &ingest(1..3), &view), ["bootstrap", "0..1"], "no entry twice");
        assert!(missing(&told, &bootstrap(), &view).is_empty(), "it is being told");
        told.record(1, &assemble(), 0);
        assert!(missing(&told, &assemble(), &view).is_empty(), "it knows now");
    }

    #[test]
    fn entries_of_an_earlier_epoch_are_not_told_of_a_new_one() {
        let mut talk = TranscriptBuilder::with_epoch(1);
        talk.summary("so far").user("c");
        let mut told = ReplayLog::default();
        told.record(0, &bootstrap(), 0);
        told.record(0, &ingest(0..9), 0);
        assert_eq!(missing(&told, &assemble(), &talk.transcript()), ["bootstrap"]);
    }
}

//! What a stack is told and asked beside requests: every stage hears of it, in the positions of what it
//! reads.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ctxhost_engine_api::*;

use super::reading::Reading;
use super::{Stack, Working};
use ctxhost_engine::{LiveEngine, Served, SlotError, is_answer, is_breakage};

/// One thing that every stage is told or asked.
pub(super) struct Call<'a> {
    pub(super) operation: &'static str,
    pub(super) session: &'a SessionRef,
    /// The session's transcript.
    pub(super) view: &'a Transcript,
    /// The entries it is about, in positions of that.
    pub(super) entries: Range<u64>,
}

impl Stack {
    /// A session begins.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn bootstrap_here(
        &self,
        view: &Transcript,
        request: BootstrapRequest,
    ) -> Result<Served<Bootstrapped>, SlotError> {
        self.sessions().readings.remove(&request.session.id);
        let call = Call { operation: "bootstrap", session: &request.session, view, entries: 0..0 };
        let told = self.each(call, Hearing::Nothing, |engine, view, _| {
            let request = request.clone();
            async move { engine.bootstrap(view, request).await }
        });
        match told.await? {
            Some(told) => Ok(told.map(|all| all.into_iter().next().unwrap_or_default())),
            None => Ok(self.stood_in(self.slot.bootstrap(view, request).await?)),
        }
    }

    /// New entries. The first stage hears of them now, every other one before it is asked next: what it
    /// reads of them depends on those before it.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn ingest_here(
        &self,
        view: &Transcript,
        request: IngestRequest,
    ) -> Result<Served<Ingested>, SlotError> {
        let Some(first) = self.working().next() else {
            return Ok(self.stood_in(self.slot.ingest(view, request).await?));
        };
        self.refuse_while_quarantined("ingest")?;
        let began = Instant::now();
        let mut ingested = Ingested::default();
        if first.number == 0 {
            match first.engine.ingest(view.clone(), request).await {
                Ok(answer) => ingested = answer,
                Err(error) if is_answer(error.kind) => return Err(SlotError::answer(error)),
                Err(error) => self.fail(first.stage, "ingest", error)?,
            }
        }
        Ok(self.served(&[first.engine.info()], ingested, began.elapsed()))
    }

    /// A turn has ended well.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn after_turn_here(
        &self,
        view: &Transcript,
        request: AfterTurnRequest,
    ) -> Result<Served<()>, SlotError> {
        let (session, entries) = (&request.session, request.entries.clone());
        let call = Call { operation: "after_turn", session, view, entries };
        let told = self.each(call, Hearing::News, |engine, view, entries| {
            let request = AfterTurnRequest { entries, ..request.clone() };
            async move { engine.after_turn(view, request).await }
        });
        match told.await? {
            Some(told) => Ok(told.map(drop)),
            None => Ok(self.stood_in(self.slot.after_turn(view, request).await?)),
        }
    }

    /// A turn is final. It counts as new where it was to any stage.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn commit_turn_here(
        &self,
        view: &Transcript,
        request: CommitTurnRequest,
    ) -> Result<Served<Committed>, SlotError> {
        let (session, entries) = (&request.session, request.entries.clone());
        let call = Call { operation: "commit_turn", session, view, entries };
        let told = self.each(call, Hearing::News, |engine, view, entries| {
            let request = CommitTurnRequest { entries, ..request.clone() };
            async move { engine.commit_turn(view, request).await }
        });
        match told.await? {
            Some(told) => Ok(told.map(|all| match all.contains(&Committed::Committed) {
                true => Committed::Committed,
                false => Committed::Duplicate,
            })),
            None => Ok(self.stood_in(self.slot.commit_turn(view, request).await?)),
        }
    }

    /// Time for housekeeping.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn maintain_here(
        &self,
        view: &Transcript,
        request: MaintainRequest,
    ) -> Result<Served<Maintained>, SlotError> {
        let call = Call { operation: "maintain", session: &request.session, view, entries: 0..0 };
        let told = self.each(call, Hearing::News, |engine, view, _| {
            let request = request.clone();
            async move { engine.maintain(view, request).await }
        });
        match told.await? {
            Some(told) => Ok(told.map(|all| Maintained {
                changed: all.iter().any(|one| one.changed),
                bytes_freed: all.iter().map(|one| one.bytes_freed).sum(),
                reason: all.into_iter().find_map(|one| one.reason),
            })),
            None => Ok(self.stood_in(self.slot.maintain(view, request).await?)),
        }
    }

    /// The tools of all stages; of two with one name, that of the earlier stage.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn tools_here(
        &self,
        session: SessionRef,
    ) -> Result<Served<Vec<ToolSpec>>, SlotError> {
        if self.working().next().is_none() {
            return Ok(self.stood_in(self.slot.tools(session).await?));
        }
        self.refuse_while_quarantined("tools")?;
        let began = Instant::now();
        let mut tools: Vec<ToolSpec> = Vec::new();
        let mut by = Vec::new();
        for working in self.working() {
            match working.engine.tools(session.clone()).await {
                Ok(offered) => {
                    by.push(working.engine.info());
                    for tool in offered {
                        if !tools.iter().any(|known| known.name == tool.name) {
                            tools.push(tool);
                        }
                    }
                }
                Err(error) => self.fail(working.stage, "tools", error)?,
            }
        }
        Ok(self.served(&by, tools, began.elapsed()))
    }

    /// The model called a tool of a stage. An error goes to the model; nobody stands in.
    ///
    /// # Errors
    ///
    /// The stage's own.
    pub(super) async fn call_tool_here(
        &self,
        view: &Transcript,
        request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        for working in self.working() {
            let offered = working.engine.tools(request.session.clone()).await.unwrap_or_default();
            if offered.iter().any(|tool| tool.name == request.name) {
                let mut readings = self.readings(&request.session.id);
                let own = match readings.get_mut(working.number) {
                    Some(reading) => self.own_view(working, reading, view),
                    None => view.clone(),
                };
                self.remember(&request.session.id, readings);
                return working.engine.call_tool(own, request).await;
            }
        }
        self.slot.call_tool(view, request).await
    }

    /// A smaller transcript, of the last stage that has a compaction of its own; where all of them
    /// delegate, of the bundled engine. It is worked out over the session itself.
    ///
    /// # Errors
    ///
    /// Every error goes to the caller: a second, silent compaction would hide it. A stage that broke,
    /// rather than declined, is left out from then on.
    pub(super) async fn compact_here(
        &self,
        view: &Transcript,
        request: CompactRequest,
    ) -> Result<Served<Compaction>, SlotError> {
        let began = Instant::now();
        self.refuse_while_quarantined("compact")?;
        let mut readings = self.readings(&request.session.id);
        let working: Vec<Working<'_>> = self.working().collect();
        for working in working.into_iter().rev() {
            let Some(reading) = readings.get_mut(working.number) else { continue };
            let own = match working.number {
                0 => view.clone(),
                // The same positions as in the session, in an epoch of the stage's own.
                _ => reading.through(Plan::keep_all(view.len()), view, &self.epochs),
            };
            if let Err(error) = self.tell_news(working, reading, &own, &request.session).await {
                return Err(self.broke(working, "ingest", error));
            }
            match working.engine.compact(own, request.clone()).await {
                Ok(Compaction::Delegate) => {}
                Ok(value) => {
                    self.remember(&request.session.id, readings);
                    return Ok(self.served(&[working.engine.info()], value, began.elapsed()));
                }
                Err(error) => return Err(self.broke(working, "compact", error)),
            }
        }
        self.remember(&request.session.id, readings);
        Ok(self.stood_in(self.slot.compact(view, request).await?))
    }

    fn broke(
        &self,
        working: Working<'_>,
        operation: &'static str,
        error: EngineError,
    ) -> SlotError {
        self.blame(working, operation, &error);
        SlotError::engine(&working.stage.id, operation, error)
    }

    /// A stage failed a call whose error goes to the caller: it is left out from then on.
    pub(super) fn blame(&self, working: Working<'_>, operation: &'static str, error: &EngineError) {
        if !is_breakage(error.kind) {
            return;
        }
        self.troubles.failure();
        if !working.engine.lost_one_call(operation, error) {
            self.put_in_quarantine(&working.stage.id, operation, &error.message);
        }
    }

    /// Tells or asks every stage that serves; `None` where none is left.
    pub(super) async fn each<T, F>(
        &self,
        call: Call<'_>,
        hearing: Hearing,
        ask: impl Fn(Arc<LiveEngine>, Transcript, Range<u64>) -> F,
    ) -> Result<Option<Served<Vec<T>>>, SlotError>
    where
        F: Future<Output = Result<T>>,
    {
        if self.stages.is_empty() {
            return Ok(None);
        }
        self.refuse_while_quarantined(call.operation)?;
        let began = Instant::now();
        let mut readings = self.readings(&call.session.id);
        let (mut answers, mut by) = (Vec::new(), Vec::new());
        let working: Vec<Working<'_>> = self.working().collect();
        for working in working {
            let Some(reading) = readings.get_mut(working.number) else { continue };
            let own = self.own_view(working, reading, call.view);
            let entries = match working.number {
                0 => call.entries.clone(),
                _ => reading.positions(&call.entries),
            };
            if hearing == Hearing::News
                && let Err(error) = self.tell_news(working, reading, &own, call.session).await
            {
                self.fail(working.stage, "ingest", error)?;
                continue;
            }
            match ask(working.engine.clone(), own, entries).await {
                Ok(answer) => {
                    answers.push(answer);
                    by.push(working.engine.info());
                }
                Err(error) if is_answer(error.kind) => return Err(SlotError::answer(error)),
                Err(error) => self.fail(working.stage, call.operation, error)?,
            }
        }
        self.remember(&call.session.id, readings);
        Ok((!by.is_empty()).then(|| self.served(&by, answers, began.elapsed())))
    }

    fn own_view(
        &self,
        working: Working<'_>,
        reading: &mut Reading,
        view: &Transcript,
    ) -> Transcript {
        match working.number {
            0 => view.clone(),
            _ => reading.carried(view, &self.epochs),
        }
    }

    /// Tells a stage of what is new in what it reads. The first one was told when it happened.
    async fn tell_news(
        &self,
        working: Working<'_>,
        reading: &mut Reading,
        own: &Transcript,
        session: &SessionRef,
    ) -> Result<()> {
        if working.number == 0 {
            return Ok(());
        }
        let entries = reading.news(own);
        if entries.is_empty() {
            return Ok(());
        }
        let session = session.clone();
        let news = IngestRequest { session, entries, ..IngestRequest::default() };
        working.engine.ingest(own.clone(), news).await.map(drop)
    }
}

/// Whether a stage hears of new entries before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    Nothing,
    News,
}

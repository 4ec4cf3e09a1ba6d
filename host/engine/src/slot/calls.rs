//! The calls that a slot passes on to its engines, one by one.

use ctxhost_engine_api::*;

use super::{Served, Slot, SlotError};

impl Slot {
    /// A session begins.
    pub async fn bootstrap(
        &self,
        view: &Transcript,
        request: BootstrapRequest,
    ) -> Result<Served<Bootstrapped>, SlotError> {
        self.serve("bootstrap", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.bootstrap(view, request).await }
        })
        .await
    }

    /// New entries.
    pub async fn ingest(
        &self,
        view: &Transcript,
        request: IngestRequest,
    ) -> Result<Served<Ingested>, SlotError> {
        self.serve("ingest", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.ingest(view, request).await }
        })
        .await
    }

    /// What the model sees.
    pub async fn assemble(
        &self,
        view: &Transcript,
        request: AssembleRequest,
    ) -> Result<Served<Plan>, SlotError> {
        self.serve("assemble", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.assemble(view, request).await }
        })
        .await
    }

    /// A turn has ended well.
    pub async fn after_turn(
        &self,
        view: &Transcript,
        request: AfterTurnRequest,
    ) -> Result<Served<()>, SlotError> {
        self.serve("after_turn", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.after_turn(view, request).await }
        })
        .await
    }

    /// A turn is final.
    pub async fn commit_turn(
        &self,
        view: &Transcript,
        request: CommitTurnRequest,
    ) -> Result<Served<Committed>, SlotError> {
        self.serve("commit_turn", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.commit_turn(view, request).await }
        })
        .await
    }

    /// Time for housekeeping.
    pub async fn maintain(
        &self,
        view: &Transcript,
        request: MaintainRequest,
    ) -> Result<Served<Maintained>, SlotError> {
        self.serve("maintain", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.maintain(view, request).await }
        })
        .await
    }

    /// The tools that the effective engine offers.
    pub async fn tools(&self, session: SessionRef) -> Result<Served<Vec<ToolSpec>>, SlotError> {
        self.serve("tools", |engine| {
            let session = session.clone();
            async move { engine.tools(session).await }
        })
        .await
    }

    /// The model called a tool of the effective engine. An error goes to the model; nobody stands in.
    pub async fn call_tool(
        &self,
        view: &Transcript,
        request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        self.effective().call_tool(view.clone(), request).await
    }

    /// A sub-agent is about to start. An error stops the spawn, and one of the engine's own doing puts it in
    /// quarantine for the next call.
    pub async fn prepare_subagent_spawn(
        &self,
        view: &Transcript,
        request: SubagentSpawnRequest,
    ) -> Result<SpawnPrepared> {
        let engine = self.at_work();
        let prepared = engine.prepare_subagent_spawn(view.clone(), request).await;
        prepared.inspect_err(|error| self.blame(engine, "prepare_subagent_spawn", error))
    }

    /// A spawn that was prepared failed.
    pub async fn rollback_subagent_spawn(&self, request: SubagentRollbackRequest) -> Result<()> {
        self.effective().rollback_subagent_spawn(request).await
    }

    /// A sub-agent ended.
    pub async fn on_subagent_ended(
        &self,
        request: SubagentEndedRequest,
    ) -> Result<Served<()>, SlotError> {
        self.serve("on_subagent_ended", |engine| {
            let request = request.clone();
            async move { engine.on_subagent_ended(request).await }
        })
        .await
    }
}

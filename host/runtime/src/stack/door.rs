//! What is asked of a stack, call by call, as of one engine: the stack that serves answers, which is the one
//! before it where a trial is lost.

use ctxhost_engine_api::*;

use super::{Bench, Stack, Staged};
use ctxhost_engine::{Served, SlotError};

impl Stack {
    /// A session begins.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn bootstrap(
        &self,
        view: &Transcript,
        request: BootstrapRequest,
    ) -> Result<Served<Bootstrapped>, SlotError> {
        let scene = Some((view, &request.session));
        let served = self.serve(scene, |stack| stack.bootstrap_here(view, request.clone())).await?;
        Ok(self.signed(served))
    }

    /// New entries.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn ingest(
        &self,
        view: &Transcript,
        request: IngestRequest,
    ) -> Result<Served<Ingested>, SlotError> {
        let scene = Some((view, &request.session));
        let served = self.serve(scene, |stack| stack.ingest_here(view, request.clone())).await?;
        Ok(self.signed(served))
    }

    /// A turn has ended well.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn after_turn(
        &self,
        view: &Transcript,
        request: AfterTurnRequest,
    ) -> Result<Served<()>, SlotError> {
        let scene = Some((view, &request.session));
        let served =
            self.serve(scene, |stack| stack.after_turn_here(view, request.clone())).await?;
        Ok(self.signed(served))
    }

    /// A turn is final. It counts as new where it was to any stage.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn commit_turn(
        &self,
        view: &Transcript,
        request: CommitTurnRequest,
    ) -> Result<Served<Committed>, SlotError> {
        let scene = Some((view, &request.session));
        let served =
            self.serve(scene, |stack| stack.commit_turn_here(view, request.clone())).await?;
        Ok(self.signed(served))
    }

    /// Time for housekeeping.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn maintain(
        &self,
        view: &Transcript,
        request: MaintainRequest,
    ) -> Result<Served<Maintained>, SlotError> {
        let scene = Some((view, &request.session));
        let served = self.serve(scene, |stack| stack.maintain_here(view, request.clone())).await?;
        Ok(self.signed(served))
    }

    /// A smaller transcript, of the last stage that has a compaction of its own.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn compact(
        &self,
        view: &Transcript,
        request: CompactRequest,
    ) -> Result<Served<Compaction>, SlotError> {
        let scene = Some((view, &request.session));
        let served = self.serve(scene, |stack| stack.compact_here(view, request.clone())).await?;
        Ok(self.signed(served))
    }

    /// What the model sees. Every stage has the whole budget; only what the last one shows must fit.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(crate) async fn assemble(
        &self,
        view: &Transcript,
        request: AssembleRequest,
        bench: Bench<'_>,
    ) -> Result<Staged, SlotError> {
        let scene = Some((view, &request.session));
        let ask = |stack| Stack::assemble_here(stack, view, request.clone(), bench);
        let staged = self.serve(scene, ask).await?;
        Ok(Staged { served: self.signed(staged.served), ..staged })
    }

    /// The tools of all stages; of two with one name, that of the earlier stage.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn tools(&self, session: SessionRef) -> Result<Served<Vec<ToolSpec>>, SlotError> {
        let served = self.serve(None, |stack| stack.tools_here(session.clone())).await?;
        Ok(self.signed(served))
    }

    /// The model called a tool of a stage. An error goes to the model; nobody stands in.
    ///
    /// # Errors
    ///
    /// The stage's own.
    pub async fn call_tool(
        &self,
        view: &Transcript,
        request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        self.standing().call_tool_here(view, request).await
    }

    /// A sub-agent is about to start. An error of any stage stops the spawn.
    ///
    /// # Errors
    ///
    /// The stage's own.
    pub async fn prepare_subagent_spawn(
        &self,
        view: &Transcript,
        request: SubagentSpawnRequest,
    ) -> Result<SpawnPrepared> {
        self.standing().prepare_subagent_spawn_here(view, request).await
    }

    /// A spawn that was prepared failed.
    ///
    /// # Errors
    ///
    /// The first stage's that has one.
    pub async fn rollback_subagent_spawn(&self, request: SubagentRollbackRequest) -> Result<()> {
        self.standing().rollback_subagent_spawn_here(request).await
    }

    /// A sub-agent ended.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn on_subagent_ended(
        &self,
        request: SubagentEndedRequest,
    ) -> Result<Served<()>, SlotError> {
        let ask = |stack| Stack::on_subagent_ended_here(stack, request.clone());
        let served = self.serve(None, ask).await?;
        Ok(self.signed(served))
    }
}

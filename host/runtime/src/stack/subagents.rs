//! Sub-agents of a stack: every stage prepares for one and hears how it ended.

use std::collections::BTreeMap;

use ctxhost_engine_api::{
    EngineError, Result, SpawnPrepared, SubagentEndedRequest, SubagentRollbackRequest,
    SubagentSpawnRequest, Transcript,
};

use super::{Stack, Working};
use ctxhost_engine::{Served, SlotError};

impl Stack {
    /// A sub-agent is about to start. An error of any stage stops the spawn; those that had prepared
    /// are asked to take it back.
    ///
    /// # Errors
    ///
    /// The stage's own.
    pub(super) async fn prepare_subagent_spawn_here(
        &self,
        view: &Transcript,
        request: SubagentSpawnRequest,
    ) -> Result<SpawnPrepared> {
        if self.stages.is_empty() {
            return self.slot.prepare_subagent_spawn(view, request).await;
        }
        let mut readings = self.readings(&request.parent.id);
        let mut tokens = BTreeMap::new();
        let working: Vec<Working<'_>> = self.working().collect();
        for working in working {
            let own = match readings.get_mut(working.number).filter(|_| working.number > 0) {
                Some(reading) => reading.carried(view, &self.epochs),
                None => view.clone(),
            };
            match working.engine.prepare_subagent_spawn(own, request.clone()).await {
                Ok(prepared) if prepared.token.is_empty() => {}
                Ok(prepared) => _ = tokens.insert(working.stage.id.clone(), prepared.token),
                Err(error) => {
                    self.take_back(tokens).await;
                    self.blame(working, "prepare_subagent_spawn", &error);
                    return Err(error);
                }
            }
        }
        self.remember(&request.parent.id, readings);
        if tokens.is_empty() {
            return Ok(SpawnPrepared::default());
        }
        let token = serde_json::to_string(&tokens);
        Ok(SpawnPrepared { token: token.map_err(|it| EngineError::failed(it.to_string()))? })
    }

    /// A spawn that was prepared failed.
    ///
    /// # Errors
    ///
    /// The first stage's that has one.
    pub(super) async fn rollback_subagent_spawn_here(
        &self,
        request: SubagentRollbackRequest,
    ) -> Result<()> {
        if self.stages.is_empty() {
            return self.slot.rollback_subagent_spawn(request).await;
        }
        let tokens = serde_json::from_str(&request.token)
            .map_err(|error| EngineError::failed(format!("no token of this stack: {error}")))?;
        match self.take_back(tokens).await {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// A sub-agent ended.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn on_subagent_ended_here(
        &self,
        request: SubagentEndedRequest,
    ) -> Result<Served<()>, SlotError> {
        if self.working().next().is_none() {
            return Ok(self.stood_in(self.slot.on_subagent_ended(request).await?));
        }
        self.refuse_while_quarantined("on_subagent_ended")?;
        let mut by = Vec::new();
        for working in self.working() {
            match working.engine.on_subagent_ended(request.clone()).await {
                Ok(()) => by.push(working.engine.info()),
                Err(error) => self.fail(working.stage, "on_subagent_ended", error)?,
            }
        }
        Ok(self.served(&by, (), std::time::Duration::ZERO))
    }

    /// Asks stages to take back what they prepared; the first error.
    async fn take_back(&self, tokens: BTreeMap<String, String>) -> Option<EngineError> {
        let mut first = None;
        for (id, token) in tokens {
            let Some(working) = self.working().find(|working| working.stage.id == id) else {
                continue;
            };
            let request = SubagentRollbackRequest { token, ..SubagentRollbackRequest::default() };
            if let Err(error) = working.engine.rollback_subagent_spawn(request).await {
                tracing::warn!(engine = id, %error, "a preparation was not taken back");
                first = first.or(Some(error));
            }
        }
        first
    }
}

//! Spawns sub-agents and records their ends, in the locked session of the parent.

use std::path::PathBuf;
use std::sync::Arc;

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use ctxhost_engine_api::{
    ContextMode, SessionRef, SubagentEnd, SubagentRollbackRequest, SubagentSpawnReply,
    SubagentSpawnRequest,
};

use super::error::{SpawnError, SpawnOptions};
use super::registry::{self, ChildSettings, SpawnRecord, SubagentRecord, SubagentState};
use super::run::SubagentRun;
use super::running::SubagentStatus;
use crate::error::TurnError;
use crate::event::EventKind;
use crate::private_files;
use crate::session_cell::{ActiveSession, SessionId};
use crate::session_guard::SessionGuard;
use crate::state::RuntimeState;
use ctxhost_engine::{ActiveEngine, SlotError};
use ctxhost_models::ModelName;
use ctxhost_session::{Record, Session, SessionError, SessionHeader};

/// The minimum budget share of a sub-agent: a tenth of most windows is enough for a task.
const MIN_BUDGET_SHARE: f64 = 0.1;

/// A locked session, as the parent of its sub-agents.
pub(crate) struct ParentSession<'a> {
    state: Arc<RuntimeState>,
    active: &'a mut ActiveSession,
}

impl<'a> ParentSession<'a> {
    pub(super) fn new(guard: &'a mut SessionGuard) -> ParentSession<'a> {
        ParentSession { state: guard.state().clone(), active: guard.active_mut() }
    }

    /// Spawns a sub-agent; the caller runs it.
    pub(super) async fn spawn(
        &mut self,
        task: &str,
        options: &SpawnOptions,
    ) -> Result<SubagentRun, SpawnError> {
        let settings = self.check_limits(options)?;
        let now_ms = self.state.clock().now_ms();
        let session = self.session();
        let parent = session.path().map(|path| path.display().to_string());
        // A session in memory has no file.
        let parent = parent.unwrap_or_else(|| session.header().id().to_owned());
        let header =
            SessionHeader::new(None, session.header().cwd(), now_ms).with_parent_session(&parent);
        // The engine may refuse, so it is asked before anything is written.
        let prepared = self.prepare(header.id(), options.context).await?;
        let run = self.start(header, settings, task, options);
        if run.is_err() {
            self.roll_back(prepared).await;
        }
        run
    }

    /// Checks the limits of the parent; returns the settings of the new sub-agent.
    fn check_limits(&self, options: &SpawnOptions) -> Result<ChildSettings, SpawnError> {
        let settings = &self.state.settings;
        let depth = self.active.subagents.depth();
        if depth >= settings.subagent_depth {
            return Err(SpawnError::TooDeep { depth });
        }
        // An interrupted one needs no room.
        let live = self.active.subagents.running_count(&self.state.running_subagents);
        if live >= settings.subagents_live {
            return Err(SpawnError::TooMany { live });
        }
        let model = options.model.as_deref().map(|name| self.model(name)).transpose()?;
        let budget_share = options.budget_share.unwrap_or(1.0).clamp(MIN_BUDGET_SHARE, 1.0);
        Ok(ChildSettings { depth: depth + 1, model, budget_share })
    }

    fn model(&self, name: &str) -> Result<ModelName, SpawnError> {
        let model = name.split_once('/').map(|(provider, id)| ModelName::new(provider, id));
        let model = model.filter(|model| self.state.failover.lock().contains(model));
        model.ok_or_else(|| SpawnError::UnknownModel { name: name.to_owned() })
    }

    async fn prepare(
        &self,
        child: &str,
        context_mode: ContextMode,
    ) -> Result<SubagentSpawnReply, SpawnError> {
        let request = SubagentSpawnRequest {
            parent: self.active.context.session().reference().clone(),
            child: SessionRef { id: child.to_owned(), ..SessionRef::default() },
            context_mode,
            ttl_ms: self.state.settings.subagent_ttl_ms,
            ..SubagentSpawnRequest::default()
        };
        let engine = self.engine().serving_info().id;
        let prepared =
            self.engine().prepare_subagent_spawn(&self.active.context.view(), request).await;
        let refused = |error: SlotError| SpawnError::Refused {
            engine,
            error: Box::new(error.into_engine_error()),
        };
        prepared.map(|reply| reply.value).map_err(refused)
    }

    async fn roll_back(&self, prepared: SubagentSpawnReply) {
        if prepared.token.is_empty() {
            return;
        }
        let request = SubagentRollbackRequest { token: prepared.token, ..Default::default() };
        if let Err(error) = self.engine().rollback_subagent_spawn(request).await {
            tracing::warn!(%error, "the engine failed to roll back the preparation of a sub-agent");
        }
    }

    fn start(
        &mut self,
        header: SessionHeader,
        settings: ChildSettings,
        task: &str,
        options: &SpawnOptions,
    ) -> Result<SubagentRun, SpawnError> {
        let file = self.file_of(header.id(), options)?;
        let session = self.child_session(header, settings, options.context)?;
        let session = match &file {
            Some(path) => session.into_file(path)?,
            None => session.into_backend_of(self.session())?,
        };
        let child = self.state.register(session, Some(&self.active.lineage))?;
        let record = SpawnRecord {
            child: child.to_string(),
            task: task.to_owned(),
            context: options.context,
            file,
        };
        if let Err(error) = self.record_spawn(record) {
            // Without its record the sub-agent would be forgotten at a restart.
            self.state.close(child.as_str());
            return Err(error.into());
        }
        self.emit(EventKind::SubagentSpawned {
            child: child.to_string(),
            task: task.to_owned(),
            context: options.context,
        });
        let parent = self.active.context.session().reference().id.clone();
        Ok(SubagentRun::new(&self.state, self.engine(), parent, child, task))
    }

    fn record_spawn(&mut self, record: SpawnRecord) -> Result<(), SessionError> {
        let now_ms = self.state.clock().now_ms();
        let body = SubagentRecord::Spawned(record.clone()).to_body();
        self.active.context.session_mut().append(body, now_ms)?;
        self.active.subagents.add(record, now_ms, SubagentState::Running);
        Ok(())
    }

    /// The file of a sub-agent's session; `None` if the parent is in memory.
    fn file_of(&self, id: &str, options: &SpawnOptions) -> Result<Option<PathBuf>, SpawnError> {
        if options.path.is_some() {
            return Ok(options.path.clone());
        }
        let Some(parent) = self.session().path() else { return Ok(None) };
        // A folder of its own, so that lists of the user's sessions do not include sub-agents.
        let folder = parent.with_extension("agents");
        private_files::create_folder(&folder)
            .map_err(|source| SpawnError::Folder { path: folder.clone(), source })?;
        Ok(Some(folder.join(format!("{id}.jsonl"))))
    }

    fn child_session(
        &self,
        header: SessionHeader,
        settings: ChildSettings,
        context: ContextMode,
    ) -> Result<Session, SessionError> {
        let mut session = Session::in_memory(header);
        let now_ms = self.state.clock().now_ms();
        session.append_at(SubagentRecord::Begun(settings).to_body(), now_ms)?;
        if context == ContextMode::Fork {
            for record in before_open_calls(&self.session().branch()) {
                if !registry::is_subagent_record(record) {
                    session.append_copy(record)?;
                }
            }
        }
        Ok(session)
    }

    /// Ends a sub-agent that does not run in this process.
    pub(super) async fn end_subagent(
        &mut self,
        child: &str,
        end: SubagentEnd,
    ) -> Result<(), TurnError> {
        self.state.notify_subagent_ended(self.engine(), child, end).await;
        self.state.close(child);
        self.emit(EventKind::SubagentEnded { child: child.to_owned(), end, failure: None });
        Ok(self.record_end(child, end)?)
    }

    fn record_end(&mut self, child: &str, end: SubagentEnd) -> Result<(), SessionError> {
        let reason = serde_json::to_value(end).unwrap_or_default();
        let reason = reason.as_str().unwrap_or_default().to_owned();
        let body = SubagentRecord::Ended { child: child.to_owned(), reason }.to_body();
        self.active.context.session_mut().append(body, self.state.clock().now_ms())?;
        self.active.subagents.remove(child);
        self.state.running_subagents.forget(child);
        Ok(())
    }

    /// Records ends that are not recorded yet: of sub-agents that ended while the parent was locked, that were dropped
    /// with a turn of the parent, or that outlived their time limit in a dead process.
    pub(crate) async fn record_ends(&mut self) -> Result<(), TurnError> {
        let ttl_ms = i64::try_from(self.state.settings.subagent_ttl_ms).unwrap_or(i64::MAX);
        let now_ms = self.state.clock().now_ms();
        for child in self.active.subagents.without_recorded_end().to_vec() {
            match self.state.running_subagents.status(&child.id) {
                SubagentStatus::Running => {}
                SubagentStatus::Ended(end) => self.record_end(&child.id, end)?,
                // Its run was dropped with a turn of the parent.
                SubagentStatus::Unknown if child.state == SubagentState::Running => {
                    self.end_subagent(&child.id, SubagentEnd::Released).await?;
                }
                SubagentStatus::Unknown if child.spawned_ms.saturating_add(ttl_ms) <= now_ms => {
                    self.end_subagent(&child.id, SubagentEnd::Swept).await?;
                }
                SubagentStatus::Unknown => {}
            }
        }
        Ok(())
    }

    fn session(&self) -> &Session {
        self.active.context.session().session()
    }

    fn engine(&self) -> &Arc<ActiveEngine> {
        self.active.context.engine()
    }

    fn emit(&self, kind: EventKind) {
        self.state.emit(&self.active.context.session().reference().id, kind);
    }
}

impl RuntimeState {
    /// Records the ends of a session's sub-agents, between two of its turns.
    pub(super) async fn record_subagent_ends(
        self: &Arc<Self>,
        parent: &SessionId,
    ) -> Result<(), TurnError> {
        let cell = self.session(parent)?;
        let lock = self.lock_cell(parent, &cell).await?;
        let mut guard = SessionGuard::new(self, &cell, lock).await;
        ParentSession::new(&mut guard).record_ends().await
    }
}

/// The branch up to tool calls without results, such as the call that spawns the fork: a fork cannot answer them.
fn before_open_calls<'a, 'b>(branch: &'b [&'a Record]) -> &'b [&'a Record] {
    let entries: Vec<_> = branch.iter().map(|record| record.to_entry()).collect();
    let calls =
        |entry: &Option<NewEntry>| entry.as_ref().is_some_and(|entry| !entry.calls.is_empty());
    let Some(last) = entries.iter().rposition(calls) else { return branch };
    let mut following = entries.iter().skip(last).flatten();
    let Some(calling) = following.next() else { return branch };
    let mut open = OpenCalls::default();
    open.open(calling.calls.iter().map(|call| (call.clone(), ())));
    for answered in following.filter_map(|entry| entry.answers.as_ref()) {
        open.take(answered);
    }
    match open.into_open().next() {
        None => branch,
        Some(()) => branch.get(..last).unwrap_or(branch),
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_session::RecordBody;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_second_of_two_calls_with_one_id_is_open_after_one_result() {
        let call = json!({ "type": "toolCall", "id": "a", "name": "ls", "arguments": {} });
        let result = json!({ "role": "toolResult", "toolCallId": "a", "toolName": "ls",
                             "content": [{ "type": "text", "text": "x" }], "isError": false });
        let messages = [
            json!({ "role": "user", "content": "go" }),
            json!({ "role": "assistant", "content": [call, call] }),
            result.clone(),
            result,
        ];
        let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/w", 0));
        let mut lengths = Vec::new();
        for message in &messages {
            session.append_at(RecordBody::from_message(message).unwrap(), 0).unwrap();
            lengths.push(before_open_calls(&session.branch()).len());
        }
        assert_eq!(lengths, [1, 1, 1, 4]);
    }
}

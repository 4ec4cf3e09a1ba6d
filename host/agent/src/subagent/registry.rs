//! The table of a session's live sub-agents, kept in records outside the context.

use std::collections::HashSet;
use std::path::PathBuf;

use ctxhost_engine_api::ContextMode;
use serde::{Deserialize, Serialize};

use super::running::RunningSubagents;
use ctxhost_models::ModelName;
use ctxhost_session::{Record, RecordBody, Session};

/// The custom type of the records.
const CUSTOM_TYPE: &str = "ctxhost.subagent";

/// Characters of a task in the parent's system prompt; the parent's model wrote the task itself.
const TASK_CHARS: usize = 200;

/// A record about sub-agents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum SubagentRecord {
    /// In a sub-agent's session: its settings.
    Begun(ChildSettings),
    /// In the parent's session: a sub-agent was started.
    Spawned(SpawnRecord),
    /// In the parent's session: a sub-agent has ended.
    Ended { child: String, reason: String },
}

/// The settings of a sub-agent. The default is that of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChildSettings {
    /// Levels below the agent; an agent has depth 0.
    pub(super) depth: u32,
    /// The first model, if it is not the agent's.
    pub(super) model: Option<ModelName>,
    /// Its share of the budget.
    pub(super) budget_share: f64,
}

impl Default for ChildSettings {
    fn default() -> Self {
        ChildSettings { depth: 0, model: None, budget_share: 1.0 }
    }
}

/// A started sub-agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpawnRecord {
    pub(super) child: String,
    pub(super) task: String,
    pub(super) context: ContextMode,
    pub(super) file: Option<PathBuf>,
}

impl SubagentRecord {
    pub(super) fn to_body(&self) -> RecordBody {
        RecordBody::custom(CUSTOM_TYPE, &serde_json::to_value(self).unwrap_or_default())
    }
}

/// Whether a record is about sub-agents. A fork does not copy those of its parent.
pub(super) fn is_subagent_record(record: &Record) -> bool {
    record.custom_data(CUSTOM_TYPE).is_some()
}

/// A live sub-agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSubagent {
    /// The id of its session.
    pub id: String,
    pub task: String,
    /// What it sees of its parent's conversation.
    pub context: ContextMode,
    /// The file of its session; `None` for one in memory.
    pub file: Option<PathBuf>,
    /// When it was started, in milliseconds since 1970.
    pub spawned_ms: i64,
    /// Whether it runs.
    pub state: SubagentState,
}

/// Whether a live sub-agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubagentState {
    /// It runs in this process.
    Running,
    /// Its process has ended.
    Interrupted,
}

impl SubagentState {
    fn label(self) -> &'static str {
        match self {
            SubagentState::Running => "at work",
            SubagentState::Interrupted => "interrupted when the process ended",
        }
    }
}

/// The sub-agents of a session, and its own settings as a sub-agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubagentTable {
    settings: ChildSettings,
    live: Vec<LiveSubagent>,
}

impl SubagentTable {
    /// Reads the records of a session on all branches: an undo does not end a sub-agent.
    pub(crate) fn from_session(session: &Session) -> SubagentTable {
        let records = session.host_records(CUSTOM_TYPE).filter_map(|(record, data)| {
            Some((record.timestamp_ms(), serde_json::from_value(data).ok()?))
        });
        let records: Vec<(i64, SubagentRecord)> = records.collect();
        let ended: HashSet<String> =
            records.iter().filter_map(|(_, record)| ended_child(record)).collect();
        let mut table = SubagentTable::default();
        for (spawned_ms, record) in records {
            match record {
                SubagentRecord::Begun(settings) => table.settings = settings,
                SubagentRecord::Spawned(spawn) if !ended.contains(&spawn.child) => {
                    // Read from a file, so whatever ran then ended with its process.
                    table.add(spawn, spawned_ms, SubagentState::Interrupted);
                }
                SubagentRecord::Spawned(_) | SubagentRecord::Ended { .. } => {}
            }
        }
        table
    }

    /// Rereads the table after other machines wrote to the session; keeps the states of this process.
    pub(crate) fn refreshed(&self, session: &Session) -> SubagentTable {
        let mut table = SubagentTable::from_session(session);
        for child in &mut table.live {
            let own = self.live.iter().find(|own| own.id == child.id);
            // Only this process knows which of its sub-agents still run.
            child.state = own.map_or(child.state, |own| own.state);
        }
        table
    }

    /// Adds a sub-agent, unless it is in the table.
    pub(super) fn add(&mut self, spawn: SpawnRecord, spawned_ms: i64, state: SubagentState) {
        if self.live.iter().any(|live| live.id == spawn.child) {
            return;
        }
        let SpawnRecord { child: id, task, context, file } = spawn;
        self.live.push(LiveSubagent { id, task, context, file, spawned_ms, state });
    }

    pub(super) fn remove(&mut self, child: &str) {
        self.live.retain(|live| live.id != child);
    }

    /// The sub-agents without a recorded end.
    pub(super) fn without_recorded_end(&self) -> &[LiveSubagent] {
        &self.live
    }

    /// The live sub-agents, in the order in which they were started.
    pub(super) fn live<'a>(
        &'a self,
        running: &RunningSubagents,
    ) -> impl Iterator<Item = &'a LiveSubagent> {
        self.live.iter().filter(|child| !running.has_ended(&child.id))
    }

    /// How many sub-agents run in this process.
    pub(super) fn running_count(&self, running: &RunningSubagents) -> usize {
        self.live(running).filter(|child| child.state == SubagentState::Running).count()
    }

    /// The depth of this session: 0 for an agent.
    pub(crate) fn depth(&self) -> u32 {
        self.settings.depth
    }

    /// The first model of this session, if it is not the agent's.
    pub(crate) fn model(&self) -> Option<&ModelName> {
        self.settings.model.as_ref()
    }

    /// This session's share of the budget.
    pub(crate) fn budget_share(&self) -> f64 {
        self.settings.budget_share
    }

    /// The list of live sub-agents for the parent's system prompt; empty if there are none.
    pub(crate) fn prompt_note(&self, running: &RunningSubagents) -> String {
        let lines = |state: SubagentState, head: &str| {
            let children = self.live(running).filter(|child| child.state == state);
            let lines: Vec<String> = children.map(prompt_line).collect();
            (!lines.is_empty()).then(|| format!("{head}\n{}", lines.join("\n")))
        };
        let parts = [
            lines(
                SubagentState::Running,
                "Sub-agents of yours that have not ended. Do not start another for the same task.",
            ),
            lines(
                SubagentState::Interrupted,
                "Sub-agents of yours that were interrupted. They do not run any more and give no answer; start \
                 another one if you still need the result.",
            ),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            return String::new();
        }
        format!("<sub-agents>\n{}\n</sub-agents>", parts.join("\n"))
    }
}

fn ended_child(record: &SubagentRecord) -> Option<String> {
    match record {
        SubagentRecord::Ended { child, .. } => Some(child.clone()),
        SubagentRecord::Begun(_) | SubagentRecord::Spawned(_) => None,
    }
}

fn prompt_line(child: &LiveSubagent) -> String {
    // One line per sub-agent.
    let words = child.task.split_whitespace().collect::<Vec<_>>().join(" ");
    let task: String = words.chars().take(TASK_CHARS).collect();
    let more = if task.len() < words.len() { "..." } else { "" };
    format!("- {} ({}): {task}{more}", child.id, child.state.label())
}

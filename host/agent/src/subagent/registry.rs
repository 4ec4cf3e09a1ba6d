//! Which sub-agents of a session live, as its records tell: pinned state that no compaction folds.

use std::collections::HashSet;
use std::path::PathBuf;

use ctxhost_engine_api::ContextMode;
use serde::{Deserialize, Serialize};

use super::run::RunningSubagents;
use ctxhost_models::ModelName;
use ctxhost_session::{Record, RecordBody, Session};

/// The custom type of the records.
const CUSTOM_TYPE: &str = "ctxhost.subagent";

/// Characters of a task in the note to the parent's model, which has written it itself.
const TASK_CHARS: usize = 200;

/// What a record tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum SubagentRecord {
    /// In a child: this is one, and what it may do.
    Begun(ChildSettings),
    /// In a parent: a child was started.
    Spawned(SpawnRecord),
    /// In a parent: a child ended.
    Ended { child: String, reason: String },
}

/// What a child was born with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChildSettings {
    /// 1 for the child of an agent that is none itself.
    pub(super) depth: u32,
    /// The model that answers first.
    pub(super) model: Option<ModelName>,
    /// The share of the budget that it may use.
    pub(super) budget_share: f64,
}

impl Default for ChildSettings {
    fn default() -> Self {
        ChildSettings { depth: 0, model: None, budget_share: 1.0 }
    }
}

/// A child that was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpawnRecord {
    pub(super) child: String,
    pub(super) task: String,
    pub(super) context: ContextMode,
    pub(super) file: Option<PathBuf>,
}

impl SubagentRecord {
    /// As a record.
    pub(super) fn to_body(&self) -> RecordBody {
        RecordBody::custom(CUSTOM_TYPE, &serde_json::to_value(self).unwrap_or_default())
    }
}

/// Whether a record tells of sub-agents. A fork has none of its parent's.
pub(super) fn is_subagent_record(record: &Record) -> bool {
    record.custom_data(CUSTOM_TYPE).is_some()
}

/// A sub-agent that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSubagent {
    /// The id of its session.
    pub id: String,
    /// What it was asked to do.
    pub task: String,
    /// What it sees of its parent.
    pub context: ContextMode,
    /// The file of its session; `None` for one in memory.
    pub file: Option<PathBuf>,
    /// When it was started, in milliseconds since 1970.
    pub spawned_ms: i64,
    /// Whether it works.
    pub state: SubagentState,
}

/// Whether a sub-agent works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubagentState {
    /// It does, in this process.
    Running,
    /// The process in which it did has ended.
    Interrupted,
}

impl SubagentState {
    fn in_words(self) -> &'static str {
        match self {
            SubagentState::Running => "at work",
            SubagentState::Interrupted => "interrupted when the process ended",
        }
    }
}

/// The sub-agents of one session, and whether it is one itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubagentTable {
    settings: ChildSettings,
    live: Vec<LiveSubagent>,
}

impl SubagentTable {
    /// As the records of a session tell, on whatever branch: an undo takes back no sub-agent.
    pub(crate) fn from_session(session: &Session) -> SubagentTable {
        let told = session.host_records(CUSTOM_TYPE).filter_map(|(record, data)| {
            Some((record.timestamp_ms(), serde_json::from_value(data).ok()?))
        });
        let told: Vec<(i64, SubagentRecord)> = told.collect();
        let ended: HashSet<String> =
            told.iter().filter_map(|(_, told)| ended_child(told)).collect();
        let mut children = SubagentTable::default();
        for (spawned_ms, told) in told {
            match told {
                SubagentRecord::Begun(birth) => children.settings = birth,
                SubagentRecord::Spawned(spawned) if !ended.contains(&spawned.child) => {
                    children.add(spawned, spawned_ms, SubagentState::Interrupted);
                }
                SubagentRecord::Spawned(_) | SubagentRecord::Ended { .. } => {}
            }
        }
        children
    }

    /// The same after other machines have added to the session: what works here still does.
    pub(crate) fn refreshed(&self, session: &Session) -> SubagentTable {
        let mut children = SubagentTable::from_session(session);
        for child in &mut children.live {
            let known = self.live.iter().find(|known| known.id == child.id);
            child.state = known.map_or(child.state, |known| known.state);
        }
        children
    }

    /// One more; the same one never twice.
    pub(super) fn add(&mut self, spawned: SpawnRecord, spawned_ms: i64, state: SubagentState) {
        if self.live.iter().any(|live| live.id == spawned.child) {
            return;
        }
        let SpawnRecord { child: id, task, context, file } = spawned;
        self.live.push(LiveSubagent { id, task, context, file, spawned_ms, state });
    }

    /// One less.
    pub(super) fn remove(&mut self, child: &str) {
        self.live.retain(|live| live.id != child);
    }

    /// All that have no recorded end.
    pub(super) fn without_recorded_end(&self) -> &[LiveSubagent] {
        &self.live
    }

    /// Those that live now, in the order in which they were started.
    pub(super) fn live<'a>(
        &'a self,
        running: &RunningSubagents,
    ) -> impl Iterator<Item = &'a LiveSubagent> {
        self.live.iter().filter(|child| !running.has_ended(&child.id))
    }

    /// 0 for an agent, 1 for its sub-agents, and so on.
    pub(crate) fn depth(&self) -> u32 {
        self.settings.depth
    }

    /// The model that answers first, where this session has one of its own.
    pub(crate) fn model(&self) -> Option<&ModelName> {
        self.settings.model.as_ref()
    }

    /// The share of the budget that this session may use.
    pub(crate) fn budget_share(&self) -> f64 {
        self.settings.budget_share
    }

    /// What the parent's model is told of them before every request; empty where none lives.
    pub(crate) fn prompt_note(&self, running: &RunningSubagents) -> String {
        let lines: Vec<String> = self.live(running).map(prompt_line).collect();
        if lines.is_empty() {
            return String::new();
        }
        format!(
            "<sub-agents>\nSub-agents of yours that have not ended. Do not start another for the same \
             task.\n{}\n</sub-agents>",
            lines.join("\n")
        )
    }
}

fn ended_child(told: &SubagentRecord) -> Option<String> {
    match told {
        SubagentRecord::Ended { child, .. } => Some(child.clone()),
        SubagentRecord::Begun(_) | SubagentRecord::Spawned(_) => None,
    }
}

fn prompt_line(child: &LiveSubagent) -> String {
    let words = child.task.split_whitespace().collect::<Vec<_>>().join(" ");
    let task: String = words.chars().take(TASK_CHARS).collect();
    let more = if task.len() < words.len() { "..." } else { "" };
    format!("- {} ({}): {task}{more}", child.id, child.state.in_words())
}

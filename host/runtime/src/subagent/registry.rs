//! Which sub-agents of a session live, as its records tell: pinned state that no compaction folds.

use std::collections::HashSet;
use std::path::PathBuf;

use ctxhost_engine_api::ContextMode;
use serde::{Deserialize, Serialize};

use super::run::Running;
use ctxhost_models::ModelName;
use ctxhost_session::{Record, RecordBody, Session};

/// The custom type of the records.
const CUSTOM_TYPE: &str = "ctxhost.subagent";

/// Characters of a task in the note to the parent's model, which has written it itself.
const TASK_CHARS: usize = 200;

/// What a record tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Told {
    /// In a child: this is one, and what it may do.
    Begun(Birth),
    /// In a parent: a child was started.
    Spawned(Spawned),
    /// In a parent: a child ended.
    Ended { child: String, reason: String },
}

/// What a child was born with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Birth {
    /// 1 for the child of an agent that is none itself.
    pub(super) depth: u32,
    /// The model that answers first.
    pub(super) model: Option<ModelName>,
    /// The share of the budget that it may use.
    pub(super) budget_share: f64,
}

impl Default for Birth {
    fn default() -> Self {
        Birth { depth: 0, model: None, budget_share: 1.0 }
    }
}

/// A child that was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spawned {
    pub(super) child: String,
    pub(super) task: String,
    pub(super) context: ContextMode,
    pub(super) file: Option<PathBuf>,
}

impl Told {
    /// As a record.
    pub(super) fn body(&self) -> RecordBody {
        RecordBody::custom(CUSTOM_TYPE, &serde_json::to_value(self).unwrap_or_default())
    }
}

/// Whether a record tells of sub-agents. A fork has none of its parent's.
pub(super) fn is_told(record: &Record) -> bool {
    record.custom_data(CUSTOM_TYPE).is_some()
}

/// A sub-agent that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveChild {
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
    pub state: ChildState,
}

/// Whether a sub-agent works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It does, in this process.
    Running,
    /// The process in which it did has ended.
    Interrupted,
}

impl ChildState {
    fn in_words(self) -> &'static str {
        match self {
            ChildState::Running => "at work",
            ChildState::Interrupted => "interrupted when the process ended",
        }
    }
}

/// The sub-agents of one session, and whether it is one itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    birth: Birth,
    live: Vec<LiveChild>,
}

impl Children {
    /// As the records of a session tell, on whatever branch: an undo takes back no sub-agent.
    pub(crate) fn of(session: &Session) -> Children {
        let told = session.own_records(CUSTOM_TYPE).filter_map(|(record, data)| {
            Some((record.timestamp_ms(), serde_json::from_value(data).ok()?))
        });
        let told: Vec<(i64, Told)> = told.collect();
        let ended: HashSet<String> = told.iter().filter_map(|(_, told)| ended(told)).collect();
        let mut children = Children::default();
        for (spawned_ms, told) in told {
            match told {
                Told::Begun(birth) => children.birth = birth,
                Told::Spawned(spawned) if !ended.contains(&spawned.child) => {
                    children.add(spawned, spawned_ms, ChildState::Interrupted);
                }
                Told::Spawned(_) | Told::Ended { .. } => {}
            }
        }
        children
    }

    /// The same after other machines have added to the session: what works here still does.
    pub(crate) fn renewed(&self, session: &Session) -> Children {
        let mut children = Children::of(session);
        for child in &mut children.live {
            let known = self.live.iter().find(|known| known.id == child.id);
            child.state = known.map_or(child.state, |known| known.state);
        }
        children
    }

    /// One more; the same one never twice.
    pub(super) fn add(&mut self, spawned: Spawned, spawned_ms: i64, state: ChildState) {
        if self.live.iter().any(|live| live.id == spawned.child) {
            return;
        }
        let Spawned { child: id, task, context, file } = spawned;
        self.live.push(LiveChild { id, task, context, file, spawned_ms, state });
    }

    /// One less.
    pub(super) fn remove(&mut self, child: &str) {
        self.live.retain(|live| live.id != child);
    }

    /// All that have no recorded end.
    pub(super) fn recorded(&self) -> &[LiveChild] {
        &self.live
    }

    /// Those that live now, in the order in which they were started.
    pub(super) fn live<'a>(&'a self, running: &Running) -> impl Iterator<Item = &'a LiveChild> {
        self.live.iter().filter(|child| !running.has_ended(&child.id))
    }

    /// 0 for an agent, 1 for its sub-agents, and so on.
    pub(crate) fn depth(&self) -> u32 {
        self.birth.depth
    }

    /// The model that answers first, where this session has one of its own.
    pub(crate) fn model(&self) -> Option<&ModelName> {
        self.birth.model.as_ref()
    }

    /// The share of the budget that this session may use.
    pub(crate) fn budget_share(&self) -> f64 {
        self.birth.budget_share
    }

    /// What the parent's model is told of them before every request; empty where none lives.
    pub(crate) fn note(&self, running: &Running) -> String {
        let lines: Vec<String> = self.live(running).map(line).collect();
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

fn ended(told: &Told) -> Option<String> {
    match told {
        Told::Ended { child, .. } => Some(child.clone()),
        Told::Begun(_) | Told::Spawned(_) => None,
    }
}

fn line(child: &LiveChild) -> String {
    let words = child.task.split_whitespace().collect::<Vec<_>>().join(" ");
    let task: String = words.chars().take(TASK_CHARS).collect();
    let more = if task.len() < words.len() { "..." } else { "" };
    format!("- {} ({}): {task}{more}", child.id, child.state.in_words())
}

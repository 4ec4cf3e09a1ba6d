//! Tracks the running sub-agents of sessions, so that a compaction can list them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::{SessionRef, SubagentSpawnRequest};

/// The sub-agents of all sessions, by the session id of the child.
#[derive(Debug, Default)]
pub struct SubAgents {
    alive: Mutex<BTreeMap<String, SubAgent>>,
}

#[derive(Debug)]
struct SubAgent {
    parent_id: String,
    key: String,
    /// `None` without a time to live.
    expires_ms: Option<i64>,
}

impl SubAgents {
    /// Adds a sub-agent that is about to start.
    pub fn add(&self, request: &SubagentSpawnRequest, now_ms: i64) {
        let ttl_ms = i64::try_from(request.ttl_ms).unwrap_or(i64::MAX);
        let agent = SubAgent {
            parent_id: request.parent.id.clone(),
            key: request.child.key.clone(),
            expires_ms: (ttl_ms > 0).then(|| now_ms.saturating_add(ttl_ms)),
        };
        self.alive().insert(request.child.id.clone(), agent);
    }

    /// Removes a sub-agent that ended or failed to start.
    pub fn remove(&self, child_id: &str) {
        self.alive().remove(child_id);
    }

    /// The running sub-agents of a session, one line each.
    pub fn running_lines(&self, parent: &SessionRef, now_ms: i64) -> Vec<String> {
        let alive = self.alive();
        // A child that exceeded its time to live may have ended without a notification.
        let ours = alive.iter().filter(|(_, agent)| {
            agent.parent_id == parent.id && agent.expires_ms.is_none_or(|at| now_ms < at)
        });
        ours.map(|(id, agent)| format!("{} (session {id})", agent.key).trim().to_owned()).collect()
    }

    /// Removes all sub-agents.
    pub fn clear(&self) {
        self.alive().clear();
    }

    fn alive(&self) -> MutexGuard<'_, BTreeMap<String, SubAgent>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionRef {
        SessionRef { id: id.into(), key: format!("agent:{id}") }
    }

    #[test]
    fn lists_what_began_and_did_not_end() {
        let agents = SubAgents::default();
        for (child, ttl_ms) in [("a", 0), ("b", 1_000), ("c", 0)] {
            let parent = session("parent");
            let request = SubagentSpawnRequest {
                parent,
                child: session(child),
                ttl_ms,
                ..Default::default()
            };
            agents.add(&request, 0);
        }
        agents.remove("c");
        agents.remove("unknown");
        let of = |id, now_ms| agents.running_lines(&session(id), now_ms);
        assert_eq!(of("parent", 999), ["agent:a (session a)", "agent:b (session b)"]);
        assert_eq!(of("parent", 1_000).len(), 1);
        assert!(of("other", 0).is_empty());
    }
}

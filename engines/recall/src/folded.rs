//! Entries that compactions removed from the transcript, for the tools.
//!
//! The host is asked for them when the first tool is called after a compaction, so a session that
//! never searches pays nothing.

use std::collections::HashSet;

use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::{EntryKind, Flags, HistoryEntry, Role, Transcript};

use crate::session::RecallSession;

/// The folded entries of a session, indexed.
#[derive(Debug)]
pub(crate) struct FoldedEntries {
    pub(crate) transcript: Transcript,
    pub(crate) session: RecallSession,
}

impl FoldedEntries {
    /// Indexes the entries of a history that are not in the transcript.
    pub(crate) fn new(transcript: &Transcript, history: Vec<HistoryEntry>) -> FoldedEntries {
        let live: HashSet<&str> = transcript.iter().map(|entry| entry.id()).collect();
        let mut log = TranscriptLog::new(0);
        for entry in history.into_iter().filter(|entry| !live.contains(entry.id.as_str())) {
            log.append(NewEntry {
                role: role_named(&entry.role),
                id: entry.id,
                parent_id: String::new(),
                timestamp_ms: entry.timestamp_ms,
                kind: EntryKind::Message,
                flags: Flags::default(),
                tokens: entry.tokens,
                text: entry.text,
                raw: String::new(),
                calls: Vec::new(),
                answers: None,
            });
        }
        let transcript = log.snapshot();
        let mut session = RecallSession::default();
        session.index_texts(&transcript);
        FoldedEntries { transcript, session }
    }
}

fn role_named(name: &str) -> Role {
    let roles = [Role::System, Role::User, Role::Assistant, Role::Tool];
    // Only the weight of a hit and its label depend on it.
    roles.into_iter().find(|role| role.name() == name).unwrap_or(Role::Assistant)
}

//! Entries that compactions removed from the transcript, for the tools.
//!
//! The host is asked for them when the first tool is called after a compaction, so a session that
//! never searches pays nothing.

use std::collections::HashSet;

use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::{
    EntryKind, Flags, HistoryEntry, HistoryRequest, Host, Result, Role, SessionRef, Transcript,
};

use crate::session::RecallSession;

/// Entries per page.
const PAGE_ENTRIES: u64 = 1_000;
/// Maximum pages.
// Far more than a session has; a host that never ends is not read for ever.
const MAX_PAGES: usize = 1_000;

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

/// Reads the whole history of a session.
pub(crate) async fn read_history(host: &Host, session: &SessionRef) -> Result<Vec<HistoryEntry>> {
    let mut history: Vec<HistoryEntry> = Vec::new();
    let mut known: HashSet<String> = HashSet::new();
    for _ in 0..MAX_PAGES {
        let after_id = history.last().map_or(String::new(), |entry| entry.id.clone());
        let request = HistoryRequest { session: session.clone(), after_id, limit: PAGE_ENTRIES };
        let page = host.history(request).await?;
        let before = history.len();
        history.extend(page.entries.into_iter().filter(|entry| known.insert(entry.id.clone())));
        // A page without a new entry would be answered again and again.
        if !page.more || history.len() == before {
            break;
        }
    }
    Ok(history)
}

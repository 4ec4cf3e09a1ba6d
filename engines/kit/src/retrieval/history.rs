//! Entries that compactions removed from the transcript, from the host's history.

use std::collections::HashSet;

use ctxhost_engine_api::{HistoryEntry, HistoryRequest, Host, Result, SessionRef};

/// Entries per page.
const PAGE_ENTRIES: u64 = 1_000;
/// Maximum pages.
// Far more than a session has; a host that never ends is not read for ever.
const MAX_PAGES: usize = 1_000;

/// Reads the wanted entries of a session's whole history. Where the host fails, those before the failure are
/// returned with it.
pub async fn read_history(
    host: &Host,
    session: &SessionRef,
    is_wanted: impl Fn(&HistoryEntry) -> bool,
) -> (Vec<HistoryEntry>, Result<()>) {
    let mut found = Vec::new();
    let mut known: HashSet<String> = HashSet::new();
    let mut after_id = String::new();
    for _ in 0..MAX_PAGES {
        let request = HistoryRequest {
            session: session.clone(),
            after_id: after_id.clone(),
            limit: PAGE_ENTRIES,
        };
        let page = match host.history(request).await {
            Ok(page) => page,
            Err(error) => return (found, Err(error)),
        };
        let before = known.len();
        for entry in page.entries {
            if known.insert(entry.id.clone()) {
                after_id.clone_from(&entry.id);
                found.extend(Some(entry).filter(|entry| is_wanted(entry)));
            }
        }
        // A page without a new entry would be answered again and again.
        if !page.more || known.len() == before {
            break;
        }
    }
    (found, Ok(()))
}

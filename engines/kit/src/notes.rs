//! Running notes: updated as a conversation grows, so that a compaction has its summary ready.

use std::ops::Range;

use ctxhost_engine_api::{EngineError, Host, LogLevel, SessionRef, Transcript};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::session_map::SessionMap;
use crate::store::session_key;

/// Key prefix of the notes in the engine's store.
const KEY_PREFIX: &str = "notes/";

/// The notes of all sessions; does nothing if they are disabled.
#[derive(Debug, Default)]
pub struct RunningNotes<T> {
    is_enabled: bool,
    sessions: SessionMap<NotesRecord<T>>,
}

impl<T: Clone + Default + Serialize + DeserializeOwned> RunningNotes<T> {
    /// Creates an empty collection.
    pub fn new(is_enabled: bool) -> Self {
        RunningNotes { is_enabled, sessions: SessionMap::default() }
    }

    /// Loads the stored notes of a session. Unreadable notes are rebuilt from the transcript.
    pub async fn load(&self, host: &Host, session: &SessionRef) {
        if !self.is_enabled {
            return;
        }
        let stored = host.kv_get(&session_key(KEY_PREFIX, session)).await;
        let stored = stored.inspect_err(|error| warn(host, "read", error)).ok().flatten();
        if let Some(notes) = stored.and_then(|stored| serde_json::from_str(&stored).ok()) {
            self.sessions.with_session(session, |before| *before = notes);
        }
    }

    /// Adds the new entries to the notes and returns their number. Another branch starts with empty
    /// notes.
    pub fn follow(
        &self,
        transcript: &Transcript,
        session: &SessionRef,
        append: impl FnOnce(&mut T, Range<u64>),
    ) -> u64 {
        if !self.is_enabled {
            return 0;
        }
        self.sessions.with_session(session, |notes| notes.follow(transcript, append))
    }

    /// The notes of a session if they cover the entries up to `end`.
    pub fn notes_covering(
        &self,
        transcript: &Transcript,
        session: &SessionRef,
        end: u64,
    ) -> Option<T> {
        self.sessions.with_session(session, |notes| {
            let covered = notes.covered(transcript).filter(|_| self.is_enabled);
            covered.filter(|covered| *covered >= end).map(|_| notes.content.clone())
        })
    }

    /// Stores the notes of a session.
    pub async fn store(&self, host: &Host, session: &SessionRef) {
        if !self.is_enabled {
            return;
        }
        let notes = self.sessions.with_session(session, |notes| serde_json::to_string(notes));
        let notes = notes.unwrap_or_default();
        if let Err(error) = host.kv_put(&session_key(KEY_PREFIX, session), &notes).await {
            warn(host, "store", &error);
        }
    }

    /// Drops the notes in memory; stored notes stay.
    pub fn clear(&self) {
        self.sessions.clear();
    }
}

/// The notes of one session, as stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct NotesRecord<T> {
    /// Id of the newest covered entry.
    through_id: String,
    #[serde(rename = "told")]
    content: T,
}

impl<T: Default> NotesRecord<T> {
    fn follow(&mut self, transcript: &Transcript, append: impl FnOnce(&mut T, Range<u64>)) -> u64 {
        // Another branch or an edited history: notes of entries that are gone would be wrong.
        let from = self.covered(transcript).unwrap_or_else(|| {
            *self = NotesRecord::default();
            0
        });
        let len = transcript.len() as u64;
        append(&mut self.content, from..len);
        self.through_id = transcript.last().map_or(String::new(), |entry| entry.id().to_owned());
        len - from
    }

    /// Number of covered entries; `None` if the transcript does not continue the covered one.
    fn covered(&self, transcript: &Transcript) -> Option<u64> {
        // By id: positions change with each compaction. The newest entries are the likeliest match.
        let newest = transcript.iter().rev().find(|entry| entry.id() == self.through_id);
        newest.map(|entry| entry.seq() + 1)
    }
}

/// A warning only: lost notes are rebuilt from the transcript.
fn warn(host: &Host, action: &str, error: &EngineError) {
    host.log(LogLevel::Warn, &format!("could not {action} the running notes: {error}"));
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};

    use super::*;

    type Counted = RunningNotes<Vec<String>>;

    fn session() -> SessionRef {
        SessionRef { id: "s".into(), ..SessionRef::default() }
    }

    fn follow(notes: &Counted, talk: &TranscriptBuilder) -> u64 {
        let transcript = talk.transcript();
        notes.follow(&transcript, &session(), |content, range| {
            content.extend(transcript.range(range).map(|entry| entry.text().to_owned()));
        })
    }

    fn until(notes: &Counted, talk: &TranscriptBuilder) -> Option<Vec<String>> {
        notes.notes_covering(&talk.transcript(), &session(), talk.len())
    }

    #[test]
    fn each_entry_is_taken_in_once() {
        let mut talk = TranscriptBuilder::new();
        let notes = Counted::new(true);
        talk.user("first");
        assert_eq!(follow(&notes, &talk), 1);
        talk.assistant("done").user("second");
        assert_eq!((follow(&notes, &talk), follow(&notes, &talk)), (2, 0));
        assert_eq!(until(&notes, &talk).unwrap(), ["first", "done", "second"]);
        talk.assistant("not in the notes");
        assert_eq!(until(&notes, &talk), None);
        let unwanted = Counted::new(false);
        assert_eq!((follow(&unwanted, &talk), until(&unwanted, &talk)), (0, None));
    }

    #[test]
    fn notes_survive_a_restart_and_another_branch_starts_over() {
        let mut talk = TranscriptBuilder::new();
        let notes = Counted::new(true);
        talk.user("go").assistant("done");
        follow(&notes, &talk);
        let host = ScriptedHost::new().handle();
        block_on(notes.store(&host, &session()));
        let again = Counted::new(true);
        block_on(again.load(&host, &session()));
        assert_eq!((follow(&again, &talk), until(&again, &talk)), (0, until(&notes, &talk)));
        let mut other = TranscriptBuilder::with_epoch(7);
        other.user("go on");
        assert_eq!(
            (follow(&again, &other), until(&again, &other)),
            (1, Some(vec!["go on".into()]))
        );
    }

    #[test]
    fn what_does_not_parse_is_no_notes() {
        let host = ScriptedHost::new().handle();
        block_on(host.kv_put("notes/s", "nonsense")).unwrap();
        let mut talk = TranscriptBuilder::new();
        talk.user("go");
        let notes = Counted::new(true);
        block_on(notes.load(&host, &session()));
        assert_eq!(follow(&notes, &talk), 1);
    }
}

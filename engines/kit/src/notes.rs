//! Running notes: kept as a conversation grows, so that a compaction finds its summary written.

use std::ops::Range;

use ctxhost_engine_api::{EngineError, Host, LogLevel, SessionRef, Transcript};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store::session_key;

/// Where the notes of a session stand in the engine's store.
const KEY_PREFIX: &str = "notes/";

/// The notes of one session and how far they go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningNotes<T> {
    /// The id of the newest entry in them.
    through_id: String,
    told: T,
}

impl<T: Default + Serialize + DeserializeOwned> RunningNotes<T> {
    /// Takes in what is new, once, and answers how many entries that were. Another branch of the
    /// session begins anew.
    pub fn follow(
        &mut self,
        transcript: &Transcript,
        tell: impl FnOnce(&mut T, Range<u64>),
    ) -> u64 {
        let from = self.covered(transcript).unwrap_or_else(|| {
            *self = RunningNotes::default();
            0
        });
        let len = transcript.len() as u64;
        tell(&mut self.told, from..len);
        self.through_id = transcript.last().map_or(String::new(), |entry| entry.id().to_owned());
        len - from
    }

    /// What the notes say, where they go at least as far as `end`.
    pub fn until(&self, transcript: &Transcript, end: u64) -> Option<&T> {
        self.covered(transcript).filter(|covered| *covered >= end).map(|_| &self.told)
    }

    /// The notes as they are stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The notes that an earlier process left of a session. What does not parse is no notes: they
    /// are written anew from the transcript.
    pub async fn stored(host: &Host, session: &SessionRef) -> Option<Self> {
        let stored = host.kv_get(&session_key(KEY_PREFIX, session)).await;
        let stored = stored.inspect_err(|error| warn(host, "read", error)).ok().flatten()?;
        serde_json::from_str(&stored).ok()
    }

    /// How many entries are in the notes; `None` where the transcript goes on from another one.
    fn covered(&self, transcript: &Transcript) -> Option<u64> {
        let newest = transcript.iter().rev().find(|entry| entry.id() == self.through_id);
        newest.map(|entry| entry.seq() + 1)
    }
}

/// Stores notes as [`RunningNotes::to_json`] writes them.
pub async fn store(host: &Host, session: &SessionRef, notes: &str) {
    if let Err(error) = host.kv_put(&session_key(KEY_PREFIX, session), notes).await {
        warn(host, "store", &error);
    }
}

/// Notes that are lost are written anew from the transcript: a warning, not a failure.
fn warn(host: &Host, action: &str, error: &EngineError) {
    host.log(LogLevel::Warn, &format!("could not {action} the running notes: {error}"));
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::{Conversation, ScriptedHost, block_on};

    use super::*;

    type Counted = RunningNotes<Vec<String>>;

    fn follow(notes: &mut Counted, talk: &Conversation) -> u64 {
        let transcript = talk.transcript();
        notes.follow(&transcript, |told, range| {
            told.extend(transcript.range(range).map(|entry| entry.text().to_owned()));
        })
    }

    #[test]
    fn each_entry_is_taken_in_once() {
        let mut talk = Conversation::new();
        let mut notes = Counted::default();
        talk.user("first");
        assert_eq!(follow(&mut notes, &talk), 1);
        talk.assistant("done").user("second");
        assert_eq!((follow(&mut notes, &talk), follow(&mut notes, &talk)), (2, 0));
        let told = vec!["first".to_owned(), "done".into(), "second".into()];
        assert_eq!(notes.until(&talk.transcript(), 3), Some(&told));
        talk.assistant("not in the notes");
        assert_eq!(notes.until(&talk.transcript(), 4), None);
    }

    #[test]
    fn notes_survive_a_restart_and_another_branch_begins_anew() {
        let mut talk = Conversation::new();
        let mut notes = Counted::default();
        talk.user("go").assistant("done");
        follow(&mut notes, &talk);
        let host = ScriptedHost::new().handle();
        let session = SessionRef { id: "s".into(), ..SessionRef::default() };
        assert_eq!(block_on(Counted::stored(&host, &session)), None);
        block_on(store(&host, &session, &notes.to_json()));
        let mut again = block_on(Counted::stored(&host, &session)).unwrap();
        assert_eq!((follow(&mut again, &talk), &again), (0, &notes));
        let mut other = Conversation::of_epoch(7);
        other.user("go on");
        assert_eq!(follow(&mut again, &other), 1);
        assert_eq!(again.until(&other.transcript(), 1), Some(&vec!["go on".to_owned()]));
        block_on(store(&host, &session, "nonsense"));
        assert_eq!(block_on(Counted::stored(&host, &session)), None);
    }
}

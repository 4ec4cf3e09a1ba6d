//! How far an engine has read a session, so that it processes each entry once.

use std::ops::Range;

use ctxhost_engine_api::Transcript;

/// A cursor in the transcript of one session.
#[derive(Clone, Debug, Default)]
pub struct TranscriptCursor {
    epoch: u64,
    len: u64,
    last_id: String,
}

impl TranscriptCursor {
    /// Returns the unread positions and moves the cursor to the end.
    ///
    /// The range starts at 0 if `transcript` does not continue the one that was read, after a
    /// compaction or on another branch. State by position is then invalid.
    pub fn advance(&mut self, transcript: &Transcript) -> Range<u64> {
        let from = if self.continues_in(transcript) { self.len } else { 0 };
        self.epoch = transcript.epoch();
        self.len = transcript.len() as u64;
        self.last_id = transcript.last().map_or(String::new(), |entry| entry.id().to_owned());
        from..self.len
    }

    fn continues_in(&self, transcript: &Transcript) -> bool {
        let last = self.len.checked_sub(1).and_then(|seq| transcript.get(seq));
        transcript.epoch() == self.epoch && last.is_some_and(|entry| entry.id() == self.last_id)
    }
}

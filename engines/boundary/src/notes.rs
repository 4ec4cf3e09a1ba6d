//! Running notes: what a conversation said, entry by entry, without a model.
//!
//! They are kept as the conversation grows, so that a compaction finds its summary written.

use std::ops::Range;

use ctxhost_engine_api::serde_json;
use ctxhost_engine_api::{Entry, Flags, Kind, Role, SessionRef, Transcript};
use ctxhost_engine_kit::files::FileLedger;
use ctxhost_engine_kit::redact::redact;
use ctxhost_engine_kit::summary::{Speaker, extract, passages, unwrap};
use ctxhost_engine_kit::text::{clip, one_line};
use serde::{Deserialize, Serialize};

use crate::layout;
use crate::sections::Sections;

/// One line, in weighted characters.
const LINE_CHARS: u64 = 240;
/// The task and the work at hand, in weighted characters: they must be understood alone.
const LONG_LINE_CHARS: u64 = 600;

/// The notes of one session and how far they go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    /// The id of the newest entry in them.
    through_id: String,
    sections: Sections,
}

impl Notes {
    /// Where the notes of a session are stored.
    pub(crate) fn key(session: &SessionRef) -> String {
        format!("notes/{}", session.id)
    }

    /// Reads stored notes; what does not parse is no notes.
    pub(crate) fn parse(stored: &str) -> Option<Notes> {
        serde_json::from_str(stored).ok()
    }

    /// The notes as they are stored.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Takes in what is new, once, and answers how many entries that were. Another branch of the
    /// session begins anew.
    pub(crate) fn follow(&mut self, transcript: &Transcript) -> u64 {
        let from = match self.covered(transcript) {
            Some(covered) => covered,
            None => {
                *self = Notes::default();
                0
            }
        };
        let len = transcript.len() as u64;
        tell(&mut self.sections, transcript, from..len);
        self.through_id = transcript.last().map_or(String::new(), |entry| entry.id().to_owned());
        len - from
    }

    /// What the notes say, where they go at least as far as `end`.
    pub(crate) fn until(&self, transcript: &Transcript, end: u64) -> Option<&Sections> {
        self.covered(transcript).filter(|covered| *covered >= end).map(|_| &self.sections)
    }

    /// How many entries are in the notes; `None` where the transcript goes on from another one.
    fn covered(&self, transcript: &Transcript) -> Option<u64> {
        let newest = transcript.iter().rev().find(|entry| entry.id() == self.through_id);
        newest.map(|entry| entry.seq() + 1)
    }
}

/// The notes of one stretch alone, with what earlier summaries in it say.
pub(crate) fn of(transcript: &Transcript, range: Range<u64>) -> Sections {
    let mut sections = Sections::default();
    tell(&mut sections, transcript, range);
    sections
}

/// What earlier compactions left in a stretch, as they wrote it.
pub(crate) fn carried(transcript: &Transcript, range: Range<u64>) -> String {
    let summaries = transcript.range(range).filter(is_summary);
    let texts: Vec<String> =
        summaries.map(|entry| redact(unwrap(entry.text())).into_owned()).collect();
    texts.join("\n\n")
}

fn is_summary(entry: &Entry<'_>) -> bool {
    entry.kind() == Kind::CompactionSummary && !layout::is_aside(entry.text())
}

fn tell(sections: &mut Sections, transcript: &Transcript, range: Range<u64>) {
    for entry in transcript.range(range.clone()).filter(is_summary) {
        sections.append(Sections::parse(&redact(unwrap(entry.text()))));
    }
    let ranges = [range.clone()];
    let passages = passages(transcript, &ranges);
    for passage in &passages {
        match passage.speaker {
            Speaker::User => said(sections, &passage.text),
            Speaker::Assistant => answered(sections, &passage.text, passage.calls_tools),
            Speaker::Tool => {}
        }
    }
    let five = extract(&passages);
    sections.append(Sections {
        request: five.constraints,
        concepts: five.identifiers,
        files: files(transcript, &range),
        errors: errors(transcript, range),
        solutions: five.decisions,
        pending: five.todos,
        ..Sections::default()
    });
}

fn said(sections: &mut Sections, text: &str) {
    let line = one_line(text);
    if line.is_empty() {
        return;
    }
    let ask = clip(&line, LONG_LINE_CHARS).into_owned();
    let is_first = sections.request.is_empty();
    sections.append(Sections {
        request: if is_first { vec![ask.clone()] } else { Vec::new() },
        messages: vec![clip(&line, LINE_CHARS).into_owned()],
        next: vec![ask],
        ..Sections::default()
    });
}

/// An answer without calls is final: nothing waits any more.
fn answered(sections: &mut Sections, text: &str, calls_tools: bool) {
    let line = one_line(text);
    if line.is_empty() {
        return;
    }
    if !calls_tools {
        sections.next.clear();
    }
    sections.current = vec![clip(&line, LONG_LINE_CHARS).into_owned()];
}

fn files(transcript: &Transcript, range: &Range<u64>) -> Vec<String> {
    let ledger = FileLedger::of(transcript, range.clone());
    let read = ledger.read().into_iter().map(|name| format!("read {name}"));
    let changed = ledger.modified().into_iter().map(|name| format!("changed {name}"));
    read.chain(changed).collect()
}

fn errors(transcript: &Transcript, range: Range<u64>) -> Vec<String> {
    let failed = transcript
        .range(range)
        .filter(|entry| entry.role() == Role::Tool && entry.has(Flags::ERROR));
    let line = |entry: Entry<'_>| {
        let head = clip(entry.text(), 4 * LINE_CHARS);
        let tool = entry.tool_result().map_or(String::new(), |result| result.tool.into_owned());
        clip(&format!("{tool}: {}", one_line(&redact(&head))), LINE_CHARS).into_owned()
    };
    failed.map(line).collect()
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::Conversation;

    use super::*;

    fn talk() -> Conversation {
        let mut talk = Conversation::new();
        talk.user("Fix the login in /srv/app/login.rs. Never touch the schema.");
        talk.calls(&[("1", "read", r#"{"path":"/srv/app/login.rs"}"#)]);
        talk.failure("1", "read", "no such file: token=abcdef123456");
        talk.assistant("I decided to use a session table. Next step: tests.");
        talk.user("And deploy it.");
        talk
    }

    #[test]
    fn the_nine_sections_hold_what_was_said_and_done() {
        let talk = talk();
        let sections = of(&talk.transcript(), 0..talk.len());
        assert_eq!(
            sections.request[0],
            "Fix the login in /srv/app/login.rs. Never touch the schema."
        );
        assert_eq!(sections.request[1], "Never touch the schema.");
        assert_eq!(sections.files, ["read /srv/app/login.rs"]);
        assert_eq!(sections.errors, ["read: no such file: token=[redacted:credential]"]);
        assert_eq!(sections.solutions, ["I decided to use a session table."]);
        assert_eq!(sections.pending, ["Next step: tests."]);
        assert_eq!(
            (sections.messages.len(), sections.next.clone()),
            (2, vec!["And deploy it.".to_owned()])
        );
        assert!(sections.current[0].starts_with("I decided"));
    }

    #[test]
    fn entry_by_entry_is_the_same_as_at_once_for_what_is_at_hand() {
        let mut growing = Conversation::new();
        let mut notes = Notes::default();
        growing.user("first");
        assert_eq!(notes.follow(&growing.transcript()), 1);
        growing.assistant("done").user("second");
        assert_eq!(notes.follow(&growing.transcript()), 2);
        assert_eq!(notes.follow(&growing.transcript()), 0);
        let once = of(&growing.transcript(), 0..3);
        assert_eq!(notes.until(&growing.transcript(), 3), Some(&once));
        growing.assistant("not in the notes");
        assert_eq!(notes.until(&growing.transcript(), 4), None);
    }

    #[test]
    fn notes_survive_a_restart_and_another_branch_begins_anew() {
        let talk = talk();
        let mut notes = Notes::default();
        notes.follow(&talk.transcript());
        let mut again = Notes::parse(&notes.to_json()).unwrap();
        assert_eq!((again.follow(&talk.transcript()), &again), (0, &notes));
        let mut other = Conversation::of_epoch(7);
        other.summary("## Decisions\n- use axum").user("go on");
        again.follow(&other.transcript());
        let sections = again.until(&other.transcript(), 2).unwrap();
        assert_eq!((sections.solutions[0].as_str(), sections.messages.len()), ("use axum", 1));
        assert_eq!(Notes::parse("nonsense"), None);
    }
}

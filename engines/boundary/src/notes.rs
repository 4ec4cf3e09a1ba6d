//! What a conversation said, entry by entry, under the nine headings and without a model.

use std::ops::Range;

use ctxhost_engine_api::{Flags, Role, Transcript};
use ctxhost_engine_kit::calls::failure_line;
use ctxhost_engine_kit::files::FileLedger;
use ctxhost_engine_kit::summary::{Outline, Speaker, earlier, extract, passages};
use ctxhost_engine_kit::text::{clip, one_line};

use crate::layout::is_aside;
use crate::sections::{self, CURRENT, ERRORS, FILES, FORM, MESSAGES, NEXT, REQUEST, of_five};

/// One line, in weighted characters.
const LINE_CHARS: u64 = 240;
/// The task and the work at hand, in weighted characters: they must be understood alone.
const LONG_LINE_CHARS: u64 = 600;

/// The notes of one stretch alone, with what earlier summaries in it say.
pub(crate) fn of(transcript: &Transcript, range: Range<u64>) -> Outline {
    let mut outline = Outline::default();
    tell(&mut outline, transcript, range);
    outline
}

/// What earlier compactions left in a stretch, as they wrote it.
pub(crate) fn carried(transcript: &Transcript, range: Range<u64>) -> Vec<String> {
    earlier(transcript, &[range]).filter(|text| !is_aside(text)).collect()
}

/// Takes a stretch into notes.
pub(crate) fn tell(outline: &mut Outline, transcript: &Transcript, range: Range<u64>) {
    for summary in carried(transcript, range.clone()) {
        FORM.append(outline, &sections::parse(&summary));
    }
    let passages = passages(transcript, std::slice::from_ref(&range));
    for passage in &passages {
        match (passage.speaker, one_line(&passage.text)) {
            (Speaker::Tool, _) => {}
            (_, line) if line.is_empty() => {}
            (Speaker::User, line) => said(outline, &line),
            (Speaker::Assistant, line) => answered(outline, &line, passage.calls_tools),
        }
    }
    let worked = of_five(extract(&passages))
        .with(FILES, FileLedger::of(transcript, range.clone()).lines())
        .with(ERRORS, errors(transcript, range));
    FORM.append(outline, &worked);
}

fn said(outline: &mut Outline, line: &str) {
    let ask = || clip(line, LONG_LINE_CHARS).into_owned();
    let is_task = outline.lines(REQUEST).is_empty();
    let message = Outline::default()
        .with(REQUEST, is_task.then(ask))
        .with(MESSAGES, [clip(line, LINE_CHARS).into_owned()])
        .with(NEXT, [ask()]);
    FORM.append(outline, &message);
}

/// An answer without calls is final: nothing waits any more.
fn answered(outline: &mut Outline, line: &str, calls_tools: bool) {
    if !calls_tools {
        outline.clear(NEXT);
    }
    let answer = clip(line, LONG_LINE_CHARS).into_owned();
    FORM.append(outline, &Outline::default().with(CURRENT, [answer]));
}

fn errors(transcript: &Transcript, range: Range<u64>) -> impl Iterator<Item = String> {
    let failed = transcript
        .range(range)
        .filter(|entry| entry.role() == Role::Tool && entry.has(Flags::ERROR));
    failed.map(|entry| {
        let tool = entry.tool_result().map_or(String::new(), |result| result.tool.into_owned());
        failure_line(&tool, &entry, LINE_CHARS)
    })
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::Conversation;

    use super::*;
    use crate::sections::{PENDING, SOLUTIONS};

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
        let outline = of(&talk.transcript(), 0..talk.len());
        for (heading, lines) in [
            (
                REQUEST,
                &[
                    "Fix the login in /srv/app/login.rs. Never touch the schema.",
                    "Never touch the schema.",
                ][..],
            ),
            (FILES, &["read /srv/app/login.rs"]),
            (ERRORS, &["read: no such file: token=[redacted:credential]"]),
            (SOLUTIONS, &["I decided to use a session table."]),
            (PENDING, &["Next step: tests."]),
            (CURRENT, &["I decided to use a session table. Next step: tests."]),
            (NEXT, &["And deploy it."]),
        ] {
            assert_eq!(outline.lines(heading), lines, "{heading}");
        }
        assert_eq!(outline.lines(MESSAGES).len(), 2);
    }

    #[test]
    fn entry_by_entry_is_the_same_as_at_once_for_what_is_at_hand() {
        let mut talk = Conversation::new();
        talk.user("first").assistant("done").user("second");
        let transcript = talk.transcript();
        let mut growing = Outline::default();
        (0..3).for_each(|at| tell(&mut growing, &transcript, at..at + 1));
        assert_eq!(growing, of(&transcript, 0..3));
    }

    #[test]
    fn earlier_summaries_are_taken_up_and_what_stands_beside_them_is_not() {
        let mut talk = Conversation::of_epoch(7);
        talk.summary("## Decisions\n- use axum");
        talk.summary("I have read the summary and go on from there.").user("go on");
        let transcript = talk.transcript();
        assert_eq!(carried(&transcript, 0..3), ["## Decisions\n- use axum"]);
        let outline = of(&transcript, 0..3);
        assert_eq!(outline.lines(SOLUTIONS), ["use axum"]);
        assert_eq!(outline.lines(MESSAGES), ["go on"]);
    }
}

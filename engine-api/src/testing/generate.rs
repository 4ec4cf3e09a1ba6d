//! Strategies for transcripts and plans that break context engines.
//!
//! A transcript is a list of [`ScriptPart`]s written by a [`Script`], so that a failing case shrinks part
//! by part and the fields of an entry (JSON, text, calls, flags, tokens) are consistent. Most plans are
//! invalid.

mod parts;
mod plans;
mod script;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::transcript::Transcript;
use crate::transcript::log::{NewEntry, TranscriptLog};

pub use parts::{ScriptPart, script_parts, texts};
pub use plans::{plans, plans_for};
pub use script::{Script, rewrite_raw};

/// Maximum number of parts in a generated transcript: enough for every pair of shapes to meet.
const SCENES_MAX: usize = 12;

/// A generated transcript.
#[derive(Clone, Debug, Default)]
pub struct GeneratedTranscript {
    /// Its entries, oldest first.
    pub entries: Vec<NewEntry>,
}

impl GeneratedTranscript {
    /// A log that holds the entries.
    pub fn log(&self) -> TranscriptLog {
        let mut log = TranscriptLog::new(0);
        for entry in &self.entries {
            log.append(entry.clone());
        }
        log
    }

    /// A snapshot of that log.
    pub fn transcript(&self) -> Transcript {
        self.log().snapshot()
    }
}

/// Any conversation: system entries, images, heartbeats, parallel, displaced and lost results, orphans,
/// aborted turns, reused and repeated call ids, empty texts, CJK and emoji, and the empty conversation.
pub fn transcripts() -> impl Strategy<Value = GeneratedTranscript> {
    vec(script_parts(), 0..=SCENES_MAX).prop_map(|scenes| {
        let mut script = Script::new();
        for scene in &scenes {
            script.push_part(scene);
        }
        script.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::links::AnswerLinks;
    use crate::transcript::{Message, tokens};
    use crate::{Flags, Role};

    proptest! {
        #[test]
        fn json_text_calls_and_tokens_agree(generated in transcripts()) {
            for entry in &generated.entries {
                let message = Message::parse(&entry.raw, "not JSON");
                prop_assert_eq!(&message.text(), &entry.text);
                prop_assert_eq!(tokens::message(&message), entry.tokens);
                let result = message.clone().tool_result().map(|head| head.call_id.into_owned());
                prop_assert_eq!(&result, &entry.answers);
                let calls: Vec<_> =
                    message.tool_calls().into_iter().map(|call| call.id.into_owned()).collect();
                prop_assert_eq!(&calls, &entry.calls);
            }
        }

        #[test]
        fn frames_hold_calls_and_results_together(generated in transcripts()) {
            let transcript = generated.transcript();
            for entry in transcript.iter() {
                prop_assert!(entry.frame() <= entry.seq());
                let head = transcript.get(entry.frame()).unwrap();
                prop_assert_eq!(head.frame(), head.seq());
                if entry.role() == Role::Tool && !entry.has(Flags::ORPHAN) {
                    prop_assert!(entry.frame() < entry.seq());
                }
            }
        }

        #[test]
        fn frames_are_runs_that_hold_linked_answers_together(generated in transcripts()) {
            let transcript = generated.transcript();
            let frames: Vec<_> = transcript.iter().map(|entry| entry.frame()).collect();
            prop_assert!(frames.is_sorted(), "{frames:?}");
            let mut newest = std::collections::HashMap::new();
            for entry in transcript.iter().filter(|entry| entry.role() == Role::Assistant) {
                let links = AnswerLinks::parse(entry.raw());
                for id in links.refers_to {
                    prop_assert_eq!(newest.get(&id), Some(&entry.frame()));
                }
                newest.extend(links.ids.into_iter().map(|id| (id, entry.frame())));
            }
        }
    }

    #[test]
    fn a_link_holds_everything_between_two_answers_together() {
        let frames = |script: Script| -> Vec<u64> {
            script.finish().transcript().iter().map(|entry| entry.frame()).collect()
        };
        let open = Script::new().user("task").linked("", &["tool"], &[]).user("hurry");
        assert_eq!(frames(open.clone().linked("", &[], &["tool"])), [0, 1, 1, 1]);
        // Two references to one answer, and one of them again after a call.
        let twice = open.clone().linked("", &[], &["tool"]).calls("", &["a"]).result("a", "1");
        assert_eq!(frames(twice.linked("", &[], &["tool"])), [0, 1, 1, 1, 1, 1, 1]);
        assert_eq!(frames(open.clone().linked("", &[], &["unknown"])), [0, 1, 2, 3]);
        let again = open.linked("", &["tool"], &[]).user("go on").linked("", &[], &["tool"]);
        assert_eq!(frames(again), [0, 1, 2, 3, 3, 3], "the newest answer with an id is meant");
        let call = Script::new().calls("", &["a"]).result("a", "1").linked("", &[], &["a"]);
        assert_eq!(frames(call), [0, 0, 0]);
    }

    #[test]
    fn the_script_sets_every_flag() {
        let generated = Script::new()
            .system("rules")
            .user("task")
            .calls("", &["a", "b"])
            .result("a", "1")
            .user("hurry")
            .result("b", "2")
            .orphan("lost")
            .finish();
        let transcript = generated.transcript();
        let flags: Vec<_> = transcript.iter().map(|entry| entry.flags()).collect();
        assert!(flags[0].contains(Flags::PINNED) && flags[1].contains(Flags::PINNED));
        assert!(!flags[2].contains(Flags::UNANSWERED) && flags[2].contains(Flags::TOOL_CALLS));
        assert!(flags[5].contains(Flags::DISPLACED) && flags[6].contains(Flags::ORPHAN));
        let frames: Vec<_> = transcript.iter().map(|entry| entry.frame()).collect();
        assert_eq!(frames, [0, 1, 2, 2, 2, 2, 6]);
    }
}

//! Tells a real dialogue from heartbeats, and finds user messages that were sent twice.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};
use regex::Regex;
use serde::Deserialize;

use ctxhost_text::injected_text::request_text;
use ctxhost_text::truncate::one_line;

/// A result counts as dialogue if a user message is at most this many messages before it.
const RESULT_REACH: u64 = 20;

/// Texts that agents send when they have nothing to report.
const EMPTY_REPORTS: [&str; 2] = ["HEARTBEAT_OK", "NO_REPLY"];

static ASSENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:(?:ok|okay|yes|yep|yeah|sure|go|go on|go ahead|do it|continue|please|proceed|good|great|nice|perfect|wow|thanks|thank you|fine|cool|alright|next|it works|好|好的|可以|继续|行|谢谢|嗯)[\s,.!。，！]*)+$",
    )
    .ok()
});

/// Whether ranges contain a dialogue: more than heartbeats, thinking and calls without text.
pub fn has_dialogue(transcript: &Transcript, ranges: &[Range<u64>]) -> bool {
    let entries = ranges.iter().flat_map(|range| transcript.range(range.clone()));
    entries.into_iter().any(|entry| is_dialogue(transcript, &entry))
}

fn is_dialogue(transcript: &Transcript, entry: &Entry<'_>) -> bool {
    match entry.role() {
        Role::User => is_visible_user_text(entry),
        Role::Assistant => has_content(entry),
        Role::Tool => {
            let from = entry.seq().saturating_sub(RESULT_REACH);
            transcript.range(from..entry.seq()).any(|before| is_visible_user_text(&before))
        }
        _ => false,
    }
}

/// Whether an entry is a visible entry in the user role: a message, a command, a note or a summary.
fn is_visible_user_text(entry: &Entry<'_>) -> bool {
    let is_shown = !entry.has(Flags::HEARTBEAT) && !is_hidden(entry);
    entry.role() == Role::User && is_shown && has_content(entry)
}

/// Whether an extension inserted the message without displaying it; it is then not part of the
/// dialogue.
pub fn is_hidden(entry: &Entry<'_>) -> bool {
    #[derive(Deserialize)]
    struct CustomDisplay {
        display: Option<bool>,
    }
    let display = || serde_json::from_str::<CustomDisplay>(entry.raw()).ok()?.display;
    entry.kind() == EntryKind::Custom && display() == Some(false)
}

/// Whether a user message asks for something and is more than an assent.
pub fn is_request(entry: &Entry<'_>) -> bool {
    entry.is_user_message() && !is_assent(&request_text(entry))
}

/// Whether a text only agrees to the message before it.
pub fn is_assent(text: &str) -> bool {
    ASSENT.as_ref().is_some_and(|assent| assent.is_match(text.trim()))
}

fn has_content(entry: &Entry<'_>) -> bool {
    let text = entry.text().trim();
    entry.has(Flags::IMAGES) || !(text.is_empty() || EMPTY_REPORTS.contains(&text))
}

/// When a user message counts as a repetition.
#[derive(Clone, Copy, Debug)]
pub struct RepeatRule {
    /// Maximum distance to the first message, in ms, inclusive.
    pub within_ms: u64,
    /// Minimum length in weighted characters; shorter texts are often repeated on purpose.
    pub min_chars: u64,
}

impl Default for RepeatRule {
    /// One minute and 24 characters: a network retry, not a user who asks again.
    fn default() -> Self {
        RepeatRule { within_ms: 60_000, min_chars: 24 }
    }
}

/// Positions of user messages that repeat an earlier one with no answer between them.
pub fn find_repeats(
    transcript: &Transcript,
    ranges: &[Range<u64>],
    rule: RepeatRule,
) -> HashSet<u64> {
    let mut repeats = HashSet::new();
    // User messages since the last answer.
    let mut pending: Vec<Entry<'_>> = Vec::new();
    for entry in ranges.iter().flat_map(|range| transcript.range(range.clone())) {
        if entry.role() == Role::Assistant {
            pending.clear();
        }
        if !entry.is_user_message() || weighted_chars(entry.text()) < rule.min_chars {
            continue;
        }
        // Compare with the newest equal message: three copies within reach of each other are two
        // repeats, although the first and the last may be further apart.
        let earlier = pending.iter().rposition(|before| is_same(before, &entry));
        if earlier
            .and_then(|at| pending.get(at))
            .is_some_and(|before| is_near(before, &entry, rule))
        {
            repeats.insert(entry.seq());
        }
        pending.push(entry);
    }
    repeats
}

fn is_same(before: &Entry<'_>, entry: &Entry<'_>) -> bool {
    // The text does not say whether two images are the same.
    let without_images = !before.has(Flags::IMAGES) && !entry.has(Flags::IMAGES);
    let words = |entry: &Entry<'_>| one_line(entry.text()).to_lowercase();
    without_images && words(before) == words(entry) && before.kind() == EntryKind::Message
}

fn is_near(before: &Entry<'_>, entry: &Entry<'_>, rule: RepeatRule) -> bool {
    let apart_ms = entry.timestamp_ms().abs_diff(before.timestamp_ms());
    // A missing timestamp proves nothing about the distance.
    let is_timed = before.timestamp_ms() > 0 && entry.timestamp_ms() > 0;
    is_timed && apart_ms <= rule.within_ms
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;
    use ctxhost_engine_api::transcript::log::NewEntry;
    use serde_json::{Value, json};

    use super::*;

    fn entry(role: Role, at_ms: i64, text: &str, content: Value) -> NewEntry {
        let word = if role == Role::User { "user" } else { "assistant" };
        NewEntry {
            id: format!("{at_ms}"),
            parent_id: String::new(),
            timestamp_ms: at_ms,
            role,
            kind: EntryKind::Message,
            flags: Flags::default(),
            tokens: 1,
            text: text.into(),
            raw: json!({ "role": word, "content": content }).to_string(),
            calls: Vec::new(),
            answers: None,
        }
    }

    fn user(at_ms: i64, text: &str) -> NewEntry {
        entry(Role::User, at_ms, text, json!(text))
    }

    fn transcript_of(entries: Vec<NewEntry>) -> Transcript {
        let mut talk = TranscriptBuilder::new();
        for entry in entries {
            talk.push(entry);
        }
        talk.transcript()
    }

    #[test]
    fn case_40_a_message_that_came_twice_counts_once() {
        let ask = "please deploy the whole cluster";
        let answer = entry(Role::Assistant, 30_001, "done", json!("done"));
        for (case, entries, expected) in [
            ("within a minute", vec![user(1, ask), user(60_001, ask)], vec![1]),
            ("later", vec![user(1, ask), user(60_002, ask)], vec![]),
            ("too short to tell", vec![user(1, "yes"), user(2, "yes")], vec![]),
            ("an answer between", vec![user(1, ask), answer, user(60_001, ask)], vec![]),
            ("no clock", vec![user(0, ask), user(0, ask)], vec![]),
            ("thrice", vec![user(1, ask), user(50_000, ask), user(100_000, ask)], vec![1, 2]),
        ] {
            let transcript = transcript_of(entries);
            let ranges = [0..transcript.len() as u64];
            let mut found: Vec<u64> =
                find_repeats(&transcript, &ranges, RepeatRule::default()).into_iter().collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn case_41_what_counts_as_a_conversation() {
        let assistant = |text: &str| entry(Role::Assistant, 1, text, json!(text));
        let mut image = user(1, "");
        image.flags = Flags::IMAGES;
        let mut heartbeat = user(1, "are you there?");
        heartbeat.flags = Flags::HEARTBEAT;
        let result = || NewEntry {
            role: Role::Tool,
            answers: Some("1".into()),
            ..entry(Role::Assistant, 1, "output", json!("output"))
        };
        for (case, entries, expected) in [
            ("nothing", vec![], false),
            ("heartbeat", vec![heartbeat, assistant("HEARTBEAT_OK")], false),
            ("no reply", vec![assistant(" NO_REPLY\n")], false),
            ("a call or thinking alone", vec![assistant("")], false),
            ("a call and its result without a user", vec![assistant(""), result()], false),
            ("a result after a user message", vec![user(1, "go"), result()], true),
            ("an image", vec![image], true),
            ("an answer", vec![assistant("It is done.")], true),
        ] {
            let transcript = transcript_of(entries);
            assert_eq!(
                has_dialogue(&transcript, &[0..transcript.len() as u64]),
                expected,
                "{case}"
            );
        }
    }
}

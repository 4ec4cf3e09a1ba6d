//! The extractive summary: the conversation's own sentences under fixed headings that the kit can
//! parse.

use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Transcript};
use ctxhost_engine_kit::antecedent::states_task;
use ctxhost_engine_kit::calls::{open_failures, render_failure_line};
use ctxhost_engine_kit::history_fold::HistoryFold;
use ctxhost_engine_kit::summary::{
    ExcerptRole, SummarySections, earlier_summaries, extract_sections, merge, message_excerpts,
    render_bullets,
};
use ctxhost_text::injected_text::request_text;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{cap_with_marker, clip, one_line, prefix};
use regex::Regex;

/// The headings of every summary. The engine adds the files itself.
pub(crate) const HEADINGS: [&str; 9] = [
    "## Goal",
    "## Progress",
    "### Done",
    "### In Progress",
    "### Blocked",
    "## Key Decisions",
    NEXT_STEPS,
    "## Critical Context",
    "### Exact identifiers",
];
/// Line in place of a task that the prompt has word for word.
const KEPT_TASK: &str = "The first message, word for word in the conversation.";
const NEXT_STEPS: &str = "## Next Steps";
const FILES: &str = "## Relevant Files";

/// Sections that the next summary drops.
// They describe the moment of writing and are outdated one compaction later.
const TRANSIENT: [&str; 2] = ["### In Progress", "### Blocked"];

/// Number of listed failures.
const MAX_FAILURES: usize = 5;
/// Length of a line about current work or a failure, in weighted characters.
const LINE_CHARS: u64 = 240;
/// Weighted characters read of a message.
// Redaction time grows with the length, and only one line is rendered.
const READ_CHARS: u64 = 2_000;
/// Limits of each list of files: a fraction of the summary, and characters.
const FILE_LIST_PART: u64 = 8;
const FILE_LIST_CHARS: u64 = 2_000;

/// Distinguishes decisions from completed work.
static DECIDED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:decid(?:ed|e)|decision|chose|chosen|agreed|settled on|instead of|go(?:ing)? with|use|root cause|turns out|because)\b|决定|选择了|采用|改用|确定|方案|根本原因",
    )
    .ok()
});

/// Writes the notes of the middle in at most `limit_chars` weighted characters.
pub(crate) fn write_notes(
    transcript: &Transcript,
    middle: &HistoryFold,
    limit_chars: u64,
) -> String {
    let excerpts = message_excerpts(transcript, middle.gaps());
    let mut newer = extract_sections(&excerpts);
    let task_entry = first_task(transcript);
    let task = task_entry.and_then(task_of);
    // Another one is a part of the next middle.
    let is_task_kept = task_entry.is_some_and(|entry| {
        let is_replaced = middle.gaps().iter().any(|gap| gap.contains(&entry.seq()));
        entry.has(Flags::PINNED) && !is_replaced
    });
    // "Yes" and "continue" are no goals, and would replace one.
    newer.requests.retain(|request| states_task(request));
    // The goal must not be empty: the newest request is kept elsewhere, but names the task.
    if newer.requests.is_empty() {
        let newest = || transcript.range(0..transcript.len() as u64).rev().find_map(task_of);
        newer.requests.extend(task.clone().or_else(newest));
    }
    let mut sections = match previous_notes(transcript, middle) {
        Some(older) => {
            let mut older = SummarySections::parse(&remove_sections(&older, &TRANSIENT));
            older.requests.retain(|request| request != KEPT_TASK && states_task(request));
            merge(older, newer)
        }
        None => newer,
    };
    let current_work = excerpts.iter().rev().find(|excerpt| {
        excerpt.role == ExcerptRole::Assistant && excerpt.calls_tools && !excerpt.text.is_empty()
    });
    let current_work: Vec<String> =
        current_work.map(|excerpt| line(&excerpt.text)).into_iter().collect();
    let failures = failures(transcript, middle);
    let render = |sections: &SummarySections| {
        insert_files(
            &render_form(task.as_deref(), is_task_kept, sections, &current_work, &failures),
            transcript,
            middle,
            limit_chars,
        )
    };
    // What the empty form takes is not available for lines.
    sections.fit(limit_chars.saturating_sub(weighted_chars(&render(&SummarySections::default()))));
    cap_with_marker(&render(&sections), limit_chars).into_owned()
}

/// The earlier summaries in the middle, oldest first, without envelopes.
pub(crate) fn previous_notes(transcript: &Transcript, middle: &HistoryFold) -> Option<String> {
    let texts: Vec<String> = earlier_summaries(transcript, middle.gaps()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Inserts the files before the next steps.
pub(crate) fn insert_files(
    summary: &str,
    transcript: &Transcript,
    middle: &HistoryFold,
    limit_chars: u64,
) -> String {
    let list_chars = (limit_chars / FILE_LIST_PART).min(FILE_LIST_CHARS);
    let lists = middle.files(transcript).render(usize::try_from(list_chars).unwrap_or(0));
    let lists = if lists.is_empty() { "- None.".into() } else { redact(&lists).into_owned() };
    let section = format!("{FILES}\n{lists}");
    match summary.split_once(NEXT_STEPS) {
        Some((before, after)) => format!("{before}{section}\n\n{NEXT_STEPS}{after}"),
        None => format!("{summary}\n\n{section}"),
    }
}

/// Removes the sections with these headings.
pub(crate) fn remove_sections(summary: &str, headings: &[&str]) -> String {
    let mut is_left_out = false;
    let mut kept = String::new();
    for line in summary.lines() {
        if line.starts_with('#') {
            is_left_out = headings.contains(&line.trim());
        }
        if !is_left_out {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The request that began the session; `None` if it was summarised.
fn first_task(transcript: &Transcript) -> Option<Entry<'_>> {
    let since_summary = |entry: &Entry<'_>| entry.kind() != EntryKind::CompactionSummary;
    transcript.iter().take_while(since_summary).find(|entry| task_of(*entry).is_some())
}

/// The line of a user message that says what to do.
fn task_of(entry: Entry<'_>) -> Option<String> {
    let text = entry.is_user_message().then(|| request_text(&entry))?;
    states_task(&text).then(|| line(&text))
}

fn render_form(
    task: Option<&str>,
    is_task_kept: bool,
    sections: &SummarySections,
    current_work: &[String],
    failures: &[String],
) -> String {
    // Later requests often name only a step of the task.
    let later = sections.requests.iter().map(String::as_str).filter(|ask| Some(*ask) != task);
    let first = if is_task_kept { Some(KEPT_TASK) } else { task };
    let goal: Vec<&str> = first.into_iter().chain(later).collect();
    let is_decision = |line: &&String| DECIDED.as_ref().is_some_and(|words| words.is_match(line));
    let is_past = |line: &&String| !sections.todos.contains(line);
    let (decided, done): (Vec<&String>, Vec<&String>) =
        sections.decisions.iter().filter(is_past).partition(is_decision);
    [
        format!("## Goal\n{}", render_bullets(&goal)),
        format!("## Progress\n### Done\n{}", render_bullets(&done)),
        format!("### In Progress\n{}", render_bullets(current_work)),
        format!("### Blocked\n{}", render_bullets(failures)),
        format!("## Key Decisions\n{}", render_bullets(&decided)),
        format!("{NEXT_STEPS}\n{}", render_bullets(&sections.todos)),
        format!("## Critical Context\n### Rules\n{}", render_bullets(&sections.constraints)),
        format!("### Exact identifiers\n{}", render_bullets(&sections.identifiers)),
    ]
    .join("\n\n")
}

/// The newest open failures.
fn failures(transcript: &Transcript, middle: &HistoryFold) -> Vec<String> {
    let open = open_failures(transcript, middle.gaps());
    let skipped = open.len().saturating_sub(MAX_FAILURES);
    let excerpts = open.iter().skip(skipped);
    excerpts.map(|open| render_failure_line(&open.call, &open.result, LINE_CHARS)).collect()
}

fn line(text: &str) -> String {
    clip(&one_line(&redact(prefix(text, READ_CHARS, 1))), LINE_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn session() -> TranscriptBuilder {
        let mut talk = TranscriptBuilder::new();
        talk.user("Fix the login in /srv/app/login.rs. Never touch the schema.");
        talk.calls(&[("a", "read", r#"{"path":"/srv/app/login.rs"}"#)]).result("a", "read", "x");
        talk.assistant("We go with a session table instead of cookies. Fixed the redirect.");
        talk.calls(&[("b", "bash", r#"{"command":"cargo test"}"#)])
            .failure("b", "bash", "2 failed");
        talk.calls(&[("c", "bash", r#"{"command":"lint"}"#)]).failure(
            "c",
            "bash",
            "password=hunter2hunter2",
        );
        talk.calls(&[("d", "bash", r#"{"command":"cargo test"}"#)]).result("d", "bash", "ok");
        talk.assistant("Next step: write the changelog.").user("Now deploy it to /srv/app/live");
        talk
    }

    fn whole(talk: &TranscriptBuilder) -> HistoryFold {
        HistoryFold::anchored_at_last(&talk.transcript(), vec![0..talk.len()])
    }

    #[test]
    fn the_same_conversation_gives_the_same_form() {
        let talk = session();
        let notes = write_notes(&talk.transcript(), &whole(&talk), 16_000);
        let expected = "\
## Goal
- Fix the login in /srv/app/login.rs. Never touch the schema.
- Now deploy it to /srv/app/live

## Progress
### Done
- Fixed the redirect.

### In Progress
- None.

### Blocked
- bash lint: password=[redacted:credential]

## Key Decisions
- We go with a session table instead of cookies.

## Relevant Files
<read-files>
/srv/app/login.rs
</read-files>

## Next Steps
- Next step: write the changelog.

## Critical Context
### Rules
- Never touch the schema.

### Exact identifiers
- /srv/app/live";
        assert_eq!(notes, expected);
        assert!(HEADINGS.iter().all(|heading| notes.contains(heading)));
    }

    #[test]
    fn a_task_that_stays_is_not_repeated() {
        let talk = session();
        let middle = HistoryFold::anchored_at_last(&talk.transcript(), vec![1..talk.len() - 1]);
        let notes = write_notes(&talk.transcript(), &middle, 4_000);
        assert!(notes.starts_with(&format!("## Goal\n- {KEPT_TASK}\n")), "{notes}");
        assert!(!notes.contains("Fix the login"), "{notes}");
    }

    #[test]
    fn the_goal_is_the_task_also_where_later_requests_name_steps() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Port the billing service to Rust.").assistant("Module m0 is ported.");
        talk.user("Continue with module m1.").assistant("Ported m1.");
        talk.user("Continue with module m2.");
        let middle = HistoryFold::anchored_at_last(&talk.transcript(), vec![1..4]);
        let notes = write_notes(&talk.transcript(), &middle, 16_000);
        assert!(notes.starts_with(&format!("## Goal\n- {KEPT_TASK}\n\n")), "{notes}");
        let middle = HistoryFold::anchored_at_last(&talk.transcript(), vec![0..4]);
        let notes = write_notes(&talk.transcript(), &middle, 16_000);
        assert!(notes.starts_with("## Goal\n- Port the billing service to Rust.\n\n"), "{notes}");
    }

    #[test]
    fn words_that_only_ask_to_go_on_are_no_goal() {
        let mut talk = TranscriptBuilder::new();
        talk.summary("## Goal\n- Port the billing service.\n- yes").user("yes").assistant("Done.");
        talk.user("继续").calls(&[("a", "read", r#"{"path":"a.rs"}"#)]).result("a", "read", "x");
        let middle = HistoryFold::anchored_at_last(&talk.transcript(), vec![0..talk.len()]);
        let notes = write_notes(&talk.transcript(), &middle, 16_000);
        assert!(notes.starts_with("## Goal\n- Port the billing service.\n\n"), "{notes}");
        talk.assistant("Done.").user("Now port the mailer.").assistant("Ported.").user("weiter");
        let notes = write_notes(&talk.transcript(), &whole(&talk), 16_000);
        assert!(notes.starts_with("## Goal\n- Now port the mailer.\n\n"), "{notes}");
    }

    #[test]
    fn the_next_summary_merges_the_last_one_without_transient_sections() {
        let first = session();
        let notes = write_notes(&first.transcript(), &whole(&first), 16_000);
        let mut talk = TranscriptBuilder::with_epoch(1);
        talk.summary(&notes).user("Rename the table").assistant("Renamed the table to sessions.");
        let again = write_notes(&talk.transcript(), &whole(&talk), 16_000);
        for kept in [
            "Fixed the redirect.",
            "Never touch the schema.",
            "/srv/app/login.rs",
            "Renamed the table",
        ] {
            assert!(again.contains(kept), "{kept} in {again}");
        }
        assert!(!again.contains("redacted"), "what was blocked then is history");
        assert!(!again.contains("Now deploy it"), "a newer request replaced it");
        assert_eq!(again.matches("<read-files>").count(), 1);
    }

    #[test]
    fn a_small_room_is_kept_to() {
        let talk = session();
        for limit in [0, 100, 600, 900] {
            let notes = write_notes(&talk.transcript(), &whole(&talk), limit);
            assert!(weighted_chars(&notes) <= limit, "{limit}");
        }
    }

    #[test]
    fn files_are_inserted_before_the_next_steps() {
        let talk = session();
        let add = |summary| insert_files(summary, &talk.transcript(), &whole(&talk), 16_000);
        assert!(
            add("## Goal\n- x\n\n## Next Steps\n- y").contains("</read-files>\n\n## Next Steps")
        );
        assert!(add("free words").ends_with("</read-files>"));
    }
}

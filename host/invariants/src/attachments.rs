//! Leaves out the oldest images and files, where a provider refuses the bytes of a request.

use ctxhost_engine_api::{Entry, Plan, Role, Transcript};

use super::PinnedEntries;
use super::emergency_trim::{has_files, text_to_shorten};

/// The name of this step in notes of a plan.
const LAYER: &str = "attachments";

/// The plan that keeps everything but the older half of the images and files, each of which a notice replaces. `None` if only pinned
/// entries and the newest round have some.
///
/// Bytes say nothing about tokens: with its images gone, the rest of the conversation may fill the window.
pub fn drop_old_attachments(pinned: &PinnedEntries, view: &Transcript) -> Option<Plan> {
    let required = pinned.all_ranges(view);
    let may_go = |entry: &Entry<'_>| {
        matches!(entry.role(), Role::User | Role::Tool)
            && !required.contains(entry.seq())
            && has_files(entry)
    };
    let entries: Vec<Entry<'_>> = view.iter().filter(may_go).collect();
    let mut plan = Plan::default();
    let mut kept_to = 0;
    for entry in entries.iter().take(entries.len().div_ceil(2)) {
        plan.keep(kept_to..entry.seq());
        plan.replace_text(entry.seq(), text_to_shorten(entry, true));
        plan.note(LAYER, "images and files left out");
        kept_to = entry.seq() + 1;
    }
    plan.keep(kept_to..view.len() as u64);
    (kept_to > 0).then_some(plan)
}

/// Whether a message of the user or a result has images or files.
pub fn has_attachments(view: &Transcript) -> bool {
    view.iter().any(|entry| matches!(entry.role(), Role::User | Role::Tool) && has_files(&entry))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::PlanItem;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn texts(talk: &TranscriptBuilder) -> Option<Vec<String>> {
        let view = talk.transcript();
        let plan = drop_old_attachments(&PinnedEntries::from_transcript(&view), &view)?;
        let text = |item: &PlanItem<'_>| item.text().into_owned();
        Some(plan.project(&view).iter().map(text).collect())
    }

    #[test]
    fn the_older_half_goes() {
        let mut talk = TranscriptBuilder::new();
        talk.user("task").image("one").assistant("ok").image("two").assistant("ok").image("three");
        talk.assistant("ok").user("and now?");
        let left_out = |text: &str| format!("{text}\n[ctxhost: images or files left out to fit]");
        let one_and_two = [left_out("one"), "ok".into(), left_out("two"), "ok".into()];
        let texts = texts(&talk).unwrap();
        assert_eq!(texts[1..5], one_and_two);
        assert_eq!(texts[5], "three");
    }

    #[test]
    fn the_newest_message_keeps_its_own() {
        let mut talk = TranscriptBuilder::new();
        talk.user("task").assistant("ok").image("what is this?");
        assert_eq!(texts(&talk), None);
    }
}

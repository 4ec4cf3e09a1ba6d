//! Leaves out images and files, where a provider refuses the bytes of a request.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, Message, Plan, Role, Transcript};

use super::PinnedEntries;
use super::emergency_trim::{has_files, text_to_shorten};

/// The name of this step in notes of a plan.
const LAYER: &str = "attachments";

/// Which images and files go. What the model was not asked about just now goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentCut {
    /// The older half of those outside of pinned entries and the newest round.
    OlderHalf,
    /// All of those.
    Older,
    /// Also those of pinned entries and of the newest round.
    All,
}

impl AttachmentCut {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            AttachmentCut::OlderHalf => "the older half of images and files left out",
            AttachmentCut::Older => "all older images and files left out",
            AttachmentCut::All => "all images and files left out",
        }
    }

    /// The next cut after `previous` one, that leaves out any; `None` if there is none.
    pub fn after(
        previous: Option<AttachmentCut>,
        pinned: &PinnedEntries,
        view: &Transcript,
    ) -> Option<AttachmentCut> {
        let next = match previous {
            None => AttachmentCut::OlderHalf,
            Some(AttachmentCut::OlderHalf) => AttachmentCut::Older,
            Some(AttachmentCut::Older) => AttachmentCut::All,
            Some(AttachmentCut::All) => return None,
        };
        let mut cuts = [next, AttachmentCut::All].into_iter();
        cuts.find(|cut| drop_attachments(pinned, view, *cut).is_some())
    }
}

/// The plan that keeps everything but these images and files, each of which a notice replaces. `None` if there are none.
///
/// Bytes say nothing about tokens: with its images gone, the rest of the conversation may fill the window.
pub fn drop_attachments(
    pinned: &PinnedEntries,
    view: &Transcript,
    cut: AttachmentCut,
) -> Option<Plan> {
    let required = pinned.all_ranges(view);
    let may_go = |entry: &Entry<'_>| {
        (cut == AttachmentCut::All || !required.contains(entry.seq())) && is_attachment(entry)
    };
    let entries: Vec<Entry<'_>> = view.iter().filter(may_go).collect();
    let count = match cut {
        AttachmentCut::OlderHalf => entries.len().div_ceil(2),
        AttachmentCut::Older | AttachmentCut::All => entries.len(),
    };
    let mut plan = Plan::default();
    let mut kept_to = 0;
    for entry in entries.iter().take(count) {
        plan.keep(kept_to..entry.seq());
        plan.replace_text(entry.seq(), text_to_shorten(entry, true));
        plan.note(LAYER, "images and files left out");
        kept_to = entry.seq() + 1;
    }
    plan.keep(kept_to..view.len() as u64);
    (kept_to > 0).then_some(plan)
}

/// Whether any message or result has images or files.
pub fn has_attachments(view: &Transcript) -> bool {
    view.iter().any(|entry| is_attachment(&entry))
}

/// The bytes of the entries without images and files.
pub fn text_bytes(view: &Transcript) -> u64 {
    let texts = view.iter().filter(|entry| !is_attachment(entry));
    texts.map(|entry| entry.raw().len() as u64).sum()
}

/// Whether an entry has images or files that may go.
fn is_attachment(entry: &Entry<'_>) -> bool {
    match entry.role() {
        Role::User | Role::Tool => has_files(entry),
        // Images that the model made. Its other blocks, such as calls of the provider's own tools, belong to its answer.
        Role::Assistant => {
            tokens::may_have_attachments(entry.raw())
                && entry.tool_calls().is_empty()
                && tokens::files_and_images(&Message::parse(entry.raw(), "")) > 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::PlanItem;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn left_out(text: &str) -> String {
        format!("{text}\n[ctxhost: images or files left out to fit]")
    }

    fn texts(talk: &TranscriptBuilder, cut: AttachmentCut) -> Option<Vec<String>> {
        let view = talk.transcript();
        let plan = drop_attachments(&PinnedEntries::from_transcript(&view), &view, cut)?;
        let text = |item: &PlanItem<'_>| item.text().into_owned();
        Some(plan.project(&view).iter().map(text).collect())
    }

    #[test]
    fn the_older_half_goes() {
        let mut talk = TranscriptBuilder::new();
        talk.user("task").image("one").assistant("ok").image("two").assistant("ok").image("three");
        talk.assistant("ok").user("and now?");
        let one_and_two = [left_out("one"), "ok".into(), left_out("two"), "ok".into()];
        let texts = texts(&talk, AttachmentCut::OlderHalf).unwrap();
        assert_eq!(texts[1..5], one_and_two);
        assert_eq!(texts[5], "three");
    }

    #[test]
    fn the_newest_message_loses_its_own_last() {
        let mut talk = TranscriptBuilder::new();
        talk.user("task").image("one").assistant("ok").image("what is this?");
        let older = texts(&talk, AttachmentCut::Older).unwrap();
        assert_eq!(older[1..], [left_out("one"), "ok".into(), "what is this?".into()]);
        let all = texts(&talk, AttachmentCut::All).unwrap();
        assert_eq!(all[1..], [left_out("one"), "ok".into(), left_out("what is this?")]);
    }

    #[test]
    fn each_cut_leaves_out_more() {
        let after = |talk: &TranscriptBuilder, previous| {
            let view = talk.transcript();
            AttachmentCut::after(previous, &PinnedEntries::from_transcript(&view), &view)
        };
        let mut talk = TranscriptBuilder::new();
        talk.user("task").assistant("ok").image("what is this?");
        assert_eq!(after(&talk, None), Some(AttachmentCut::All));
        talk.assistant("ok").user("and now?");
        let cuts = [AttachmentCut::OlderHalf, AttachmentCut::Older, AttachmentCut::All];
        let mut previous = None;
        for cut in cuts {
            previous = after(&talk, previous);
            assert_eq!(previous, Some(cut));
        }
        assert_eq!(after(&talk, previous), None);
    }
}

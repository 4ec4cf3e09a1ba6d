//! Writes the summary of a boundary: from running notes, with a model, or extractively.

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{
    CompactRequest, EngineError, Entry, EntryKind, Flags, Host, Result, Transcript,
};
use ctxhost_engine_kit::chunks::{MessageGroup, message_groups};
use ctxhost_engine_kit::summariser::{
    EXTRACTIVE, WrittenSummary, attempt, failure_note, has_model, request_summary_dropping_oldest,
};
use ctxhost_engine_kit::summary::SummaryOutline;
use ctxhost_text::injected_text::request_text;
use ctxhost_text::redact::redact;

use crate::layout::BoundaryLayout;
use crate::sections::{self, MESSAGES, NEXT, REQUEST, TEMPLATE};
use crate::settings::Settings;
use crate::{notes, prompt};

/// Retries after an answer without all sections.
const SECTION_TRIES: u32 = 1;

/// Lines in place of requests that the prompt has word for word.
const IN_LEDGER: &str = "Word for word in <user-requests>.";
const KEPT_TASK: &str = "The first message, word for word in the conversation.";
const KEPT_REQUEST: &str = "The newest request, word for word in the conversation.";

/// Inputs of one summary.
#[derive(Clone, Copy)]
pub(crate) struct BoundarySummariser<'a> {
    pub(crate) host: &'a Host,
    pub(crate) settings: &'a Settings,
    pub(crate) transcript: &'a Transcript,
    pub(crate) request: &'a CompactRequest,
    pub(crate) layout: &'a BoundaryLayout,
    /// Limit of a summary that no model writes, in weighted characters: its own, and free room.
    pub(crate) section_chars: u64,
}

impl BoundarySummariser<'_> {
    /// Writes the summary: from `running` notes if they fit, else with a model, else extractively.
    pub(crate) async fn summarise(
        &self,
        running: Option<SummaryOutline>,
    ) -> Result<WrittenSummary> {
        // Notes that do not fit are not cut if a model can write a shorter summary.
        let running = running.map(|outline| self.refer_to_requests(outline));
        let limit_chars =
            if has_model(self.host) { self.layout.summary_chars } else { self.section_chars };
        let whole = running.as_ref().map(|outline| TEMPLATE.render(outline));
        if let Some(text) = whole.filter(|text| weighted_chars(text) <= limit_chars) {
            return Ok(WrittenSummary::new(text, "running notes"));
        }
        let mut notes = Vec::new();
        if has_model(self.host) {
            match attempt(self.host, self.with_model()).await? {
                Ok(summary) => return Ok(summary),
                Err(error) => notes.push(failure_note(&error)),
            }
        }
        let extracted = || {
            self.refer_to_requests(notes::notes_from_range(self.transcript, 0..self.layout.tail))
        };
        let outline = running.unwrap_or_else(extracted);
        let text = fit_template(outline, self.section_chars);
        Ok(WrittenSummary { notes, ..WrittenSummary::new(text, EXTRACTIVE) })
    }

    /// Refers to requests that the prompt has word for word: the folded ones in the ledger, the pinned task, and the
    /// newest one, which is kept. Rules that a kept request replaces are dropped.
    fn refer_to_requests(&self, mut outline: SummaryOutline) -> SummaryOutline {
        if self.layout.ledger_limits.request_chars > 0 {
            outline.clear(MESSAGES);
            outline = outline.with_lines(MESSAGES, [IN_LEDGER.to_owned()]);
        }
        self.refer_to_task(&mut outline);
        let later = self.transcript.range(self.layout.tail..self.transcript.len() as u64);
        let later = later.filter(|entry| entry.is_user_message());
        let later = later.map(|entry| redact(&request_text(&entry)).into_owned());
        notes::change_rules_by(&mut outline, &later.collect::<Vec<_>>());
        let newest = self.transcript.newest_user_message();
        let newest = newest.map(|entry| notes::request_line(&request_text(&entry)));
        let is_newest = |line: &String| newest.as_ref() == Some(line);
        let (kept, pending): (Vec<String>, Vec<String>) =
            outline.lines(NEXT).iter().cloned().partition(is_newest);
        outline.clear(NEXT);
        let kept = kept.first().map(|_| KEPT_REQUEST.to_owned());
        outline.with_lines(NEXT, pending.into_iter().chain(kept))
    }

    fn refer_to_task(&self, outline: &mut SummaryOutline) {
        let task = self.transcript.iter().find(Entry::is_user_message);
        // Another one may be folded by a later compaction.
        let task = task.filter(|entry| entry.has(Flags::PINNED));
        let task = task.map(|entry| notes::request_line(&request_text(&entry)));
        let mut stated = outline.lines(REQUEST).to_vec();
        if let Some(first) = stated.first_mut().filter(|first| task.as_ref() == Some(&**first)) {
            KEPT_TASK.clone_into(first);
            outline.clear(REQUEST);
            *outline = std::mem::take(outline).with_lines(REQUEST, stated);
        }
    }

    async fn with_model(&self) -> Result<WrittenSummary> {
        let all = self.summarisable_groups();
        let mut rest = all.as_slice();
        let mut missing = Vec::new();
        for _ in 0..=SECTION_TRIES {
            self.host.progress(self.request.call, 0, "asking for the summary");
            let request = |groups: &[MessageGroup]| {
                let earlier_notes = self.earlier_notes(groups, all.len() - groups.len());
                prompt::summary_request(self, groups, &earlier_notes, &missing)
            };
            let (summary, shown) =
                request_summary_dropping_oldest(self.host, self.request.call, rest, request)
                    .await?;
            // The next try starts with the groups that fitted.
            rest = shown;
            missing = TEMPLATE.missing_headings(&summary.text);
            if missing.is_empty() {
                return Ok(self.complete(summary, all.len() - rest.len()));
            }
        }
        let names = missing.join(", ");
        Err(EngineError::failed(format!("the model's summary lacks its sections: {names}")))
    }

    /// The groups before the tail except earlier summaries. Kept entries among them are included
    /// for context.
    fn summarisable_groups(&self) -> Vec<MessageGroup> {
        let history = 0..self.layout.tail;
        let mut groups = message_groups(self.transcript, std::slice::from_ref(&history));
        // A summary is always alone in its group.
        let kind = |group: &MessageGroup| Some(self.transcript.get(group.range.start)?.kind());
        groups.retain(|group| kind(group) != Some(EntryKind::CompactionSummary));
        groups
    }

    /// History that the prompt does not quote: earlier summaries, and notes of dropped groups.
    fn earlier_notes(&self, shown: &[MessageGroup], dropped: usize) -> String {
        match shown.first().filter(|_| dropped > 0) {
            Some(first) => {
                TEMPLATE.render(&notes::notes_from_range(self.transcript, 0..first.range.start))
            }
            None => notes::earlier_notes(self.transcript, 0..self.layout.tail).join("\n\n"),
        }
    }

    fn complete(&self, mut summary: WrittenSummary, dropped: usize) -> WrittenSummary {
        if weighted_chars(&summary.text) > self.layout.summary_chars {
            // A plain cut would remove the end, which has the current work.
            let outline = sections::parse(&summary.text);
            summary.text = fit_template(outline, self.layout.summary_chars);
        }
        let note =
            || format!("the {dropped} oldest groups did not fit the summariser; their notes did");
        summary.notes.extend((dropped > 0).then(note));
        summary
    }
}

fn fit_template(mut outline: SummaryOutline, limit_chars: u64) -> String {
    TEMPLATE.fit(&mut outline, limit_chars);
    TEMPLATE.render(&outline)
}

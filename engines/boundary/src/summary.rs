//! Writes the summary of a boundary: from running notes, with a model, or extractively.

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{CompactRequest, EngineError, EntryKind, Host, Result, Transcript};
use ctxhost_engine_kit::chunks::{MessageGroup, message_groups};
use ctxhost_engine_kit::summariser::{
    EXTRACTIVE, WrittenSummary, attempt, failure_note, has_model, request_summary_dropping_oldest,
};
use ctxhost_engine_kit::summary::SummaryOutline;

use crate::layout::BoundaryLayout;
use crate::sections::{self, TEMPLATE};
use crate::settings::Settings;
use crate::{notes, prompt};

/// Retries after an answer without all sections.
const SECTION_TRIES: u32 = 1;

/// Inputs of one summary.
#[derive(Clone, Copy)]
pub(crate) struct BoundarySummariser<'a> {
    pub(crate) host: &'a Host,
    pub(crate) settings: &'a Settings,
    pub(crate) transcript: &'a Transcript,
    pub(crate) request: &'a CompactRequest,
    pub(crate) layout: &'a BoundaryLayout,
}

impl BoundarySummariser<'_> {
    /// Writes the summary: from `running` notes if they fit, else with a model, else extractively.
    pub(crate) async fn summarise(
        &self,
        running: Option<SummaryOutline>,
    ) -> Result<WrittenSummary> {
        let whole = running.as_ref().map(|outline| TEMPLATE.render(outline));
        if let Some(text) = whole.filter(|text| weighted_chars(text) <= self.layout.summary_chars) {
            return Ok(WrittenSummary::new(text, "running notes"));
        }
        let mut said = Vec::new();
        if has_model(self.host) {
            match attempt(self.host, self.by_model()).await? {
                Ok(story) => return Ok(story),
                Err(error) => said.push(failure_note(&error)),
            }
        }
        let extracted = || notes::notes_from_range(self.transcript, 0..self.layout.tail);
        let text = self.fitted(running.unwrap_or_else(extracted));
        Ok(WrittenSummary { notes: said, ..WrittenSummary::new(text, EXTRACTIVE) })
    }

    fn fitted(&self, mut outline: SummaryOutline) -> String {
        TEMPLATE.fit(&mut outline, self.layout.summary_chars);
        TEMPLATE.render(&outline)
    }

    async fn by_model(&self) -> Result<WrittenSummary> {
        let all = self.told_groups();
        let mut rest = all.as_slice();
        let mut missing = Vec::new();
        for _ in 0..=SECTION_TRIES {
            self.host.progress(self.request.call, 0, "asking for the summary");
            let request = |groups: &[MessageGroup]| {
                let earlier = self.earlier(groups, all.len() - groups.len());
                prompt::summary_request(self, groups, &earlier, &missing)
            };
            let (story, told) =
                request_summary_dropping_oldest(self.host, self.request.call, rest, request)
                    .await?;
            rest = told;
            missing = TEMPLATE.missing_headings(&story.text);
            if missing.is_empty() {
                return Ok(self.finished(story, all.len() - rest.len()));
            }
        }
        let names = missing.join(", ");
        Err(EngineError::failed(format!("the model's summary lacks its sections: {names}")))
    }

    /// The groups before the tail except earlier summaries. Kept entries among them are included
    /// for context.
    fn told_groups(&self) -> Vec<MessageGroup> {
        let history = 0..self.layout.tail;
        let mut groups = message_groups(self.transcript, std::slice::from_ref(&history));
        let kind = |group: &MessageGroup| Some(self.transcript.get(group.range.start)?.kind());
        groups.retain(|group| kind(group) != Some(EntryKind::CompactionSummary));
        groups
    }

    /// History that the prompt does not quote: earlier summaries, and notes of dropped groups.
    fn earlier(&self, shown: &[MessageGroup], dropped: usize) -> String {
        match shown.first().filter(|_| dropped > 0) {
            Some(first) => {
                TEMPLATE.render(&notes::notes_from_range(self.transcript, 0..first.range.start))
            }
            None => notes::earlier_notes(self.transcript, 0..self.layout.tail).join("\n\n"),
        }
    }

    fn finished(&self, mut story: WrittenSummary, dropped: usize) -> WrittenSummary {
        if weighted_chars(&story.text) > self.layout.summary_chars {
            // A plain cut would remove the end, which has the current work.
            story.text = self.fitted(sections::parse(&story.text));
        }
        let note =
            || format!("the {dropped} oldest groups did not fit the summariser; their notes did");
        story.notes.extend((dropped > 0).then(note));
        story
    }
}

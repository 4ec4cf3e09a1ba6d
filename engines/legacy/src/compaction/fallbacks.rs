//! Model summaries with fallbacks: everything, without oversized groups, then the parts that
//! succeeded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::{EngineError, Result};
use ctxhost_engine_kit::chunks::{MessageGroup, prune_oldest};
use ctxhost_engine_kit::summary::{SummarySections, extract_sections, merge, message_excerpts};
use futures_util::future::try_join_all;

use super::chunks::{divide_into_parts, split_off_oversized, unsummarised_groups};
use super::inputs::LegacyCompaction;
use super::model_request::{ModelSummary, is_final, request_with_retries};
use super::prompt::{PartialSummary, PromptTemplate, render_groups};
use super::summary_task::SummaryTask;
use crate::settings::share_of;

/// From this attempt on older history is summarised extractively.
// Two attempts have failed: a smaller prompt leaves less that can fail.
const LAST_TRY: u32 = 3;

/// Input of a model: the previous summary, and the groups to summarise.
pub(super) struct SummaryInput {
    previous: Option<String>,
    groups: Vec<MessageGroup>,
}

impl SummaryInput {
    /// The input for a summary; in the last attempt older groups are summarised extractively first.
    pub(super) fn for_task(
        inputs: &LegacyCompaction<'_>,
        task: &SummaryTask,
        earlier: Option<&SummarySections>,
    ) -> SummaryInput {
        let mut groups = unsummarised_groups(inputs.transcript, task);
        let mut older = earlier.cloned();
        if inputs.request.attempt >= LAST_TRY {
            let settings = &inputs.settings.compaction;
            let budget = share_of(inputs.request.model.window_tokens, settings.history_share);
            let pruned = prune_oldest(&groups, budget, settings.parts);
            let rest = groups.split_off(pruned.groups);
            let extracted = extract(inputs, &groups);
            older = Some(match older {
                Some(older) => merge(older, extracted),
                None => extracted,
            });
            groups = rest;
        }
        let previous = older.filter(|sections| *sections != SummarySections::default());
        let previous = previous.map(|sections| inputs.anonymised(&sections.render()).into_owned());
        SummaryInput { previous, groups }
    }
}

/// Tries the fallbacks in order.
pub(super) async fn summarise_with_fallbacks(
    inputs: &LegacyCompaction<'_>,
    input: &SummaryInput,
    template: &PromptTemplate,
) -> Result<ModelSummary> {
    let everything = PartSummariser::new(inputs, &input.groups);
    let error = match everything.summarise(input.previous.as_deref(), template).await {
        Ok(summary) => return Ok(summary),
        Err(error) if is_final(&error) => return Err(error),
        Err(error) => error,
    };
    let window_tokens = inputs.request.model.window_tokens;
    let settings = &inputs.settings.compaction;
    let (fine, omitted) =
        split_off_oversized(inputs.transcript, &input.groups, window_tokens, settings);
    // If nothing was omitted the prompt would be the same, and fail the same way.
    if !omitted.is_empty() && !fine.is_empty() {
        let rest = PartSummariser::new(inputs, &fine);
        match rest.summarise(input.previous.as_deref(), template).await {
            Ok(summary) => return Ok(summary.with_notes(omitted)),
            Err(error) if is_final(&error) => return Err(error),
            Err(_) => {}
        }
    }
    // The first error is the cause; those of the fallbacks only follow from it.
    everything.partial().ok_or(error)
}

/// Summarises parts one by one and merges them.
struct PartSummariser<'a> {
    inputs: &'a LegacyCompaction<'a>,
    parts: Vec<Vec<&'a [MessageGroup]>>,
    chunks: usize,
    done: AtomicUsize,
    /// Progress of each part.
    progress: Mutex<Vec<PartProgress>>,
}

/// Progress of one part.
#[derive(Clone, Debug, Default)]
struct PartProgress {
    summary: Option<ModelSummary>,
    chunks: usize,
}

impl<'a> PartSummariser<'a> {
    fn new(inputs: &'a LegacyCompaction<'a>, groups: &'a [MessageGroup]) -> Self {
        let window_tokens = inputs.request.model.window_tokens;
        let parts = divide_into_parts(groups, window_tokens, &inputs.settings.compaction);
        PartSummariser {
            inputs,
            chunks: parts.iter().map(Vec::len).sum(),
            done: AtomicUsize::new(0),
            progress: Mutex::new(vec![PartProgress::default(); parts.len()]),
            parts,
        }
    }

    async fn summarise(
        &self,
        previous: Option<&str>,
        template: &PromptTemplate,
    ) -> Result<ModelSummary> {
        // The first part is the oldest, so only it follows the previous summary.
        let part = |at| self.summarise_part(at, previous.filter(|_| at == 0), template);
        let mut summaries = Vec::new();
        if self.inputs.settings.compaction.parallel_parts {
            summaries = try_join_all((0..self.parts.len()).map(part)).await?;
        } else {
            for at in 0..self.parts.len() {
                summaries.push(part(at).await?);
            }
        }
        if summaries.len() > 1 {
            return self.merge(summaries, template).await;
        }
        summaries.pop().ok_or_else(|| EngineError::failed("no message is left to summarise"))
    }

    /// Summarises the chunks of a part in order, each with the summary of those before it.
    async fn summarise_part(
        &self,
        at: usize,
        previous: Option<&str>,
        template: &PromptTemplate,
    ) -> Result<ModelSummary> {
        let mut so_far = previous.map(str::to_owned);
        let mut last = Err(EngineError::failed("a part holds no message"));
        for (chunk_at, chunk) in self.parts.get(at).into_iter().flatten().enumerate() {
            self.report();
            let text = render_groups(self.inputs, chunk);
            // Only a history of one chunk can continue the live conversation, which contains all of it.
            let request = match self.chunks {
                1 => template.whole_request(&text, so_far.as_deref()),
                _ => template.part_request(&text, so_far.as_deref()),
            };
            let name = self.chunk_name(chunk);
            let summary = request_with_retries(self.inputs, request, &name).await?;
            so_far = Some(summary.text.clone());
            self.record(at, PartProgress { summary: Some(summary.clone()), chunks: chunk_at + 1 });
            last = Ok(summary);
        }
        last
    }

    async fn merge(
        &self,
        summaries: Vec<ModelSummary>,
        template: &PromptTemplate,
    ) -> Result<ModelSummary> {
        self.report();
        let parts = summaries.iter().zip(&self.parts).map(|(summary, chunks)| PartialSummary {
            notes: &summary.text,
            time_range_ms: self.time_range_ms(chunks),
        });
        let parts: Vec<_> = parts.collect();
        request_with_retries(self.inputs, template.merge_request(&parts), "merge").await
    }

    /// Time of the first and the last entry of a part.
    fn time_range_ms(&self, chunks: &[&[MessageGroup]]) -> Option<(i64, i64)> {
        let written = |seq| self.inputs.transcript.get(seq).map(|entry| entry.timestamp_ms());
        let first = chunks.first()?.first()?.range.start;
        let last = chunks.last()?.last()?.range.end.checked_sub(1)?;
        written(first).zip(written(last)).filter(|(from, until)| *from > 0 && *until > 0)
    }

    /// The chunks summarised before a failure, with an extractive summary of the rest.
    fn partial(&self) -> Option<ModelSummary> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let model = progress.iter().find_map(|part| part.summary.as_ref())?.model.clone();
        let mut sections = SummarySections::default();
        for (part, chunks) in progress.iter().zip(&self.parts) {
            if let Some(summary) = &part.summary {
                sections = merge(sections, SummarySections::parse(&summary.text));
            }
            for chunk in chunks.get(part.chunks..).unwrap_or(&[]) {
                sections = merge(sections, extract(self.inputs, chunk));
            }
        }
        let text = self.inputs.anonymised(&sections.render()).into_owned();
        let note = partial_note(self.done.load(Ordering::Relaxed), self.chunks);
        Some(ModelSummary { text, model, notes: vec![note] })
    }

    fn record(&self, at: usize, progress: PartProgress) {
        self.done.fetch_add(1, Ordering::Relaxed);
        let mut parts = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.get_mut(at) {
            *part = progress;
        }
    }

    fn report(&self) {
        let done = self.done.load(Ordering::Relaxed);
        // One step more than chunks, for the merge.
        let permille = u32::try_from(done * 1_000 / (self.chunks + 1)).unwrap_or(1_000);
        let note = format!("summary {} of {}", done + 1, self.chunks.max(done + 1));
        self.inputs.host.progress(self.inputs.request.call, permille, &note);
    }

    /// Name of a chunk: the id of its first entry.
    fn chunk_name(&self, chunk: &[MessageGroup]) -> String {
        let first = chunk.first().and_then(|group| self.inputs.transcript.get(group.range.start));
        first.map_or_else(String::new, |entry| entry.id().to_owned())
    }
}

fn extract(inputs: &LegacyCompaction<'_>, groups: &[MessageGroup]) -> SummarySections {
    let ranges: Vec<_> = groups.iter().map(|group| group.range.clone()).collect();
    extract_sections(&message_excerpts(inputs.transcript, &ranges))
}

fn partial_note(done: usize, count: usize) -> String {
    format!("[Partial summary: a model told chunks 1-{done} of {count}; the rest is extracted]")
}

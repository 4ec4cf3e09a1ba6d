//! Model summaries with fallbacks: everything, without oversized groups, then the parts that
//! succeeded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::{EngineError, Result};
use ctxhost_engine_kit::chunks::{MessageGroup, prune_oldest};
use ctxhost_engine_kit::summary::{SummarySections, extract_sections, merge, message_excerpts};
use futures_util::future::try_join_all;

use super::LegacyCompaction;
use super::chunks::{divide_into_parts, split_off_oversized, unsummarised_groups};
use super::cut::SummaryTask;
use super::model_request::{ModelSummary, is_final, request_with_retries};
use super::prompt::{PartialSummary, PromptTemplate, render_groups};
use crate::settings::share_of;

/// From this attempt on older history is summarised extractively, so that less can fail.
const LAST_TRY: u32 = 3;

/// Input of a model: the previous summary, and the groups to summarise.
pub(super) struct SummaryInput {
    previous: Option<String>,
    frames: Vec<MessageGroup>,
}

impl SummaryInput {
    /// The input for a summary; in the last attempt older groups are summarised extractively first.
    pub(super) fn from_fold(
        inputs: &LegacyCompaction<'_>,
        fold: &SummaryTask,
        carried: Option<&SummarySections>,
    ) -> SummaryInput {
        let mut frames = unsummarised_groups(inputs.transcript, fold);
        let mut older = carried.cloned();
        if inputs.request.attempt >= LAST_TRY {
            let settings = &inputs.settings.compaction;
            let budget = share_of(inputs.request.model.window_tokens, settings.history_share);
            let pruned = prune_oldest(&frames, budget, settings.parts);
            let rest = frames.split_off(pruned.groups);
            let told = extracted(inputs, &frames);
            older = Some(older.map_or(told.clone(), |older| merge(older, told)));
            frames = rest;
        }
        let previous = older.filter(|sections| *sections != SummarySections::default());
        let previous = previous.map(|sections| inputs.anonymised(&sections.render()).into_owned());
        SummaryInput { previous, frames }
    }
}

/// Tries the fallbacks in order.
pub(super) async fn summarise_with_fallbacks(
    inputs: &LegacyCompaction<'_>,
    material: &SummaryInput,
    frame: &PromptTemplate,
) -> Result<ModelSummary> {
    let everything = PartSummariser::new(inputs, &material.frames);
    let error = match everything.summarise(material.previous.as_deref(), frame).await {
        Ok(told) => return Ok(told),
        Err(error) if is_final(&error) => return Err(error),
        Err(error) => error,
    };
    let window_tokens = inputs.request.model.window_tokens;
    let settings = &inputs.settings.compaction;
    let (fine, omitted) =
        split_off_oversized(inputs.transcript, &material.frames, window_tokens, settings);
    if !omitted.is_empty() && !fine.is_empty() {
        match PartSummariser::new(inputs, &fine)
            .summarise(material.previous.as_deref(), frame)
            .await
        {
            Ok(told) => return Ok(told.with_notes(omitted)),
            Err(error) if is_final(&error) => return Err(error),
            Err(_) => {}
        }
    }
    everything.partial().ok_or(error)
}

/// Summarises parts one by one and merges them.
struct PartSummariser<'a> {
    inputs: &'a LegacyCompaction<'a>,
    parts: Vec<Vec<&'a [MessageGroup]>>,
    chunks: usize,
    done: AtomicUsize,
    /// Progress of each part.
    told: Mutex<Vec<PartProgress>>,
}

/// Progress of one part.
#[derive(Clone, Debug, Default)]
struct PartProgress {
    summary: Option<ModelSummary>,
    chunks: usize,
}

impl<'a> PartSummariser<'a> {
    fn new(inputs: &'a LegacyCompaction<'a>, frames: &'a [MessageGroup]) -> Self {
        let window_tokens = inputs.request.model.window_tokens;
        let parts = divide_into_parts(frames, window_tokens, &inputs.settings.compaction);
        PartSummariser {
            inputs,
            chunks: parts.iter().map(Vec::len).sum(),
            done: AtomicUsize::new(0),
            told: Mutex::new(vec![PartProgress::default(); parts.len()]),
            parts,
        }
    }

    async fn summarise(
        &self,
        previous: Option<&str>,
        frame: &PromptTemplate,
    ) -> Result<ModelSummary> {
        let part = |at| self.summarise_part(at, previous.filter(|_| at == 0), frame);
        let mut told = Vec::new();
        if self.inputs.settings.compaction.parallel_parts {
            told = try_join_all((0..self.parts.len()).map(part)).await?;
        } else {
            for at in 0..self.parts.len() {
                told.push(part(at).await?);
            }
        }
        match told.len() {
            0 => Err(EngineError::failed("no message is left to summarise")),
            1 => told.pop().ok_or_else(|| EngineError::failed("no part was told")),
            _ => self.merge(told, frame).await,
        }
    }

    /// Summarises the chunks of a part in order, each with the summary of those before it.
    async fn summarise_part(
        &self,
        at: usize,
        previous: Option<&str>,
        frame: &PromptTemplate,
    ) -> Result<ModelSummary> {
        let mut so_far = previous.map(str::to_owned);
        let mut last = Err(EngineError::failed("a part holds no message"));
        for (chunk_at, chunk) in self.parts.get(at).into_iter().flatten().enumerate() {
            self.report();
            let text = render_groups(self.inputs, chunk);
            let request = match self.chunks {
                1 => frame.whole_request(&text, so_far.as_deref()),
                _ => frame.part_request(&text, so_far.as_deref()),
            };
            let told = request_with_retries(self.inputs, request, &self.name_of(chunk)).await?;
            so_far = Some(told.text.clone());
            self.record(at, PartProgress { summary: Some(told.clone()), chunks: chunk_at + 1 });
            last = Ok(told);
        }
        last
    }

    async fn merge(&self, told: Vec<ModelSummary>, frame: &PromptTemplate) -> Result<ModelSummary> {
        self.report();
        let parts: Vec<PartialSummary<'_>> = told
            .iter()
            .zip(&self.parts)
            .map(|(told, chunks)| PartialSummary {
                notes: &told.text,
                time_range_ms: self.time_range_ms(chunks),
            })
            .collect();
        request_with_retries(self.inputs, frame.merge_request(&parts), "merge").await
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
        let progress = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let model = progress.iter().find_map(|part| part.summary.as_ref())?.model.clone();
        let mut sections = SummarySections::default();
        for (part, chunks) in progress.iter().zip(&self.parts) {
            if let Some(told) = &part.summary {
                sections = merge(sections, SummarySections::parse(&told.text));
            }
            for chunk in chunks.get(part.chunks..).unwrap_or(&[]) {
                sections = merge(sections, extracted(self.inputs, chunk));
            }
        }
        let text = self.inputs.anonymised(&sections.render()).into_owned();
        let note = partial_note(self.done.load(Ordering::Relaxed), self.chunks);
        Some(ModelSummary { text, model, notes: vec![note] })
    }

    fn record(&self, at: usize, progress: PartProgress) {
        self.done.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = told.get_mut(at) {
            *part = progress;
        }
    }

    fn report(&self) {
        let done = self.done.load(Ordering::Relaxed);
        let permille = u32::try_from(done * 1_000 / (self.chunks + 1)).unwrap_or(1_000);
        let note = format!("summary {} of {}", done + 1, self.chunks.max(done + 1));
        self.inputs.host.progress(self.inputs.request.call, permille, &note);
    }

    /// Name of a chunk: the id of its first entry.
    fn name_of(&self, chunk: &[MessageGroup]) -> String {
        let first = chunk.first().and_then(|group| self.inputs.transcript.get(group.range.start));
        first.map_or_else(String::new, |entry| entry.id().to_owned())
    }
}

fn extracted(inputs: &LegacyCompaction<'_>, groups: &[MessageGroup]) -> SummarySections {
    let ranges: Vec<_> = groups.iter().map(|group| group.range.clone()).collect();
    extract_sections(&message_excerpts(inputs.transcript, &ranges))
}

fn partial_note(done: usize, count: usize) -> String {
    format!("[Partial summary: a model told chunks 1-{done} of {count}; the rest is extracted]")
}

//! The model's rungs: everything, then without what is oversized, then what was told before the
//! failure.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::{EngineError, Result};
use ctxhost_engine_kit::chunks::{Group, prune_oldest};
use ctxhost_engine_kit::summary::{Sections, extract, merge, passages};
use futures_util::future::try_join_all;

use super::Desk;
use super::answers::{Told, ask, is_final};
use super::chunks::{divide, frames, without_oversized};
use super::cut::Fold;
use super::prompt::{Frame, Part, conversation};
use crate::settings::share_of;

/// The try from which older history is told without a model, so that little is left to fail.
const LAST_TRY: u32 = 3;

/// What a model reads: the summary of what came before, and the frames to tell.
pub(super) struct Material {
    previous: Option<String>,
    frames: Vec<Group>,
}

impl Material {
    /// The material of a fold. In the last try older history is told without a model first.
    pub(super) fn of(desk: &Desk<'_>, fold: &Fold, carried: Option<&Sections>) -> Material {
        let mut frames = frames(desk.transcript, fold);
        let mut older = carried.cloned();
        if desk.request.attempt >= LAST_TRY {
            let settings = &desk.settings.compaction;
            let budget = share_of(desk.request.model.window_tokens, settings.history_share);
            let pruned = prune_oldest(&frames, budget, settings.parts);
            let rest = frames.split_off(pruned.groups);
            let told = extracted(desk, &frames);
            older = Some(older.map_or(told.clone(), |older| merge(older, told)));
            frames = rest;
        }
        let previous = older.filter(|sections| *sections != Sections::default());
        let previous = previous.map(|sections| desk.nameless(&sections.render()).into_owned());
        Material { previous, frames }
    }
}

/// Climbs down until something was told.
pub(super) async fn climb(desk: &Desk<'_>, material: &Material, frame: &Frame) -> Result<Told> {
    let everything = Stages::of(desk, &material.frames);
    let error = match everything.tell(material.previous.as_deref(), frame).await {
        Ok(told) => return Ok(told),
        Err(error) if is_final(&error) => return Err(error),
        Err(error) => error,
    };
    let window_tokens = desk.request.model.window_tokens;
    let settings = &desk.settings.compaction;
    let (fine, omitted) =
        without_oversized(desk.transcript, &material.frames, window_tokens, settings);
    if !omitted.is_empty() && !fine.is_empty() {
        match Stages::of(desk, &fine).tell(material.previous.as_deref(), frame).await {
            Ok(told) => return Ok(told.with_notes(omitted)),
            Err(error) if is_final(&error) => return Err(error),
            Err(_) => {}
        }
    }
    everything.partial().ok_or(error)
}

/// Parts that are told one by one and then merged.
struct Stages<'a> {
    desk: &'a Desk<'a>,
    parts: Vec<Vec<&'a [Group]>>,
    chunks: usize,
    done: AtomicUsize,
    /// What each part has come to.
    told: Mutex<Vec<Progress>>,
}

/// How far a part has come.
#[derive(Clone, Debug, Default)]
struct Progress {
    told: Option<Told>,
    chunks: usize,
}

impl<'a> Stages<'a> {
    fn of(desk: &'a Desk<'a>, frames: &'a [Group]) -> Self {
        let window_tokens = desk.request.model.window_tokens;
        let parts = divide(frames, window_tokens, &desk.settings.compaction);
        Stages {
            desk,
            chunks: parts.iter().map(Vec::len).sum(),
            done: AtomicUsize::new(0),
            told: Mutex::new(vec![Progress::default(); parts.len()]),
            parts,
        }
    }

    async fn tell(&self, previous: Option<&str>, frame: &Frame) -> Result<Told> {
        let part = |at| self.tell_part(at, previous.filter(|_| at == 0), frame);
        let mut told = Vec::new();
        if self.desk.settings.compaction.parallel_parts {
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

    /// The chunks of a part one after the other, each with the notes of those before it.
    async fn tell_part(&self, at: usize, previous: Option<&str>, frame: &Frame) -> Result<Told> {
        let mut so_far = previous.map(str::to_owned);
        let mut last = Err(EngineError::failed("a part holds no message"));
        for (chunk_at, chunk) in self.parts.get(at).into_iter().flatten().enumerate() {
            self.report();
            let text = conversation(self.desk, chunk);
            let request = match self.chunks {
                1 => frame.summarise_whole(&text, so_far.as_deref()),
                _ => frame.summarise(&text, so_far.as_deref()),
            };
            let told = ask(self.desk, request, &self.name_of(chunk)).await?;
            so_far = Some(told.text.clone());
            self.record(at, Progress { told: Some(told.clone()), chunks: chunk_at + 1 });
            last = Ok(told);
        }
        last
    }

    async fn merge(&self, told: Vec<Told>, frame: &Frame) -> Result<Told> {
        self.report();
        let parts: Vec<Part<'_>> = told
            .iter()
            .zip(&self.parts)
            .map(|(told, chunks)| Part { notes: &told.text, spoken_ms: self.spoken_ms(chunks) })
            .collect();
        ask(self.desk, frame.merge(&parts), "merge").await
    }

    /// When the first and the last entry of a part were written.
    fn spoken_ms(&self, chunks: &[&[Group]]) -> Option<(i64, i64)> {
        let written = |seq| self.desk.transcript.get(seq).map(|entry| entry.timestamp_ms());
        let first = chunks.first()?.first()?.range.start;
        let last = chunks.last()?.last()?.range.end.checked_sub(1)?;
        written(first).zip(written(last)).filter(|(from, until)| *from > 0 && *until > 0)
    }

    /// What was told before a failure, with the conversation's own sentences for the rest.
    fn partial(&self) -> Option<Told> {
        let progress = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let model = progress.iter().find_map(|part| part.told.as_ref())?.model.clone();
        let mut sections = Sections::default();
        for (part, chunks) in progress.iter().zip(&self.parts) {
            if let Some(told) = &part.told {
                sections = merge(sections, Sections::parse(&told.text));
            }
            for chunk in chunks.get(part.chunks..).unwrap_or(&[]) {
                sections = merge(sections, extracted(self.desk, chunk));
            }
        }
        let text = self.desk.nameless(&sections.render()).into_owned();
        let note = partial_note(self.done.load(Ordering::Relaxed), self.chunks);
        Some(Told { text, model, notes: vec![note] })
    }

    fn record(&self, at: usize, progress: Progress) {
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
        self.desk.host.progress(self.desk.request.call, permille, &note);
    }

    /// The id of the entry with which a chunk begins.
    fn name_of(&self, chunk: &[Group]) -> String {
        let first = chunk.first().and_then(|group| self.desk.transcript.get(group.range.start));
        first.map_or_else(String::new, |entry| entry.id().to_owned())
    }
}

fn extracted(desk: &Desk<'_>, groups: &[Group]) -> Sections {
    let ranges: Vec<_> = groups.iter().map(|group| group.range.clone()).collect();
    extract(&passages(desk.transcript, &ranges))
}

fn partial_note(done: usize, count: usize) -> String {
    format!("[Partial summary: a model told chunks 1-{done} of {count}; the rest is extracted]")
}

//! The view of one engine of a chain on one session: the projection of the plans before it.
//!
//! Entries keep their ids, so that an engine's values for them stay valid; positions are those of
//! the view. A view whose earlier part changes begins a new epoch, as after a compaction, since
//! values stored by position are stale then. Unchanged texts are borrowed from the session's
//! snapshot, and changed ones are computed once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::projection_builder::{ProjectionBuilder, SharedEntry};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, EntryKind, Flags, Plan, Role, SessionRef, Transcript};
use parking_lot::Mutex;
use serde_json::json;

use super::compose::{PlanProjection, ProjectedRun};
use ctxhost_session::{replace_raw, replace_text};

/// The number of sessions with cached views. An evicted view is rebuilt at the next request of its
/// session.
const MAX_SESSIONS: usize = 256;

/// The first epoch of views, above those that transcripts of sessions reach.
const FIRST_EPOCH: u64 = 1 << 32;

/// The views of a chain's engines, by session.
#[derive(Debug, Default)]
pub(super) struct LinkViews {
    cache: Mutex<LinkViewCache>,
}

#[derive(Debug, Default)]
struct LinkViewCache {
    /// With the number of the call that used them last.
    sessions: HashMap<String, (u64, Vec<LinkView>)>,
    calls: u64,
    epochs: u64,
}

impl LinkViews {
    /// Takes the views of a session out of the cache, one for each engine; empty for a single
    /// engine and for a call without a session. Calls of one session do not overlap, so the caller has
    /// them exclusively. A call that is aborted loses them, and they are rebuilt.
    pub(super) fn take(&self, session: Option<&SessionRef>, links: usize) -> Vec<LinkView> {
        let Some(session) = session.filter(|_| links > 1) else { return Vec::new() };
        // Taken out instead of locked: two calls of one session never overlap, and others must not wait.
        let cached = self.cache.lock().sessions.remove(&session.id).map(|(_, views)| views);
        cached.unwrap_or_else(|| (0..links).map(|_| LinkView::default()).collect())
    }

    /// Puts the views back into the cache.
    pub(super) fn store(&self, session: Option<&SessionRef>, views: Vec<LinkView>) {
        let Some(session) = session.filter(|_| !views.is_empty()) else { return };
        let mut cache = self.cache.lock();
        cache.calls += 1;
        let now = cache.calls;
        cache.sessions.insert(session.id.clone(), (now, views));
        if cache.sessions.len() > MAX_SESSIONS {
            let oldest = cache.sessions.iter().min_by_key(|(_, (call, _))| *call);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                cache.sessions.remove(&oldest);
            }
        }
    }

    /// Drops the views of a session.
    pub(super) fn forget(&self, session: &SessionRef) {
        self.cache.lock().sessions.remove(&session.id);
    }

    /// Projects a plan over the session's transcript.
    pub(super) fn project(&self, view: &mut LinkView, plan: Plan, base: &Transcript) -> Transcript {
        view.project(plan, base, || {
            let mut cache = self.cache.lock();
            cache.epochs += 1;
            FIRST_EPOCH + cache.epochs - 1
        })
    }

    /// Projects the plan of the last request, with the entries appended since.
    pub(super) fn project_last_plan(&self, view: &mut LinkView, base: &Transcript) -> Transcript {
        let plan = view.plan_of_last_request(base);
        self.project(view, plan, base)
    }
}

/// The view of one engine on one session.
#[derive(Debug, Default)]
pub(super) struct LinkView {
    /// The plan of the engines before, over the session's transcript.
    plan: Plan,
    /// Epoch and length of that transcript.
    base: (u64, u64),
    epoch: u64,
    /// The hash of each entry of the view.
    hashes: Vec<u64>,
    /// The number of entries that the engine has ingested.
    ingested: u64,
    /// Changed entries by id, cached.
    changed: HashMap<String, ChangedEntry>,
}

/// A changed entry, with how it was changed.
#[derive(Clone, Debug)]
struct ChangedEntry {
    is_raw: bool,
    entry: SharedEntry,
}

impl LinkView {
    fn project(
        &mut self,
        plan: Plan,
        base: &Transcript,
        next_epoch: impl FnOnce() -> u64,
    ) -> Transcript {
        self.base = (base.epoch(), base.len() as u64);
        self.plan = plan;
        let projection = PlanProjection::new(&self.plan);
        let hashes = entry_hashes(&projection, base);
        // Appending keeps the epoch; any other change makes stored positions stale.
        if self.epoch == 0 || !hashes.starts_with(&self.hashes) {
            (self.epoch, self.ingested) = (next_epoch(), 0);
        }
        self.hashes = hashes;
        let mut builder = ViewBuilder {
            base,
            cached: std::mem::take(&mut self.changed),
            used: HashMap::new(),
            after: HashMap::new(),
            view: ProjectionBuilder::new(base, self.epoch),
        };
        projection.runs().iter().for_each(|run| builder.add_run(run));
        self.changed = builder.used;
        builder.view.finish()
    }

    /// The plan of the last request, with the entries appended since.
    fn plan_of_last_request(&mut self, base: &Transcript) -> Plan {
        let (epoch, len) = self.base;
        let now = base.len() as u64;
        // Another epoch has other positions, so the old plan does not apply.
        if self.epoch == 0 || epoch != base.epoch() || len > now {
            return Plan::keep_all(base.len());
        }
        let mut plan = std::mem::take(&mut self.plan);
        plan.keep(len..now);
        plan
    }

    /// The entries that the engine has not ingested; marks them as ingested.
    pub(super) fn take_new_entries(&mut self, view: &Transcript) -> Range<u64> {
        let new = self.ingested..view.len() as u64;
        self.ingested = new.end;
        new
    }

    /// The range in the view of a range of the session's transcript.
    pub(super) fn projected_range(&self, range: &Range<u64>) -> Range<u64> {
        PlanProjection::new(&self.plan).projected_range(range)
    }
}

/// The hash of each entry of a view: its id and its change.
fn entry_hashes(projection: &PlanProjection<'_>, base: &Transcript) -> Vec<u64> {
    let mut hashes = Vec::new();
    for run in projection.runs() {
        let entries = base.range(run.origin.clone());
        match &run.op.action {
            Action::Keep(_) => hashes.extend(entries.map(|entry| hash(("kept", entry.id())))),
            Action::ReplaceText { seq, text } => {
                hashes.push(hash(("text", base.get(*seq).map(|entry| entry.id()), text)));
            }
            Action::ReplaceRaw { seq, raw } => {
                hashes.push(hash(("raw", base.get(*seq).map(|entry| entry.id()), raw)));
            }
            Action::Insert { role, text, .. } => {
                hashes.push(hash((
                    "new",
                    entry_before(base, run).map(|entry| entry.id()),
                    role,
                    text,
                )));
            }
            _ => {}
        }
    }
    hashes
}

fn hash(value: impl Hash) -> u64 {
    // Hashes are never stored, so the hasher may differ between Rust versions.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The entry before an inserted one.
fn entry_before<'b>(base: &'b Transcript, run: &ProjectedRun<'_>) -> Option<Entry<'b>> {
    base.get(run.origin.start.checked_sub(1)?)
}

/// Builds a view.
struct ViewBuilder<'b> {
    base: &'b Transcript,
    cached: HashMap<String, ChangedEntry>,
    used: HashMap<String, ChangedEntry>,
    /// The number of entries inserted after each entry.
    after: HashMap<String, usize>,
    view: ProjectionBuilder,
}

impl ViewBuilder<'_> {
    fn add_run(&mut self, run: &ProjectedRun<'_>) {
        match &run.op.action {
            Action::Keep(_) => run.origin.clone().for_each(|seq| self.view.keep(seq)),
            Action::ReplaceText { seq, text } => self.change(*seq, text, false),
            Action::ReplaceRaw { seq, raw } => self.change(*seq, raw, true),
            Action::Insert { role, text, .. } => self.insert(run, *role, text),
            _ => {}
        }
    }

    fn change(&mut self, seq: u64, content: &str, is_raw: bool) {
        let Some(entry) = self.base.get(seq) else { return };
        let is_same = |cached: &ChangedEntry| {
            let old = if is_raw { cached.entry.raw() } else { cached.entry.text() };
            cached.is_raw == is_raw && old == content
        };
        // A replacement is parsed once and not for every request: texts of a thousand masked results add up.
        let cached = self.cached.remove(entry.id()).filter(is_same);
        let changed = cached.unwrap_or_else(|| {
            let replace = if is_raw { replace_raw } else { replace_text };
            ChangedEntry { is_raw, entry: replace(copy(&entry), content).into() }
        });
        self.view.replace(seq, &changed.entry);
        self.used.insert(entry.id().to_owned(), changed);
    }

    /// The id derives from the entry before, so that it is stable while that entry is there.
    fn insert(&mut self, run: &ProjectedRun<'_>, role: Role, text: &str) {
        let before = entry_before(self.base, run);
        let parent_id = before.map_or("", |entry| entry.id());
        let number = self.after.entry(parent_id.to_owned()).or_default();
        *number += 1;
        let timestamp_ms = before.map_or(0, |entry| entry.timestamp_ms());
        let content = json!([{ "type": "text", "text": text }]);
        let raw = json!({ "role": role.name(), "content": content, "timestamp": timestamp_ms });
        let entry = NewEntry {
            id: format!("{parent_id}+{number}"),
            parent_id: parent_id.to_owned(),
            timestamp_ms,
            role,
            // The next engine of the chain must neither mask nor summarize what the one before it wrote.
            kind: EntryKind::CompactionSummary,
            flags: Flags::SYNTHETIC,
            tokens: tokens::estimate(text),
            text: text.to_owned(),
            raw: raw.to_string(),
            calls: Vec::new(),
            answers: None,
        };
        self.view.insert(&entry.into());
    }
}

fn copy(entry: &Entry<'_>) -> NewEntry {
    NewEntry {
        id: entry.id().to_owned(),
        parent_id: entry.parent_id().to_owned(),
        timestamp_ms: entry.timestamp_ms(),
        role: entry.role(),
        kind: entry.kind(),
        flags: entry.flags(),
        tokens: entry.tokens(),
        text: String::new(),
        raw: entry.raw().to_owned(),
        calls: Vec::new(),
        answers: None,
    }
}

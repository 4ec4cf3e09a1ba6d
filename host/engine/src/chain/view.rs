//! What one engine of a chain reads in one session: what the engines before it show, as a transcript of
//! its own.
//!
//! Entries keep their ids, so that what an engine remembers of them holds; positions are those of the
//! view. Where the engines before show something else than they did, the view begins a new epoch, as it
//! does after a compaction: whatever was kept by position is stale then. Texts that nobody changed are
//! borrowed from the session's snapshot, and changed ones are worked out once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::projection_builder::{ProjectionBuilder, SharedEntry};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, EntryKind, Flags, Plan, Role, SessionRef, Transcript};
use serde_json::json;

use super::compose::{PlanProjection, ProjectedRun};
use ctxhost_session::{replace_raw, replace_text};

/// Sessions whose views a chain remembers. One that is forgotten is read anew at its next request.
const MAX_SESSIONS: usize = 256;

/// Epochs of views begin above those that a session's own transcript ever reaches.
const FIRST_EPOCH: u64 = 1 << 32;

/// What the engines of a chain read, by session.
#[derive(Debug, Default)]
pub(super) struct LinkViews {
    known: Mutex<LinkViewCache>,
}

#[derive(Debug, Default)]
struct LinkViewCache {
    /// With the number of the call that read it last.
    sessions: HashMap<String, (u64, Vec<LinkView>)>,
    calls: u64,
    epochs: u64,
}

impl LinkViews {
    /// What each of so many engines reads of a session; empty for one engine alone and where there is no
    /// session. Calls of one session follow each other, so whoever takes it has it alone; a call that is
    /// broken off forgets it, and the session is read anew.
    pub(super) fn take(&self, session: Option<&SessionRef>, links: usize) -> Vec<LinkView> {
        let Some(session) = session.filter(|_| links > 1) else { return Vec::new() };
        let known = self.cache().sessions.remove(&session.id).map(|(_, views)| views);
        known.unwrap_or_else(|| (0..links).map(|_| LinkView::default()).collect())
    }

    /// Puts back what was taken.
    pub(super) fn store(&self, session: Option<&SessionRef>, views: Vec<LinkView>) {
        let Some(session) = session.filter(|_| !views.is_empty()) else { return };
        let mut known = self.cache();
        known.calls += 1;
        let now = known.calls;
        known.sessions.insert(session.id.clone(), (now, views));
        if known.sessions.len() > MAX_SESSIONS {
            let oldest = known.sessions.iter().min_by_key(|(_, (call, _))| *call);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                known.sessions.remove(&oldest);
            }
        }
    }

    /// The session begins anew.
    pub(super) fn forget(&self, session: Option<&SessionRef>) {
        if let Some(session) = session {
            self.cache().sessions.remove(&session.id);
        }
    }

    /// The view through a plan over the session's transcript.
    pub(super) fn project(&self, view: &mut LinkView, plan: Plan, base: &Transcript) -> Transcript {
        view.through(plan, base, || {
            let mut known = self.cache();
            known.epochs += 1;
            FIRST_EPOCH + known.epochs - 1
        })
    }

    /// The view through the plan of the last request, with all that has been said since.
    pub(super) fn project_last_plan(&self, view: &mut LinkView, base: &Transcript) -> Transcript {
        let plan = view.plan_of_last_request(base);
        self.project(view, plan, base)
    }

    fn cache(&self) -> MutexGuard<'_, LinkViewCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one engine has read of one session.
#[derive(Debug, Default)]
pub(super) struct LinkView {
    /// What the engines before show of the session's transcript.
    plan: Plan,
    /// Epoch and length of that transcript.
    base: (u64, u64),
    epoch: u64,
    /// What each entry of the view was, as a number.
    marks: Vec<u64>,
    /// Entries of the view that the engine has been told of.
    told: u64,
    /// The entries that are shown in other words, by their ids.
    changed: HashMap<String, ChangedEntry>,
}

/// An entry in other words, with how it came to them.
#[derive(Clone, Debug)]
struct ChangedEntry {
    is_raw: bool,
    entry: SharedEntry,
}

impl LinkView {
    fn through(
        &mut self,
        plan: Plan,
        base: &Transcript,
        next_epoch: impl FnOnce() -> u64,
    ) -> Transcript {
        self.base = (base.epoch(), base.len() as u64);
        self.plan = plan;
        let shown = PlanProjection::new(&self.plan);
        let marks = marks(&shown, base);
        if self.epoch == 0 || !marks.starts_with(&self.marks) {
            (self.epoch, self.told) = (next_epoch(), 0);
        }
        self.marks = marks;
        let mut builder = ViewBuilder {
            base,
            known: std::mem::take(&mut self.changed),
            used: HashMap::new(),
            after: HashMap::new(),
            view: ProjectionBuilder::new(base, self.epoch),
        };
        shown.runs().iter().for_each(|run| builder.show(run));
        self.changed = builder.used;
        builder.view.finish()
    }

    /// The plan of the last request, with all that has been said since.
    fn plan_of_last_request(&mut self, base: &Transcript) -> Plan {
        let (epoch, len) = self.base;
        let now = base.len() as u64;
        if self.epoch == 0 || epoch != base.epoch() || len > now {
            return Plan::keep_all(base.len());
        }
        let mut plan = std::mem::take(&mut self.plan);
        plan.keep(len..now);
        plan
    }

    /// Entries of a view that the engine has not been told of; it counts as told of them from now on.
    pub(super) fn take_new_entries(&mut self, view: &Transcript) -> Range<u64> {
        let news = self.told..view.len() as u64;
        self.told = news.end;
        news
    }

    /// The positions in the view of a range of the session's transcript.
    pub(super) fn projected_range(&self, range: &Range<u64>) -> Range<u64> {
        PlanProjection::new(&self.plan).projected_range(range)
    }
}

/// What each entry of a view is: which one, in which words.
fn marks(shown: &PlanProjection<'_>, base: &Transcript) -> Vec<u64> {
    let mut marks = Vec::new();
    for run in shown.runs() {
        let entries = base.range(run.origin.clone());
        match &run.op.action {
            Action::Keep(_) => marks.extend(entries.map(|entry| mark(("kept", entry.id())))),
            Action::ReplaceText { seq, text } => {
                marks.push(mark(("text", base.get(*seq).map(|entry| entry.id()), text)));
            }
            Action::ReplaceRaw { seq, raw } => {
                marks.push(mark(("raw", base.get(*seq).map(|entry| entry.id()), raw)));
            }
            Action::Insert { role, text, .. } => {
                marks.push(mark(("new", before(base, run).map(|entry| entry.id()), role, text)));
            }
            _ => {}
        }
    }
    marks
}

fn mark(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The entry before the place of what was put in.
fn before<'b>(base: &'b Transcript, run: &ProjectedRun<'_>) -> Option<Entry<'b>> {
    base.get(run.origin.start.checked_sub(1)?)
}

/// Builds a view.
struct ViewBuilder<'b> {
    base: &'b Transcript,
    known: HashMap<String, ChangedEntry>,
    used: HashMap<String, ChangedEntry>,
    /// How many entries were put in behind each entry.
    after: HashMap<String, usize>,
    view: ProjectionBuilder,
}

impl ViewBuilder<'_> {
    fn show(&mut self, run: &ProjectedRun<'_>) {
        match &run.op.action {
            Action::Keep(_) => run.origin.clone().for_each(|seq| self.view.keep(seq)),
            Action::ReplaceText { seq, text } => self.change(*seq, text, false),
            Action::ReplaceRaw { seq, raw } => self.change(*seq, raw, true),
            Action::Insert { role, text, .. } => self.insert(run, *role, text),
            _ => {}
        }
    }

    fn change(&mut self, seq: u64, words: &str, is_raw: bool) {
        let Some(entry) = self.base.get(seq) else { return };
        let told = |known: &ChangedEntry| match is_raw {
            true => known.is_raw && known.entry.raw() == words,
            false => !known.is_raw && known.entry.text() == words,
        };
        let known = self.known.remove(entry.id()).filter(told);
        let known = known.unwrap_or_else(|| ChangedEntry {
            is_raw,
            entry: match is_raw {
                true => replace_raw(copy(&entry), words).into(),
                false => replace_text(copy(&entry), words).into(),
            },
        });
        self.view.replace(seq, &known.entry);
        self.used.insert(entry.id().to_owned(), known);
    }

    /// Named after the entry before it, so that it has the same id as long as it stands there.
    fn insert(&mut self, run: &ProjectedRun<'_>, role: Role, text: &str) {
        let before = before(self.base, run);
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

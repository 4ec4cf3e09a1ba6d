//! What a dashboard shows: the sessions that are alive, how full each is, and what was done about it.
//!
//! It is bounded in every direction. Words of a conversation stand in it only where the config asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use ctxhost_config::TelemetrySettings;
use ctxhost_context::{CompactionOutcome, Verdict};
use ctxhost_runtime::event::{Event, What};

/// What a dashboard shows.
#[derive(Debug)]
pub struct Board {
    shown: Mutex<Shown>,
    settings: TelemetrySettings,
}

/// All of it, as the dashboard reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shown {
    /// The engine that the config names.
    pub configured: String,
    /// The engine that shaped the newest request.
    pub effective: String,
    /// What happened to the slot, the newest last.
    pub marks: VecDeque<Mark>,
    /// The sessions, the one that was used last at the end.
    pub sessions: VecDeque<Live>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Live {
    /// Its id.
    pub id: String,
    /// The dialect of its client; empty while nobody has said.
    pub dialect: &'static str,
    /// The model that it asks.
    pub model: String,
    /// The engine that shaped its newest request.
    pub engine: String,
    /// Why that was not the configured one.
    pub fallback: Option<String>,
    /// Its requests so far.
    pub requests: u64,
    /// Compactions that were applied.
    pub compactions: u64,
    /// What compactions have taken out of it, as entries count tokens.
    pub folded_tokens: u64,
    /// What the provider counted of its newest prompt.
    pub prompt_tokens: Option<u64>,
    /// What of that came from the provider's cache.
    pub cache_read_tokens: Option<u64>,
    /// When it was used last, in milliseconds since 1970.
    pub last_ms: u64,
    /// How full it was at each request, the newest last.
    pub curve: VecDeque<Occupied>,
    /// What happened to it, the newest last.
    pub marks: VecDeque<Mark>,
}

/// How full a session was at one request, as entries count tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Occupied {
    /// The request, counted from 1.
    pub request: u64,
    /// What was sent.
    pub tokens: u64,
    /// What the live conversation takes.
    pub live_tokens: u64,
    /// What was free for it.
    pub budget_tokens: u64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The requests that there had been.
    pub request: u64,
    /// What: `compaction`, `rejected`, `fallback`, `truncated`, `engine`, `refused`.
    pub kind: &'static str,
    /// The same in words.
    pub words: String,
    /// What was dropped, where something was.
    pub dropped: Option<Dropped>,
}

/// What a compaction dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// How many entries.
    pub entries: u64,
    /// What they took.
    pub tokens: u64,
    /// How many of each role.
    pub roles: BTreeMap<&'static str, u64>,
    /// How each of them begins; empty unless the config asks for content.
    pub excerpts: Vec<String>,
}

impl Board {
    /// Nothing to show yet, of a gateway in whose slot `engine` stands.
    pub fn new(engine: &str, settings: &TelemetrySettings) -> Board {
        let (configured, effective) = (engine.to_owned(), engine.to_owned());
        let shown = Shown { configured, effective, ..Shown::default() };
        Board { shown: Mutex::new(shown), settings: settings.clone() }
    }

    /// Hears an event. Answers what compactions have taken out of its session so far, in tokens.
    pub fn heard(&self, event: &Event, now_ms: u64) -> u64 {
        let mut shown = self.shown();
        match &event.what {
            What::Assembled { engine, .. } => shown.effective.clone_from(engine),
            What::EngineChanged { engine, before, .. } => {
                shown.configured.clone_from(engine);
                shown.effective.clone_from(engine);
                let words = format!("{engine} in the slot, {before} before");
                self.note(&mut shown.marks, mark(now_ms, 0, "engine", words));
                return 0;
            }
            What::EngineRolledBack { engine, serving, why } => {
                shown.effective.clone_from(serving);
                let words =
                    format!("{engine} rolled back, {serving} serves again: {}", self.reason(why));
                self.note(&mut shown.marks, mark(now_ms, 0, "fallback", words));
                return 0;
            }
            What::SwapRefused { why, serving } => {
                let words = format!("the config is not taken in, {serving} goes on: {why}");
                self.note(&mut shown.marks, mark(now_ms, 0, "refused", words));
                return 0;
            }
            What::Compaction(_) | What::Answered { .. } | What::SilentTruncation { .. } => {}
            _ => return 0,
        }
        let Some(live) = self.session(&mut shown, &event.session, now_ms) else { return 0 };
        self.told(live, &event.what, now_ms);
        live.folded_tokens
    }

    /// A request of a session came through a door of this dialect.
    pub fn came(&self, session: &str, dialect: &'static str, now_ms: u64) {
        let mut shown = self.shown();
        if let Some(live) = self.session(&mut shown, session, now_ms) {
            live.dialect = dialect;
        }
    }

    /// All of it.
    pub fn all(&self) -> Shown {
        self.shown().clone()
    }

    fn told(&self, live: &mut Live, what: &What, now_ms: u64) {
        match what {
            What::Assembled {
                engine, fallback, tokens, budget_tokens, model, live_tokens, ..
            } => {
                live.requests += 1;
                live.engine.clone_from(engine);
                live.model.clone_from(model);
                let fallback = fallback.as_deref().map(|why| self.reason(why).to_owned());
                let is_news = fallback.is_some() && live.fallback != fallback;
                live.fallback.clone_from(&fallback);
                let (request, tokens, live_tokens) = (live.requests, *tokens, *live_tokens);
                let occupied =
                    Occupied { request, tokens, live_tokens, budget_tokens: *budget_tokens };
                bounded(&mut live.curve, occupied, self.settings.dashboard_points);
                if let Some(why) = fallback.as_ref().filter(|_| is_news) {
                    let words = format!("{engine} stands in: {why}");
                    self.note(&mut live.marks, mark(now_ms, request, "fallback", words));
                }
            }
            What::Compaction(outcome) => {
                if outcome.verdict == Verdict::Applied {
                    live.compactions += 1;
                    live.folded_tokens +=
                        outcome.before_tokens.saturating_sub(outcome.after_tokens);
                }
                let compacted = self.compacted(outcome, live.requests, now_ms);
                self.note(&mut live.marks, compacted);
            }
            What::Answered { usage } => {
                live.prompt_tokens = Some(usage.prompt_tokens());
                live.cache_read_tokens = Some(usage.cache_read);
            }
            What::SilentTruncation { message } => {
                let truncated = mark(now_ms, live.requests, "truncated", message.clone());
                self.note(&mut live.marks, truncated);
            }
            _ => {}
        }
    }

    fn compacted(&self, outcome: &CompactionOutcome, request: u64, now_ms: u64) -> Mark {
        let CompactionOutcome { engine, before_tokens, after_tokens, .. } = outcome;
        let trigger = outcome.trigger.name();
        let (kind, words) = match &outcome.verdict {
            Verdict::Applied => {
                let words =
                    format!("{engine} ({trigger}): {before_tokens} -> {after_tokens} tokens");
                ("compaction", words)
            }
            Verdict::Rejected { reason } => {
                ("rejected", format!("{engine} ({trigger}): {}", self.reason(reason)))
            }
            Verdict::NotTried { reason } => {
                ("rejected", format!("not tried ({trigger}): {}", self.reason(reason)))
            }
        };
        let dropped = (outcome.verdict == Verdict::Applied).then(|| self.dropped(outcome));
        Mark { dropped, ..mark(now_ms, request, kind, words) }
    }

    /// A reason as it may be shown: engines name behind a colon or in brackets what they speak of, and that
    /// may be words of the conversation.
    fn reason<'a>(&self, reason: &'a str) -> &'a str {
        match self.settings.log_content {
            true => reason,
            false => reason.split([':', '(']).next().unwrap_or_default().trim_end(),
        }
    }

    fn dropped(&self, outcome: &CompactionOutcome) -> Dropped {
        let mut dropped = Dropped::default();
        for entry in &outcome.folded {
            dropped.entries += 1;
            dropped.tokens += entry.tokens;
            *dropped.roles.entry(entry.role.name()).or_default() += 1;
            if self.settings.log_content {
                dropped.excerpts.push(format!("{}: {}", entry.role.name(), entry.excerpt));
            }
        }
        dropped
    }

    fn note(&self, marks: &mut VecDeque<Mark>, mark: Mark) {
        bounded(marks, mark, self.settings.dashboard_points);
    }

    /// The session, moved to the end. The one that rested longest gives way to a new one.
    fn session<'a>(&self, shown: &'a mut Shown, id: &str, now_ms: u64) -> Option<&'a mut Live> {
        if id.is_empty() {
            return None;
        }
        let sessions = &mut shown.sessions;
        // The one that was used last is asked for again more often than any other.
        let known = sessions.iter().rposition(|live| live.id == id);
        let live = known.and_then(|at| sessions.remove(at));
        let live = live.unwrap_or_else(|| Live { id: id.to_owned(), ..Live::default() });
        bounded(sessions, Live { last_ms: now_ms, ..live }, self.settings.dashboard_sessions);
        sessions.back_mut()
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mark(at_ms: u64, request: u64, kind: &'static str, words: String) -> Mark {
    Mark { at_ms, request, kind, words, dropped: None }
}

/// Puts an item behind the others; the oldest goes where they are too many.
fn bounded<T>(items: &mut VecDeque<T>, item: T, most: usize) {
    items.push_back(item);
    while items.len() > most {
        items.pop_front();
    }
}

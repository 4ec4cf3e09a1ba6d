//! What a dashboard shows: the sessions that are alive, how full each is, and what was done about it.
//!
//! It is bounded in every direction. Words of a conversation stand in it only where the config asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use ctxhost_agent::event::{EventKind, RuntimeEvent};
use ctxhost_config::TelemetrySettings;
use ctxhost_context::{CompactionOutcome, CompactionVerdict};

/// What a dashboard shows.
#[derive(Debug)]
pub struct LiveStats {
    shown: Mutex<StatsSnapshot>,
    settings: TelemetrySettings,
}

/// All of it, as the dashboard reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatsSnapshot {
    /// The engine that the config names.
    pub configured: String,
    /// The engine that shaped the newest request.
    pub effective: String,
    /// What happened to the slot, the newest last.
    pub marks: VecDeque<StatsEvent>,
    /// The sessions, the one that was used last at the end.
    pub sessions: VecDeque<ConversationStats>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConversationStats {
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
    pub curve: VecDeque<OccupancySample>,
    /// What happened to it, the newest last.
    pub marks: VecDeque<StatsEvent>,
}

/// How full a session was at one request, as entries count tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OccupancySample {
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
pub struct StatsEvent {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The requests that there had been.
    pub request: u64,
    /// What: `compaction`, `rejected`, `fallback`, `truncated`, `engine`, `refused`.
    pub kind: &'static str,
    /// The same in words.
    pub words: String,
    /// What was dropped, where something was.
    pub dropped: Option<DroppedEntries>,
}

/// What a compaction dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DroppedEntries {
    /// How many entries.
    pub entries: u64,
    /// What they took.
    pub tokens: u64,
    /// How many of each role.
    pub roles: BTreeMap<&'static str, u64>,
    /// How each of them begins; empty unless the config asks for content.
    pub excerpts: Vec<String>,
}

impl LiveStats {
    /// Nothing to show yet, of a gateway in whose slot `engine` stands.
    pub fn new(engine: &str, settings: &TelemetrySettings) -> LiveStats {
        let (configured, effective) = (engine.to_owned(), engine.to_owned());
        let shown = StatsSnapshot { configured, effective, ..StatsSnapshot::default() };
        LiveStats { shown: Mutex::new(shown), settings: settings.clone() }
    }

    /// Hears an event. Answers what compactions have taken out of its session so far, in tokens.
    pub fn record_event(&self, event: &RuntimeEvent, now_ms: u64) -> u64 {
        let mut shown = self.lock();
        match &event.kind {
            EventKind::Assembled { engine, .. } => shown.effective.clone_from(engine),
            EventKind::EngineChanged { engine, previous: before, .. } => {
                shown.configured.clone_from(engine);
                shown.effective.clone_from(engine);
                let words = format!("{engine} in the slot, {before} before");
                self.push_event(&mut shown.marks, stats_event(now_ms, 0, "engine", words));
                return 0;
            }
            EventKind::EngineRolledBack { engine, serving, why } => {
                shown.effective.clone_from(serving);
                let words = format!(
                    "{engine} rolled back, {serving} serves again: {}",
                    self.redacted_reason(why)
                );
                self.push_event(&mut shown.marks, stats_event(now_ms, 0, "fallback", words));
                return 0;
            }
            EventKind::ReloadRejected { why, serving } => {
                let words = format!("the config is not taken in, {serving} goes on: {why}");
                self.push_event(&mut shown.marks, stats_event(now_ms, 0, "refused", words));
                return 0;
            }
            EventKind::Compaction(_)
            | EventKind::Answered { .. }
            | EventKind::SilentTruncation { .. } => {}
            _ => return 0,
        }
        let Some(live) = self.session(&mut shown, &event.session, now_ms) else { return 0 };
        self.update_session(live, &event.kind, now_ms);
        live.folded_tokens
    }

    /// A request of a session came through a door of this dialect.
    pub fn record_request(&self, session: &str, dialect: &'static str, now_ms: u64) {
        let mut shown = self.lock();
        if let Some(live) = self.session(&mut shown, session, now_ms) {
            live.dialect = dialect;
        }
    }

    /// All of it.
    pub fn snapshot(&self) -> StatsSnapshot {
        self.lock().clone()
    }

    fn update_session(&self, live: &mut ConversationStats, what: &EventKind, now_ms: u64) {
        match what {
            EventKind::Assembled {
                engine,
                fallback,
                tokens,
                budget_tokens,
                model,
                live_tokens,
                ..
            } => {
                live.requests += 1;
                live.engine.clone_from(engine);
                live.model.clone_from(model);
                let fallback = fallback.as_deref().map(|why| self.redacted_reason(why).to_owned());
                let is_news = fallback.is_some() && live.fallback != fallback;
                live.fallback.clone_from(&fallback);
                let (request, tokens, live_tokens) = (live.requests, *tokens, *live_tokens);
                let occupied =
                    OccupancySample { request, tokens, live_tokens, budget_tokens: *budget_tokens };
                push_bounded(&mut live.curve, occupied, self.settings.dashboard_points);
                if let Some(why) = fallback.as_ref().filter(|_| is_news) {
                    let words = format!("{engine} stands in: {why}");
                    self.push_event(
                        &mut live.marks,
                        stats_event(now_ms, request, "fallback", words),
                    );
                }
            }
            EventKind::Compaction(outcome) => {
                if outcome.verdict == CompactionVerdict::Applied {
                    live.compactions += 1;
                    live.folded_tokens +=
                        outcome.before_tokens.saturating_sub(outcome.after_tokens);
                }
                let compacted = self.compaction_event(outcome, live.requests, now_ms);
                self.push_event(&mut live.marks, compacted);
            }
            EventKind::Answered { usage } => {
                live.prompt_tokens = Some(usage.prompt_tokens());
                live.cache_read_tokens = Some(usage.cache_read);
            }
            EventKind::SilentTruncation { message } => {
                let truncated = stats_event(now_ms, live.requests, "truncated", message.clone());
                self.push_event(&mut live.marks, truncated);
            }
            _ => {}
        }
    }

    fn compaction_event(
        &self,
        outcome: &CompactionOutcome,
        request: u64,
        now_ms: u64,
    ) -> StatsEvent {
        let CompactionOutcome { engine, before_tokens, after_tokens, .. } = outcome;
        let trigger = outcome.trigger.name();
        let (kind, words) = match &outcome.verdict {
            CompactionVerdict::Applied => {
                let words =
                    format!("{engine} ({trigger}): {before_tokens} -> {after_tokens} tokens");
                ("compaction", words)
            }
            CompactionVerdict::Rejected { reason } => {
                ("rejected", format!("{engine} ({trigger}): {}", self.redacted_reason(reason)))
            }
            CompactionVerdict::NotTried { reason } => {
                ("rejected", format!("not tried ({trigger}): {}", self.redacted_reason(reason)))
            }
        };
        let dropped =
            (outcome.verdict == CompactionVerdict::Applied).then(|| self.dropped(outcome));
        StatsEvent { dropped, ..stats_event(now_ms, request, kind, words) }
    }

    /// A reason as it may be shown: engines name behind a colon or in brackets what they speak of, and that
    /// may be words of the conversation.
    fn redacted_reason<'a>(&self, reason: &'a str) -> &'a str {
        if self.settings.log_content {
            reason
        } else {
            reason.split([':', '(']).next().unwrap_or_default().trim_end()
        }
    }

    fn dropped(&self, outcome: &CompactionOutcome) -> DroppedEntries {
        let mut dropped = DroppedEntries::default();
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

    fn push_event(&self, marks: &mut VecDeque<StatsEvent>, mark: StatsEvent) {
        push_bounded(marks, mark, self.settings.dashboard_points);
    }

    /// The session, moved to the end. The one that rested longest gives way to a new one.
    fn session<'a>(
        &self,
        shown: &'a mut StatsSnapshot,
        id: &str,
        now_ms: u64,
    ) -> Option<&'a mut ConversationStats> {
        if id.is_empty() {
            return None;
        }
        let sessions = &mut shown.sessions;
        // The one that was used last is asked for again more often than any other.
        let known = sessions.iter().rposition(|live| live.id == id);
        let live = known.and_then(|at| sessions.remove(at));
        let live = live.unwrap_or_else(|| ConversationStats {
            id: id.to_owned(),
            ..ConversationStats::default()
        });
        push_bounded(
            sessions,
            ConversationStats { last_ms: now_ms, ..live },
            self.settings.dashboard_sessions,
        );
        sessions.back_mut()
    }

    fn lock(&self) -> MutexGuard<'_, StatsSnapshot> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stats_event(at_ms: u64, request: u64, kind: &'static str, words: String) -> StatsEvent {
    StatsEvent { at_ms, request, kind, words, dropped: None }
}

/// Puts an item behind the others; the oldest goes where they are too many.
fn push_bounded<T>(items: &mut VecDeque<T>, item: T, most: usize) {
    items.push_back(item);
    while items.len() > most {
        items.pop_front();
    }
}

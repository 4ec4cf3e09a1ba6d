//! The data of the dashboard: active sessions, their window usage and compactions.
//!
//! All lists are bounded. Conversation text is included only with `telemetry.log_content`.

use ctxhost_engine_api::transcript::tokens::group_thousands;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::metrics::GatewayTotals;
use crate::proxy::ShapingReport;
use ctxhost_agent::SlotStatus;
use ctxhost_agent::event::{EventKind, RuntimeEvent};
use ctxhost_config::TelemetrySettings;
use ctxhost_context::{CompactionOutcome, CompactionVerdict};

/// The data of the dashboard.
#[derive(Debug)]
pub struct LiveStats {
    recorded: Mutex<RecordedStats>,
    settings: TelemetrySettings,
}

/// A snapshot, as the page reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatsSnapshot {
    /// The slot of the runtime, with reasons as the config allows.
    pub slot: SlotStatus,
    /// The totals of all requests.
    pub totals: GatewayTotals,
    /// Events and sessions.
    #[serde(flatten)]
    pub recorded: RecordedStats,
}

/// What was recorded of the runtime's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordedStats {
    /// The last rollback, until another engine is activated.
    pub rolled_back: Option<String>,
    /// Changes of the slot, the newest last.
    pub marks: VecDeque<StatsEvent>,
    /// The sessions, the last used one at the end.
    pub sessions: VecDeque<ConversationStats>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConversationStats {
    /// The id.
    pub id: String,
    /// The beginning of the user's first request; empty unless the config allows content.
    pub title: String,
    /// The client's name; empty if it sends none.
    pub client: String,
    /// The last part of the client's working folder; empty if it names none.
    pub folder: String,
    /// The client's dialect; empty if unknown.
    pub dialect: &'static str,
    /// The model.
    pub model: String,
    /// The engine of its newest request.
    pub engine: String,
    /// Why that is not the configured one.
    pub fallback: Option<String>,
    /// The number of requests that an engine shaped.
    pub requests: u64,
    /// The number of requests that no engine could shape.
    pub unshaped: u64,
    /// The number of applied compactions.
    pub compactions: u64,
    /// Estimated tokens removed by compactions.
    pub folded_tokens: u64,
    /// Estimated tokens of its prompts, over all requests.
    pub sent_tokens: u64,
    /// Estimated tokens that were not sent: full conversation minus prompt, over all requests.
    pub saved_tokens: u64,
    /// Provider-counted tokens of its newest prompt.
    pub prompt_tokens: Option<u64>,
    /// Those of them that came from the provider's cache.
    pub cache_read_tokens: Option<u64>,
    /// The time of its last request, in milliseconds since 1970.
    pub last_ms: u64,
    /// Window usage per request, the newest last.
    pub curve: VecDeque<OccupancySample>,
    /// Its events, the newest last.
    pub marks: VecDeque<StatsEvent>,
    /// Whether the next prompt is for the same request, which the provider refused.
    #[serde(skip)]
    is_retry: bool,
}

/// Window usage at one request, in estimated tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OccupancySample {
    /// The request number, from 1.
    pub request: u64,
    /// The prompt.
    pub tokens: u64,
    /// The live conversation.
    pub live_tokens: u64,
    /// The budget for the prompt.
    pub budget_tokens: u64,
}

/// An event on the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatsEvent {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number of requests before it.
    pub request: u64,
    /// `compaction`, `rejected`, `fallback`, `truncated`, `engine`, `canary` or `refused`.
    pub kind: &'static str,
    /// A description.
    pub words: String,
    /// What a compaction dropped.
    pub dropped: Option<DroppedEntries>,
}

/// What a compaction dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DroppedEntries {
    /// The number of entries.
    pub entries: u64,
    /// Their tokens.
    pub tokens: u64,
    /// The number of entries per role.
    pub roles: BTreeMap<&'static str, u64>,
    /// The start of each entry; empty unless the config allows content.
    pub excerpts: Vec<String>,
}

impl LiveStats {
    /// Empty data.
    pub fn new(settings: &TelemetrySettings) -> LiveStats {
        LiveStats { recorded: Mutex::default(), settings: settings.clone() }
    }

    /// Records an event. Returns the tokens that compactions have removed from its session so far.
    pub fn record_event(&self, event: &RuntimeEvent, now_ms: u64) -> u64 {
        let mut recorded = self.lock();
        if let Some((kind, words)) = self.slot_change(&event.kind) {
            match &event.kind {
                EventKind::EngineChanged { .. } => recorded.rolled_back = None,
                EventKind::EngineRolledBack { .. } => recorded.rolled_back = Some(words.clone()),
                _ => {}
            }
            self.push_event(&mut recorded.marks, stats_event(now_ms, 0, kind, words));
            return 0;
        }
        if !is_session_event(&event.kind) {
            return 0;
        }
        let Some(live) = self.session(&mut recorded, &event.session, now_ms) else { return 0 };
        self.update_session(live, &event.kind, now_ms);
        live.folded_tokens
    }

    /// Records a request of a session.
    pub fn record_request(&self, dialect: &'static str, report: &ShapingReport, now_ms: u64) {
        let mut recorded = self.lock();
        let Some(live) = self.session(&mut recorded, &report.session, now_ms) else { return };
        live.dialect = dialect;
        // A request that was given up has no further prompt.
        live.is_retry = false;
        live.unshaped += u64::from(report.is_unshaped());
        let label = &report.label;
        // A rejected request has no label.
        if label.client.is_empty() && label.title.is_empty() {
            return;
        }
        live.client.clone_from(&label.client);
        live.folder.clone_from(&label.folder);
        if self.settings.log_content {
            live.title.clone_from(&label.title);
        }
    }

    /// A snapshot, beside the state of the slot and the totals.
    pub fn snapshot(&self, slot: SlotStatus, totals: GatewayTotals) -> StatsSnapshot {
        let reason = slot.reason.map(|reason| self.redacted_reason(&reason).to_owned());
        let slot = SlotStatus { reason, ..slot };
        StatsSnapshot { slot, totals, recorded: self.lock().clone() }
    }

    /// The kind and description of an event of the slot; `None` for other events.
    fn slot_change(&self, kind: &EventKind) -> Option<(&'static str, String)> {
        Some(match kind {
            EventKind::EngineChanged { engine, previous, .. } => {
                ("engine", format!("{engine} replaces {previous}"))
            }
            EventKind::EngineRolledBack { engine, serving, why } => {
                let why = self.redacted_reason(why);
                ("fallback", format!("rolled back from {engine} to {serving}: {why}"))
            }
            EventKind::ReloadRejected { why, serving } => {
                ("refused", format!("config change rejected, {serving} stays active: {why}"))
            }
            EventKind::CanaryStarted { engine, share } => {
                ("canary", format!("{engine} serves {share} of new sessions"))
            }
            EventKind::CanaryEnded { engine, why } => ("canary", format!("{engine} ended: {why}")),
            _ => return None,
        })
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
                // The totals count what clients sent, so a request that is sent again counts once here, too.
                live.requests += u64::from(!std::mem::take(&mut live.is_retry));
                live.engine.clone_from(engine);
                live.model.clone_from(model);
                let fallback = fallback.as_deref().map(|why| self.redacted_reason(why).to_owned());
                // One event per change of the reason, not one per request.
                let is_new = fallback.is_some() && live.fallback != fallback;
                live.fallback.clone_from(&fallback);
                let (request, tokens, live_tokens) = (live.requests, *tokens, *live_tokens);
                let occupied =
                    OccupancySample { request, tokens, live_tokens, budget_tokens: *budget_tokens };
                push_bounded(&mut live.curve, occupied, self.settings.dashboard_points);
                live.sent_tokens += tokens;
                live.saved_tokens += live_tokens.saturating_sub(tokens) + live.folded_tokens;
                if let Some(why) = fallback.as_ref().filter(|_| is_new) {
                    let words = format!("fallback to {engine}: {why}");
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
            EventKind::Recovering { .. } => live.is_retry = true,
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
                let [before, after] = [*before_tokens, *after_tokens].map(group_thousands);
                ("compaction", format!("{engine} ({trigger}): {before} → {after} tokens"))
            }
            CompactionVerdict::Rejected { reason } => {
                ("rejected", format!("{engine} ({trigger}): {}", self.redacted_reason(reason)))
            }
            CompactionVerdict::NotTried { reason } => {
                ("rejected", format!("not attempted ({trigger}): {}", self.redacted_reason(reason)))
            }
        };
        let dropped =
            (outcome.verdict == CompactionVerdict::Applied).then(|| self.dropped(outcome));
        StatsEvent { dropped, ..stats_event(now_ms, request, kind, words) }
    }

    /// A reason without conversation text, which engines put after a colon or in brackets.
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

    fn push_event(&self, events: &mut VecDeque<StatsEvent>, event: StatsEvent) {
        push_bounded(events, event, self.settings.dashboard_points);
    }

    /// The session, moved to the end; a new one replaces the least recently used.
    fn session<'a>(
        &self,
        recorded: &'a mut RecordedStats,
        id: &str,
        now_ms: u64,
    ) -> Option<&'a mut ConversationStats> {
        if id.is_empty() {
            return None;
        }
        let sessions = &mut recorded.sessions;
        // Searched from the end: the last used session is the most likely.
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

    fn lock(&self) -> MutexGuard<'_, RecordedStats> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_session_event(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Assembled { .. }
            | EventKind::Compaction(_)
            | EventKind::Answered { .. }
            | EventKind::Recovering { .. }
            | EventKind::SilentTruncation { .. }
    )
}

fn stats_event(at_ms: u64, request: u64, kind: &'static str, words: String) -> StatsEvent {
    StatsEvent { at_ms, request, kind, words, dropped: None }
}

/// Appends an item and drops the oldest above the limit.
fn push_bounded<T>(items: &mut VecDeque<T>, item: T, most: usize) {
    items.push_back(item);
    while items.len() > most {
        items.pop_front();
    }
}

//! The `window` engine: keeps pinned entries and the newest turns that fit.
//!
//! It reads the user's requests alone, for rules, and calls no model. A call is never separated from its results, and the newest
//! user message and frame always stay. Moves are rare because each frees [`Settings::slack_share`].

mod settings;

use std::ops::Range;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, Host, Info, Plan, Result,
    SessionRef, Transcript,
};
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::sliding_window::{SlidingRule, SlidingWindow, StoredCut};
use ctxhost_engine_kit::store::{has_key_value_store, session_key};

pub use settings::Settings;

/// Layer name in plan notes.
const LAYER: &str = "window";

/// Key prefix of stored cuts.
// The number changes with the JSON format, so that no version misreads another one's value.
const KEY_PREFIX: &str = "cut/1/";

/// The engine.
#[derive(Debug)]
pub struct WindowEngine {
    host: Host,
    rule: SlidingRule,
    sessions: SessionMap<WindowSession>,
}

/// Engine state of one session.
#[derive(Debug, Default)]
struct WindowSession {
    window: SlidingWindow,
    is_loaded: bool,
    stored: StoredCut,
}

impl ContextEngine for WindowEngine {
    const INFO: Info =
        Info::new("window", "Sliding window", env!("CARGO_PKG_VERSION")).owning_compaction();

    fn create(host: Host, config: Value) -> Result<Self> {
        let rule = Settings::parse(config)?.rule();
        Ok(WindowEngine { host, rule, sessions: SessionMap::default() })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        self.restore(&transcript, &request.session).await;
        let choose = |session: &mut WindowSession| {
            let plan = self.choose(&mut session.window, &transcript, request.budget);
            let is_new = session.window.cut() != session.stored.cut();
            if is_new {
                session.stored = StoredCut::new(&session.window, &transcript);
            }
            (plan, is_new.then(|| session.stored.to_json()))
        };
        let (plan, changed) = self.sessions.with_session(&request.session, choose);
        if let Some(json) = changed.filter(|_| has_key_value_store(&self.host)) {
            // A cut that is not stored is chosen again after a restart.
            let _ = self.host.kv_put(&session_key(KEY_PREFIX, &request.session), &json).await;
        }
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl WindowEngine {
    /// Reads the stored cut of a session once, so that a restart changes no prefix.
    async fn restore(&self, transcript: &Transcript, session: &SessionRef) {
        // Marked before the store answers, so that a failing store is asked only once.
        let is_loaded = |state: &mut WindowSession| std::mem::replace(&mut state.is_loaded, true);
        if self.sessions.with_session(session, is_loaded) || !has_key_value_store(&self.host) {
            return;
        }
        let json = self.host.kv_get(&session_key(KEY_PREFIX, session)).await.ok().flatten();
        let Some(stored) = json.and_then(|json| StoredCut::parse(&json, transcript)) else {
            return;
        };
        self.sessions.with_session(session, |state| {
            state.window.follow(transcript, &self.rule);
            state.window.restore(stored.cut().cloned());
            state.stored = stored;
        });
    }

    fn choose(&self, window: &mut SlidingWindow, transcript: &Transcript, budget: u64) -> Plan {
        let tokens = |range: Range<u64>| transcript.tokens(range);
        window.follow(transcript, &self.rule);
        let settled = window.select_unchanged(transcript, budget, &self.rule, &tokens);
        let selection =
            settled.unwrap_or_else(|| window.slide(transcript, budget, &self.rule, &tokens));
        selection.plan(transcript, LAYER, &self.rule, &tokens, |plan, range| {
            plan.keep(range);
        })
    }
}

//! The `window` engine: keeps pinned entries and the newest whole turns that fit.
//!
//! It reads no text and calls no model. A call is never separated from its results, and the newest
//! user message and frame always stay. Moves are rare because each frees [`Settings::slack_share`].

mod settings;

use std::ops::Range;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, Host, Info, Plan, Result,
    Transcript,
};
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::sliding_window::{SlidingRule, SlidingWindow};

pub use settings::Settings;

/// Layer name in plan notes.
const LAYER: &str = "window";

/// The engine.
#[derive(Debug)]
pub struct WindowEngine {
    rule: SlidingRule,
    sessions: SessionMap<SlidingWindow>,
}

impl ContextEngine for WindowEngine {
    const INFO: Info =
        Info::new("window", "Sliding window", env!("CARGO_PKG_VERSION")).owning_compaction();

    fn create(_host: Host, config: Value) -> Result<Self> {
        let rule = Settings::parse(config)?.rule();
        Ok(WindowEngine { rule, sessions: SessionMap::default() })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let choose = |window: &mut SlidingWindow| self.choose(window, &transcript, request.budget);
        Ok(self.sessions.with_session(&request.session, choose))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl WindowEngine {
    fn choose(&self, window: &mut SlidingWindow, transcript: &Transcript, budget: u64) -> Plan {
        let tokens = |range: Range<u64>| transcript.tokens(range);
        window.follow(transcript, &self.rule);
        let settled = window.select_unchanged(transcript, budget, &self.rule, &tokens);
        let selection =
            settled.unwrap_or_else(|| window.slide(transcript, budget, &self.rule, &tokens));
        selection.plan(LAYER, &self.rule, &tokens, |plan, range| {
            plan.keep(range);
        })
    }
}

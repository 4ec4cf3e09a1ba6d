//! The `mask` engine: replaces old tool results by one line each; calls and thinking stay.
//!
//! Under pressure it keeps fewer results, then drops the oldest whole turns like the `window`
//! engine. A masked result keeps its bytes.

mod results;
mod settings;

use std::ops::Range;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, Host, Info, Plan, Result,
    Transcript,
};
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::sliding_window::{EntrySelection, SlidingWindow};

use results::ResultMasks;
pub use settings::Settings;

/// Layer name in plan notes.
const LAYER: &str = "mask";

/// The engine.
#[derive(Debug)]
pub struct MaskEngine {
    settings: Settings,
    sessions: SessionMap<MaskSession>,
}

/// Engine state of one session.
#[derive(Debug, Default)]
struct MaskSession {
    results: ResultMasks,
    window: SlidingWindow,
}

impl ContextEngine for MaskEngine {
    const INFO: Info =
        Info::new("mask", "Observation masking", env!("CARGO_PKG_VERSION")).owning_compaction();

    fn create(_host: Host, config: Value) -> Result<Self> {
        Ok(MaskEngine { settings: Settings::parse(config)?, sessions: SessionMap::default() })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let choose =
            |session: &mut MaskSession| session.plan(&transcript, request.budget, &self.settings);
        Ok(self.sessions.with_session(&request.session, choose))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl MaskSession {
    fn plan(&mut self, transcript: &Transcript, budget: u64, settings: &Settings) -> Plan {
        let rule = settings.rule();
        self.results.follow(transcript);
        self.window.follow(transcript, &rule);
        self.results.mask_until(transcript, self.results.due_count(settings));
        let selection = self.choose(transcript, budget, settings);
        let results = &self.results;
        let tokens = |range: Range<u64>| results.tokens(transcript, range);
        selection.plan(LAYER, &rule, &tokens, |plan, range| results.keep_range(plan, range))
    }

    fn choose(
        &mut self,
        transcript: &Transcript,
        budget: u64,
        settings: &Settings,
    ) -> EntrySelection {
        if let Some(selection) = self.select_unchanged(transcript, budget, settings) {
            return selection;
        }
        // Masking frees room for several requests, like a window move.
        let target_tokens = settings.rule().target_tokens(budget);
        let most = self.results.maskable_count(settings.min_keep_results);
        // One at a time: each mask costs detail.
        while self.results.masked_count() < most
            && self.select_unchanged(transcript, target_tokens, settings).is_none()
        {
            self.results.mask_until(transcript, self.results.masked_count() + 1);
        }
        if let Some(selection) = self.select_unchanged(transcript, budget, settings) {
            return selection;
        }
        let results = &self.results;
        let tokens = |range: Range<u64>| results.tokens(transcript, range);
        self.window.slide(transcript, budget, &settings.rule(), &tokens)
    }

    fn select_unchanged(
        &self,
        transcript: &Transcript,
        budget: u64,
        settings: &Settings,
    ) -> Option<EntrySelection> {
        let tokens = |range: Range<u64>| self.results.tokens(transcript, range);
        self.window.select_unchanged(transcript, budget, &settings.rule(), &tokens)
    }
}

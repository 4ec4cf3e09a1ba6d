//! The `mask` engine: replaces old tool results by one line each; calls and thinking stay.
//!
//! Under pressure it keeps fewer results, then drops the oldest whole turns like the `window`
//! engine, with a list of their names. A masked result keeps its bytes and some of its names.

mod results;
mod settings;
mod stored_session;

use std::ops::Range;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, Host, Info, IngestReply,
    IngestRequest, Plan, Result, Role, SessionRef, Transcript,
};
use ctxhost_engine_kit::name_ledger::NameSet;
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::sliding_window::{EntrySelection, SlidingWindow, WindowCut};
use ctxhost_engine_kit::store::{has_key_value_store, session_key};
use ctxhost_text::redact::redact;

use results::ResultMasks;
pub use settings::Settings;
use stored_session::{StoredChoice, StoredMaskSession};

/// Layer name in plan notes.
const LAYER: &str = "mask";

/// Key prefix of stored sessions.
// The number changes with the JSON format, so that no version misreads another one's value.
const KEY_PREFIX: &str = "session/1/";

/// The engine.
#[derive(Debug)]
pub struct MaskEngine {
    host: Host,
    settings: Settings,
    sessions: SessionMap<MaskSession>,
}

/// Engine state of one session.
#[derive(Debug, Default)]
struct MaskSession {
    results: ResultMasks,
    window: SlidingWindow,
    /// Names of the dropped turns; constant while the window does not move.
    names: String,
    is_loaded: bool,
    /// What was chosen for each budget. Masks, window and names are those of the present one.
    chosen: StoredMaskSession,
}

impl ContextEngine for MaskEngine {
    const INFO: Info =
        Info::new("mask", "Observation masking", env!("CARGO_PKG_VERSION")).owning_compaction();

    fn create(host: Host, config: Value) -> Result<Self> {
        let settings = Settings::parse(config)?;
        Ok(MaskEngine { host, settings, sessions: SessionMap::default() })
    }

    /// Reads new entries ahead of the request.
    async fn ingest(&self, transcript: Transcript, request: IngestRequest) -> Result<IngestReply> {
        let follow = |session: &mut MaskSession| session.follow(&transcript, &self.settings);
        self.sessions.with_session(&request.session, follow);
        Ok(IngestReply { entries: request.entries.end.saturating_sub(request.entries.start) })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        self.restore(&transcript, &request.session).await;
        let choose = |session: &mut MaskSession| {
            let plan = session.plan(&transcript, request.budget, &self.settings);
            (plan, session.take_changes(&transcript))
        };
        let (plan, changes) = self.sessions.with_session(&request.session, choose);
        if let Some(json) = changes.filter(|_| has_key_value_store(&self.host)) {
            // What is not stored is chosen again after a restart.
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

impl MaskEngine {
    /// Reads the stored masks and window of a session once, so that a restart changes no prefix.
    async fn restore(&self, transcript: &Transcript, session: &SessionRef) {
        if self.sessions.with_session(session, |session| session.is_loaded) {
            return;
        }
        let mut stored = None;
        if has_key_value_store(&self.host) {
            stored = self.host.kv_get(&session_key(KEY_PREFIX, session)).await.ok().flatten();
        }
        self.sessions.with_session(session, |session| {
            session.follow(transcript, &self.settings);
            session.is_loaded = true;
            session.chosen =
                stored.and_then(|json| stored_session::parse(&json)).unwrap_or_default();
        });
    }
}

impl MaskSession {
    /// Continues with what was chosen for a budget.
    fn select_budget(&mut self, transcript: &Transcript, budget: u64) {
        self.chosen.select(budget);
        // After a compaction or on another branch another entry has the position.
        let chosen = Some(self.chosen.state()).filter(|chosen| chosen.is_of(transcript));
        self.results.unmask();
        self.results.mask_until(chosen.map_or(0, |chosen| chosen.masked));
        self.window.restore(chosen.and_then(|chosen| chosen.cut.clone()));
        self.names = chosen.map_or(String::new(), |chosen| chosen.names.clone());
    }

    /// The choices to store; `None` if they are stored.
    fn take_changes(&mut self, transcript: &Transcript) -> Option<String> {
        let (masked, cut) = (self.results.masked_count(), self.window.cut());
        let last = self.results.last_masked().max(cut.map(WindowCut::start));
        let last_id = last.and_then(|seq| transcript.get(seq)).map(|entry| entry.id().to_owned());
        let (last, last_id) = (last.unwrap_or(0), last_id.unwrap_or_default());
        let now =
            StoredChoice { masked, cut: cut.cloned(), names: self.names.clone(), last, last_id };
        (now != *self.chosen.state()).then(|| {
            *self.chosen.decide() = now;
            stored_session::to_json(&self.chosen)
        })
    }

    fn follow(&mut self, transcript: &Transcript, settings: &Settings) {
        if self.results.follow(transcript, settings) {
            self.chosen = StoredMaskSession::default();
        }
        self.window.follow(transcript, &settings.rule());
    }

    fn plan(&mut self, transcript: &Transcript, budget: u64, settings: &Settings) -> Plan {
        self.follow(transcript, settings);
        self.select_budget(transcript, budget);
        self.mask_until(self.results.due_count(settings));
        let selection = self.choose(transcript, budget, settings);
        if selection.dropped_ranges().next().is_none() {
            self.names.clear();
        }
        let (results, names) = (&self.results, self.names.as_str());
        let tokens = |range: Range<u64>| results.tokens(transcript, range);
        let len = transcript.len() as u64;
        let mut plan =
            selection.plan(transcript, LAYER, &settings.rule(), &tokens, |plan, range| {
                if range.end == len && !names.is_empty() {
                    let here = range.start..range.start;
                    plan.insert(Role::User, names, here).note(LAYER, "names of what was left out");
                }
                results.keep_range(plan, range);
            });
        plan.estimated_tokens += tokens::estimate(names);
        plan
    }

    /// Masks the first `count` results. A mask takes the place of a cut.
    fn mask_until(&mut self, count: usize) {
        self.results.mask_until(count);
        self.window.drop_cuts_before(self.results.last_masked().map_or(0, |seq| seq + 1));
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
            self.mask_until(self.results.masked_count() + 1);
        }
        if let Some(selection) = self.select_unchanged(transcript, budget, settings) {
            return selection;
        }
        let name_tokens = share_of(budget, settings.ledger_share);
        let results = &self.results;
        let tokens = |range: Range<u64>| results.tokens(transcript, range);
        let rule = settings.rule();
        let selection = self.window.slide(transcript, budget - name_tokens, &rule, &tokens);
        // A newest turn that is too long leaves no room for names.
        let free_tokens = budget.saturating_sub(selection.tokens(&rule, &tokens));
        self.names = self.render_names(transcript, &selection, name_tokens.min(free_tokens));
        selection
    }

    /// The heaviest names that the kept entries do not show.
    fn render_names(
        &self,
        transcript: &Transcript,
        selection: &EntrySelection,
        room_tokens: u64,
    ) -> String {
        let ResultMasks { names, .. } = &self.results;
        let kept = selection.kept_ranges().iter().flat_map(Range::clone);
        let cuts = selection.cuts();
        let whole = kept.filter(|seq| !self.results.is_masked(*seq) && !cuts.contains(*seq));
        let mut shown: NameSet =
            whole.flat_map(|seq| names.entry_names(seq).iter().copied()).collect();
        shown
            .extend(cuts.texts(transcript).flat_map(|(seq, text)| names.names_in_part(seq, &text)));
        let list = names.render(&shown, [], &NameSet::default(), room_tokens * CHARS_PER_TOKEN);
        redact(&list.text).into_owned()
    }

    fn select_unchanged(
        &self,
        transcript: &Transcript,
        budget: u64,
        settings: &Settings,
    ) -> Option<EntrySelection> {
        let tokens = |range: Range<u64>| self.results.tokens(transcript, range);
        let rule = settings.rule();
        let room_tokens = budget.saturating_sub(tokens::estimate(&self.names));
        // Without a valid move the names are dropped, and the whole history may fit.
        let is_moved = self.window.is_moved(transcript, room_tokens, &rule);
        let room_tokens = if is_moved { room_tokens } else { budget };
        self.window.select_unchanged(transcript, room_tokens, &rule, &tokens)
    }
}

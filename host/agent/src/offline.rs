//! A run on a session file, without a model that answers: a replay, or a compaction that the user asked for.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::engine_options::EngineOptions;
use ctxhost_config::Config;
use ctxhost_context::{CompactionOutcome, Context, ContextError, ContextSettings, Target};
use ctxhost_engine::{EngineSpec, HostClock};
use ctxhost_engine_api::Trigger;
use ctxhost_session::Session;

/// What a run on a session file needs beside the session and an engine.
#[derive(Clone, Debug)]
pub struct OfflineOptions {
    /// What engines are opened with.
    pub engines: EngineOptions,
    /// What contexts are made with. Their clock is set by the run.
    pub context: ContextSettings,
    /// What prompts are prepared for.
    pub target: Target,
}

impl OfflineOptions {
    /// As a config says, with this engine as the fallback; nothing is stored on a disk.
    pub fn new(config: &Config, legacy: EngineSpec, target: Target) -> OfflineOptions {
        let context = ContextSettings::from_config(config);
        OfflineOptions { engines: EngineOptions::new(config, legacy), context, target }
    }

    /// What the conversation in a prompt may take, as entries count.
    pub fn budget_tokens(&self) -> u64 {
        self.target.budget.unwrap_or_default().tokens
    }

    /// A context of a session whose time is that of `clock`.
    ///
    /// # Errors
    ///
    /// [`ContextError::Slot`] where an engine does not open.
    pub fn open(
        &self,
        session: Session,
        engines: &[EngineSpec],
        clock: HostClock,
    ) -> Result<Context, ContextError> {
        let sessions = self.context.sessions.clone();
        let engine = self.engines.open(engines, &clock, sessions)?;
        let settings = ContextSettings { clock, ..self.context.clone() };
        Ok(Context::new(session, Arc::new(engine), Arc::new(settings)))
    }
}

/// Compacts a session, in up to three tries that grow bolder. The last outcome says how it ended; where none was
/// applied, the session is as it was. `focus` is what the summary should look after, `now_ms` the time of all of it in
/// milliseconds since 1970, so that a run can be repeated.
///
/// A compaction that a kill cut short is finished first, where it can be: see [`Session::recover_compaction`].
///
/// # Errors
///
/// [`ContextError`]: the engine could not be opened or the session not be written.
pub fn compact_session<'a>(
    mut session: Session,
    engines: &'a (impl AsRef<[EngineSpec]> + ?Sized),
    options: &'a OfflineOptions,
    focus: Option<&'a str>,
    now_ms: i64,
) -> LocalBoxFuture<'a, Result<Vec<CompactionOutcome>, ContextError>> {
    let engines = engines.as_ref();
    Box::pin(async move {
        session.recover_compaction();
        let clock = HostClock::recorded();
        clock.set(now_ms);
        let mut context = options.open(session, engines, clock)?;
        let target = Target { trigger: Trigger::Manual, ..options.target.clone() };
        context.compact(&target, focus).await
    })
}

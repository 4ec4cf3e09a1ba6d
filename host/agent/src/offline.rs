//! Runs on a session file without a conversation: replays, manual compactions and previews.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::engine_options::EngineOptions;
use ctxhost_config::Config;
use ctxhost_context::{
    CompactionOutcome, Context, ContextError, ContextSettings, PromptPreview, Target,
};
use ctxhost_engine::{EngineSpec, HostClock};
use ctxhost_engine_api::Trigger;
use ctxhost_session::Session;

/// The options of a run on a session file.
#[derive(Clone, Debug)]
pub struct OfflineOptions {
    /// How engines are opened.
    pub engines: EngineOptions,
    /// The settings of contexts; the run sets their clock.
    pub context: ContextSettings,
    /// The target of prompts.
    pub target: Target,
}

impl OfflineOptions {
    /// The options of a config, with `legacy` as the fallback engine. Engines store nothing on disk.
    pub fn new(config: &Config, legacy: EngineSpec, target: Target) -> OfflineOptions {
        let context = ContextSettings::from_config(config);
        OfflineOptions { engines: EngineOptions::new(config, legacy), context, target }
    }

    /// The budget of prompts, in estimated tokens.
    pub fn budget_tokens(&self) -> u64 {
        self.target.budget.unwrap_or_default().tokens
    }

    /// Opens the engines and a context of the session.
    ///
    /// # Errors
    ///
    /// [`ContextError::Slot`] if an engine does not open.
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

/// Compacts a session in up to three attempts. The last outcome is the result; if none was applied, the session is
/// unchanged. `focus` is what the summary preserves. `now_ms` is the time of the run in milliseconds since 1970, so
/// that a run can be repeated.
///
/// An interrupted compaction is completed first if possible: see [`Session::recover_compaction`].
///
/// # Errors
///
/// [`ContextError`] if the engine cannot be opened or the session cannot be written.
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
        // A fixed time makes the run reproducible.
        clock.set(now_ms);
        let mut context = options.open(session, engines, clock)?;
        let target = Target { trigger: Trigger::Manual, ..options.target.clone() };
        context.compact(&target, focus).await
    })
}

/// What the next request of a session would be. `now_ms` as in [`compact_session`].
///
/// # Errors
///
/// [`ContextError::Slot`] if the engine cannot be opened or fails.
pub fn preview_session<'a>(
    session: Session,
    engines: &'a (impl AsRef<[EngineSpec]> + ?Sized),
    options: &'a OfflineOptions,
    now_ms: i64,
) -> LocalBoxFuture<'a, Result<PromptPreview, ContextError>> {
    let engines = engines.as_ref();
    Box::pin(async move {
        let clock = HostClock::recorded();
        clock.set(now_ms);
        options.open(session, engines, clock)?.preview(&options.target).await
    })
}

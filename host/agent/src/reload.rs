//! Replaces the engine of a running host, on request or when the watched config changes.

pub(crate) mod config_watch;
pub(crate) mod engine_selection;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use self::config_watch::ConfigWatch;
use self::engine_selection::{EngineSelection, engine_chain};
use crate::canary::{Canary, CanaryError};
use crate::engine_manager::EngineChange;
use crate::engine_options::EngineOptions;
use crate::engine_registry::EngineRegistryError;
use crate::event::EventKind;
use crate::runtime::Runtime;
use crate::state::RuntimeState;
use ctxhost_config::{Config, ConfigError};
use ctxhost_engine::{ActiveEngine, EngineSpec, SlotError};

/// Why an engine was not replaced. The current engine keeps serving.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The config is invalid.
    #[error("{}", describe_config_error(.0))]
    Config(#[from] ConfigError),
    /// The engine is unknown or not allowed.
    #[error(transparent)]
    Registry(#[from] EngineRegistryError),
    /// The engine could not be opened.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The canary's state file could not be read or written.
    #[error(transparent)]
    Canary(#[from] CanaryError),
    /// The host panicked while it opened the engine.
    #[error("opening the engine panicked: {reason}")]
    Panicked { reason: String },
}

/// The first error of a config with its line, and how many others it has.
fn describe_config_error(error: &ConfigError) -> String {
    let place = error.location().map(|place| format!("{place}: ")).unwrap_or_default();
    let others = match error {
        ConfigError::Invalid(first) => first.others().len(),
        ConfigError::Unreadable { .. } | ConfigError::Unwritable { .. } => 0,
    };
    match others {
        0 => format!("{place}{error}"),
        1 => format!("{place}{error}; and another error, which `ctxhost config check` shows"),
        _ => {
            format!("{place}{error}; and {others} other errors, which `ctxhost config check` shows")
        }
    }
}

impl Runtime {
    /// Replaces the engine with another one or a chain, from each session's next turn on; a running turn keeps its
    /// engine. The current engine serves until the new one is open, and takes over again if the new one fails its
    /// trial (`swap.trial_requests`). Lifts a quarantine that failures of an earlier process caused, but not one
    /// caused by crashes.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; the current engine keeps serving.
    pub fn replace_engine<'a>(
        &'a self,
        engines: &'a (impl AsRef<[EngineSpec]> + Sync + ?Sized),
    ) -> BoxFuture<'a, Result<EngineChange, ReloadError>> {
        Box::pin(async move {
            let state = self.state();
            let _changing = state.engines.lock_changes().await;
            let engines = engines.as_ref().to_vec();
            // The user asks for these engines in spite of their failures.
            engines.iter().for_each(|engine| state.engine_options.lift_quarantine(&engine.id));
            state.open_and_activate(engines, state.engine_options.clone(), None).await
        })
    }

    /// [`replace_engine`](Self::replace_engine) with an engine of a config: an id, the path of a library, or a chain
    /// such as `mask+legacy`.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; the current engine keeps serving.
    pub fn replace_engine_by_name<'a>(
        &'a self,
        config: &'a Config,
        name: &'a str,
    ) -> BoxFuture<'a, Result<EngineChange, ReloadError>> {
        Box::pin(async move {
            let engines = engine_chain(config, name, self.state().workspace_rules.as_ref())?;
            self.replace_engine(&engines).await
        })
    }

    /// How many engines this runtime has opened for its slot.
    pub fn generation(&self) -> u64 {
        self.state().engines.generation()
    }

    /// Applies changes of the watched config and of its canary since the last call. A runtime calls this by itself
    /// every `swap.watch_ms`. Returns `None` if the engine stays.
    ///
    /// # Errors
    ///
    /// [`ReloadError`], also emitted as an event; the current engines keep serving.
    pub async fn reload(&self) -> Result<Option<EngineChange>, ReloadError> {
        let state = self.state();
        let Some(watch) = &state.config_watch else { return Ok(None) };
        let _changing = state.engines.lock_changes().await;
        let changes = watch.take_changes();
        let mut change = Ok(None);
        if changes.config {
            change = state.reload_config(watch).await;
            state.report_rejection(change.as_ref().err());
            if watch.note_rejection(change.is_err()) && change.is_ok() {
                let serving = state.engines.current().serving_info().id;
                // A warning, which is logged by default like the rejection.
                tracing::warn!(serving, "the config is valid again");
            }
        }
        // After the config: the canary is opened with its settings.
        if changes.canary {
            let canary = state.reload_canary(watch).await;
            state.report_rejection(canary.as_ref().err());
            canary?;
        }
        change
    }

    /// Checks the watched files periodically for as long as the runtime lives.
    pub(crate) fn start_config_watch(&self) {
        let interval = self.state().engines.watch_interval();
        if interval.is_zero() || self.state().config_watch.is_none() {
            return;
        }
        let shutdown = self.state().shutdown.clone();
        let state = Arc::downgrade(self.state());
        tokio::spawn(async move {
            let mut last = None;
            while shutdown.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
                let Some(runtime) = state.upgrade().map(Runtime::from_state) else { return };
                let Some(watch) = &runtime.state().config_watch else { return };
                let stamps = watch.current_stamps();
                // Two equal looks in a row: an editor may still be writing the file.
                if watch.has_changed(stamps) && last == Some(stamps) {
                    // An error was reported as an event.
                    let _ = runtime.reload().await;
                }
                last = Some(stamps);
            }
        });
    }
}

impl RuntimeState {
    /// Opens engines and makes them current. The caller holds the change lock.
    async fn open_and_activate(
        &self,
        engines: Vec<EngineSpec>,
        options: EngineOptions,
        applied: Option<EngineSelection>,
    ) -> Result<EngineChange, ReloadError> {
        let engine = self.open_successor(engines, options).await?;
        Ok(self.engines.activate(engine, applied))
    }

    /// Opens engines on a blocking thread: loading a library may take seconds.
    async fn open_successor(
        &self,
        engines: Vec<EngineSpec>,
        options: EngineOptions,
    ) -> Result<ActiveEngine, ReloadError> {
        let (clock, sessions) = (self.clock().clone(), self.context.sessions.clone());
        let opened = tokio::task::spawn_blocking(move || {
            options.open_successor(&engines, &clock, sessions).map(|engine| (engine, engines))
        });
        let (engine, engines) = opened.await.map_err(panicked)??;
        self.engines.count_opened(&engines);
        Ok(engine)
    }

    async fn reload_config(
        &self,
        watch: &ConfigWatch,
    ) -> Result<Option<EngineChange>, ReloadError> {
        let config = Config::load(watch.path())?;
        if let Some(tables) = watch.take_restart_tables(&config).filter(|it| !it.is_empty()) {
            let tables = tables.join(" ");
            tracing::warn!(
                tables,
                "these tables of the config have changed; restart the host to apply them"
            );
        }
        let rules = self.workspace_rules.clone();
        // On a blocking thread: hashing large libraries takes a while.
        let selection = tokio::task::spawn_blocking(move || {
            EngineSelection::from_config(&config, rules.as_ref())
        });
        let selection = selection.await.map_err(panicked)??;
        // The file may have changed elsewhere; its other settings apply at the next start.
        if self.engines.is_applied(&selection) {
            return Ok(None);
        }
        let (engines, options) = (selection.engines(), selection.options(&self.engine_options));
        Ok(Some(self.open_and_activate(engines, options, Some(selection)).await?))
    }

    /// Activates the canary of the state file, or removes one that was ended there.
    async fn reload_canary(&self, watch: &ConfigWatch) -> Result<(), ReloadError> {
        let state = watch.canary_folder.read()?;
        let active = self.engines.active_canary();
        if active.as_ref().map(|canary| &canary.run)
            == state.canary.as_ref().map(|canary| &canary.run)
        {
            return Ok(());
        }
        if let Some(active) = active {
            let end = state.ended.filter(|end| end.run == active.run);
            let why = end.map_or_else(|| "another canary is on".to_owned(), |end| end.why);
            self.engines.remove_canary(&active.run, &why);
        }
        let Some(canary) = state.canary else { return Ok(()) };
        match self.open_canary(&canary, watch).await {
            Ok(engine) => {
                self.engines.set_canary(canary, engine, watch.canary_folder.clone());
                Ok(())
            }
            Err(error) => {
                // A canary that does not open is rolled back as if it had broken a guard.
                let why = format!("it does not open: {error}");
                let at_ms = self.clock().now_ms();
                let ended = watch
                    .canary_folder
                    .update(|state| Ok(state.end(&canary.run, false, &why, at_ms)));
                ended.map_err(CanaryError::into).and(Err(error))
            }
        }
    }

    async fn open_canary(
        &self,
        canary: &Canary,
        watch: &ConfigWatch,
    ) -> Result<ActiveEngine, ReloadError> {
        let config = Config::load(watch.path())?;
        let rules = self.workspace_rules.as_ref();
        let selection = EngineSelection::from_config(&config, rules)?;
        let engines = engine_chain(&config, &canary.engine, rules)?;
        self.open_successor(engines, selection.options(&self.engine_options)).await
    }

    fn report_rejection(&self, error: Option<&ReloadError>) {
        let Some(error) = error else { return };
        let serving = self.engines.current().serving_info().id;
        tracing::warn!(%error, serving, "a config change was rejected");
        // Config errors have several lines; an event's text has one.
        let why = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        self.engines.emit(EventKind::ReloadRejected { why, serving });
    }
}

fn panicked(error: tokio::task::JoinError) -> ReloadError {
    ReloadError::Panicked { reason: error.to_string() }
}

#[cfg(test)]
mod tests;
